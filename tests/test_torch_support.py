"""Pythons and releases of PyTorch that are refused at the import, newer releases, which are warned about, and a core that reads wrongly."""

from __future__ import annotations

import logging
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import fineline
from fineline import torch_support
from fineline.bytecode import supported
from fineline.guards import native_core
from fineline.region import guard_dispatch

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("version", ["2.12.1", "2.12.0+cpu", "1.13.1", "2.9.0a0+git1234"])
def test_an_older_release_is_refused(version: str) -> None:
    with pytest.raises(ImportError) as refused:
        torch_support.check_supported(version)
    text = str(refused.value)
    assert version in text and "2.13 to 2.15" in text and torch_support.REQUIREMENT in text and "FL902" in text


@pytest.mark.parametrize("version", ["2.13.0", "2.13.0+cpu", "2.15.0+cu132", "2.16.0", "3.0.0a0+git1234", "", "unknown"])
def test_others_pass(version: str) -> None:
    torch_support.check_supported(version)


def test_a_newer_release_is_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    torch_support.warn_if_untested.cache_clear()
    with caplog.at_level(logging.WARNING, logger="fineline"):
        for version in ("2.13.0", "2.14.1", "2.15.0+cu132", "", "2.16.0", "2.16.0"):
            torch_support.warn_if_untested(version)
    [message] = [record.getMessage() for record in caplog.records]
    assert "FL904" in message and "2.16.0" in message and "2.13, 2.14 and 2.15" in message


def test_the_version_is_read_without_loading_pytorch() -> None:
    code = "import sys; from fineline.torch_support import installed_version as v; print(v()); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == torch.__version__ == torch_support.installed_version(), done.stderr


# The text of a PyTorch as it is installed. The second one would be loaded, which fails: the import of fineline says why before.
FOUND = {"2.12.1+cpu": "ImportError: FL902", "2.13.0": ""}


@pytest.mark.parametrize("version", FOUND)
def test_importing_fineline_says_which_release_it_needs(version: str, tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise RuntimeError('loaded')\n")
    (tmp_path / "torch" / "version.py").write_text(f"__version__ = '{version}'\n")
    path = [str(tmp_path), str(Path(fineline.__file__).parent.parent)]
    code = f"import sys; sys.path[:0] = {path!r}; import fineline"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    last = done.stderr.strip().splitlines()
    assert (FOUND[version] in done.stderr and "next: Install" in last[-1]) if FOUND[version] else not last


def test_the_first_use_without_pytorch_says_so() -> None:
    without = "import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p and p]"
    code = f"{without}; sys.path.insert(0, {str(Path(fineline.__file__).parent.parent)!r}); import fineline; fineline.compile"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, timeout=300, env={"PYTHONDONTWRITEBYTECODE": "1"})
    last = done.stderr.strip().splitlines()[-3:]
    assert last[0] == "ModuleNotFoundError: FL906: PyTorch is not installed" and last[2].endswith(f"pip install {torch_support.REQUIREMENT}"), done.stderr


def test_the_requirement_is_that_of_the_package() -> None:
    wanted = torch_support.REQUIREMENT.strip('"')
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert wanted in project["project"]["dependencies"]
    # The build takes the PyTorch that is installed, instead of one of its own.
    assert not [text for text in project["build-system"]["requires"] if text.startswith("torch")]


# -- Python ------------------------------------------------------------------------------------------------------------
# What the import sees, and a part of its answer.
PYTHONS = {
    "another implementation": ("sys.implementation.name = 'pypy'", "this is pypy 3."),
    "an older one": ("sys.version_info = (3, 10, 4, 'final', 0)", "this is Python 3.10.4, and fineline reads the bytecode of CPython 3.11 to 3.14"),
    "a newer one": ("sys.version_info = (3, 15, 0, 'alpha', 1)", "this is Python 3.15.0, and"),
    "free threads": ("sys.version_info = (3, 14, 1); sys.version = '3.14.1 free-threading build (main)'", "a free-threaded build of Python 3.14.1"),
    "an experiment": ("sys.version_info = (3, 13, 1); sys.version = '3.13.1 experimental free-threading build (main)'", "build of Python 3.13.1"),
    "silent stores": ("sys.version_info = (3, 13, 0)", "Python 3.13.0, which does not report"),
}


@pytest.mark.parametrize("kind", PYTHONS)
def test_importing_fineline_says_which_python_it_needs(kind: str) -> None:
    setting, reason = PYTHONS[kind]
    code = f"import sys; sys.path.insert(0, {str(Path(fineline.__file__).parent.parent)!r}); {setting}; import fineline"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    last = done.stderr.strip().splitlines()[-3:]
    assert last[0].startswith("ImportError: FL905: this Python is not supported: ") and reason in last[0] and "next: Install" in last[2]


@pytest.mark.parametrize("numbers", [(3, 11, 0), (3, 12, 1), (3, 13, 1), (3, 14, 10)])
def test_other_pythons_pass(numbers: tuple[int, ...]) -> None:
    assert supported.unsupported("cpython", numbers, "3.1x (main, Dec  3 2025) [GCC 14.2.0]") is None


def test_each_supported_python_has_a_file() -> None:
    files = sorted(Path(supported.__file__).parent.glob("python_3_*.py"))
    assert [tuple(map(int, file.stem.split("_")[1:])) for file in files] == [(3, n) for n in range(supported.OLDEST[1], supported.NEWEST[1] + 1)]


# -- the native core ---------------------------------------------------------------------------------------------------
CORE = pytest.importorskip("fineline._native")


class Wrong:
    """The native core, but for one function or class."""

    def __init__(self, **replaced: Any) -> None:
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(CORE, name)


def _always(passes: bool) -> Callable:
    class Program:
        def __init__(self, *args: Any) -> None:
            pass

        def check(self, roots: tuple) -> tuple | None:
            return () if passes else None

    return Program


def _stubborn(*args: Any) -> Any:
    """A program that does not look again at what has passed twice, as a core would that compares wrong words of memory."""
    program, passed = CORE.GuardProgram(*args), []

    class Program:
        def check(self, roots: tuple) -> Any:
            found = () if len(passed) > 1 else program.check(roots)
            passed.extend([1] * (found is not None))
            return found

    return Program()


def _raising(*args: Any) -> Any:
    raise SystemError("out of memory that is not there")


WRONG = {
    "fails all": {"GuardProgram": _always(False)},
    "passes all": {"GuardProgram": _always(True)},
    "looks once": {"GuardProgram": _stubborn},
    "raises": {"layout_of": _raising},
    "layout of another": {"layout_of": lambda t: CORE.layout_of(torch.empty(9))},
    "no layout": {"layout_of": lambda t: NotImplemented},
    "foreign memory": {"any_foreign": lambda ts: False},
    "no picture": {"picture_ambient": lambda: None},
    "one picture": {"picture_ambient": lambda picture=CORE.picture_ambient(): picture},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_core_that_reads_wrongly_is_found_out(wrong: dict[str, Any]) -> None:
    assert native_core.disagreement(Wrong(**wrong))


def test_the_core_in_use_reads_what_python_reads() -> None:
    assert native_core.disagreement(CORE) == "" and native_core.CORE is CORE


def test_what_python_reads_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    read = native_core.tensor_facts
    for name, other in {"requires_grad": lambda v: not v, "dispatch_keys": lambda v: v ^ 2, "sizes": lambda v: (*v, 1), "dtype": lambda v: torch.int8}.items():
        monkeypatch.setattr(native_core, "tensor_facts", lambda t: (facts := read(t))._replace(**{name: other(getattr(facts, name))}))
        assert "a guard on" in native_core.disagreement(CORE)


def test_the_test_changes_nothing() -> None:
    def state() -> tuple:
        return torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.get_default_dtype(), torch.get_rng_state().sum(), torch.is_inference_mode_enabled()

    before = state()
    assert native_core.disagreement(CORE) == "" and state() == before
    with torch.inference_mode(), torch.autocast("cpu"), torch.device("meta"):
        assert native_core.disagreement(CORE) == ""
    default = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        assert native_core.disagreement(CORE) == ""
    finally:
        torch.set_default_dtype(default)


PROGRAM = """
import torch
import fineline._native as core
core.layout_of = lambda t: NotImplemented
import fineline
from fineline.fx.layout import layout_of
from fineline.fx.overlap_check import any_foreign, any_foreign_in_python
from fineline.guards.ambient_table import picture_ambient
from fineline.region import guard_dispatch
model = torch.nn.Linear(3, 3)
fast = fineline.compile(lambda x: model(x).relu(), backend="eager")
for n in (2, 2, 4, 2):
    x = torch.ones(n, 3)
    assert torch.equal(fast(x), model(x).relu())
assert fineline.report(fast).graphs
assert type(guard_dispatch.make_dispatcher(print)) is guard_dispatch.ReferenceDispatcher
assert picture_ambient() is None and any_foreign is any_foreign_in_python and type(layout_of(x)).__module__ == "fineline.fx.layout"
"""


def test_the_python_evaluator_takes_its_place() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("FL903") == 1 and "reads this PyTorch wrongly" in done.stderr


def test_the_engine_uses_the_tested_core() -> None:
    assert guard_dispatch.CORE is CORE
