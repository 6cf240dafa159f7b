"""Names of functions in a ledger: the same for a script, a test and an installed package, on each Python, wherever the lines are."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from fineline.ledger.functions import Names

SOURCE = """
import functools

def decorator(f):
    return f

@decorator
@functools.cache
def plain(x):
    def inner(y):
        return [inner(z) for z in y]
    return (lambda v: v + 1)(x)

class Net:
    class Part:
        def forward(self, x):
            return x

many = lambda x: x
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "loose.py").write_text(SOURCE)
    for folder in ("mypkg", "mypkg/parts"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text(SOURCE)
    (tmp_path / "mypkg" / "parts" / "net.py").write_text(SOURCE)
    return tmp_path / "loose.py"


@pytest.mark.parametrize(
    ("line", "function", "name"),
    [
        (9, "plain", "plain"), (7, "", "plain"), (11, "plain.<locals>.inner.<locals>.<listcomp>", "plain.<locals>.inner"),
        (12, "plain.<locals>.<lambda>", "plain.<locals>.<lambda>"), (17, "Net.Part", "Net.Part.forward"), (11, "", "plain.<locals>.inner"),
        (1, "gone", "gone"), (1, "", "region"),
    ],
)  # fmt: skip
def test_functions(file: Path, line: int, function: str, name: str) -> None:
    assert Names(file.parent).function(str(file), line, function, "region") == f"loose.py:{name}"


def test_files(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = file.parent
    names = Names(folder / "ci")

    def named(path: Path | str) -> str:
        return names.function(str(path), 1, "f", "")

    assert named(folder / "mypkg" / "parts" / "net.py") == "mypkg.parts.net.f"
    assert named(folder / "mypkg" / "parts" / "__init__.py") == "mypkg.parts.f"
    assert named(file) == "../loose.py:f"
    assert named("<string>") == "<string>:f"
    assert named(folder / "ipykernel_17" / "3004.py") == "N.py:f"
    # Libraries are found on another machine too.
    assert named(Path(torch.nn.__file__).parent / "modules" / "linear.py") == "torch.nn.modules.linear.f"
    assert named(Path(sys.modules["typing"].__file__ or "")) == "typing.f"
    # The folder in which the program began counts.
    monkeypatch.chdir(folder)
    names = Names(folder)
    monkeypatch.chdir("/")
    assert named("loose.py") == "loose.py:f"


def test_files_that_are_no_python(tmp_path: Path) -> None:
    for text in (b"def f(:", b"\0", b"\xff", b"x = " + b"(" * 5000 + b"1" + b")" * 5000, b"x = " + b"1 + " * 5000 + b"1"):
        (tmp_path / "odd.py").write_bytes(text)
        assert Names(tmp_path).function(str(tmp_path / "odd.py"), 1, "f", "") == "odd.py:f"
