"""The examples of the documents, run as they stand; and that the reference leaves nothing out."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import runpy
import sys
import types
from pathlib import Path

import click
import pytest
import torch

import fineline
from fineline.cli.commands import cli
from fineline.policy.policy import KEYS
from fineline.refusals import REFUSALS
from fineline.report.events import Event
from fineline.report.explain import Explanation
from fineline.report.logs import CATEGORIES
from tests import oracle
from tests.docs.tutorials import read

ROOT = Path(__file__).parent.parent.parent
# The pages of numbers and of signatures have no example; the programs of the page of errors, and that for two processes, have tests of their own.
APART = ("benchmarks.md", "api.md", "errors.md", "two_processes.md")
PAGES = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md") if p.name not in APART and p.parent.name != "spec")]


@pytest.mark.parametrize("page", PAGES)
def test_examples(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = read((ROOT / page).read_text()).session
    assert blocks, f"{page} has no example"
    name = "page_" + re.sub(r"\W", "_", page)
    module = types.ModuleType(name)
    # As a file of its own: rules go by file and by name.
    file = tmp_path / f"{name}.py"
    file.write_text("\n\n".join(blocks))
    module.__file__ = str(file)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, name, module)
    try:
        exec(compile(file.read_text(), str(file), "exec"), module.__dict__)
    finally:
        fineline.reset()


REFERENCE = (ROOT / "docs" / "reference.md").read_text()


@pytest.mark.parametrize("name", fineline.__all__)
def test_reference_uses_each_public_name(name: str) -> None:
    """In its tables, and in a line that runs."""
    assert re.search(rf"^\|.*`{name}`", REFERENCE, re.M)
    assert any(re.search(rf"\bfineline\.{name}\b", block) for block in re.findall(r"^```python\n(.*?)^```", REFERENCE, re.M | re.S))


def test_the_page_of_signatures_has_each_public_name() -> None:
    shown = re.findall(r"^\.\. auto\w+:: fineline\.([\w.]+)$", (ROOT / "docs" / "api.md").read_text(), re.M)
    assert {name for name in shown if "." not in name} == set(fineline.__all__)


# A public attribute has a docstring, or a comment that begins with this: with neither it is not on the page.
DOCUMENTED = re.compile(r"^ *#: .*\n +(?:self\.)?(\w+)", re.M)
# What users do not need says so in its docstring, and is left out.
HIDDEN = ":meta private:"


def documented(cls: type) -> dict[str, str | None]:
    """The public attributes of a class with their texts."""
    texts: dict[str, str | None] = {}
    for base in reversed(cls.__mro__[:-1]):
        own = {name: value for name, value in vars(base).items() if callable(value) or isinstance(value, (property, classmethod))}
        texts |= {name: value.__doc__ for name, value in own.items()}
        texts |= dict.fromkeys(DOCUMENTED.findall(inspect.getsource(base)), "a comment")
    return {name: text for name, text in texts.items() if not name.startswith("_")}


def test_the_page_of_signatures_has_each_attribute_of_an_explanation_and_no_internal_one() -> None:
    told = fineline.explain(torch.sin)(torch.ones(3))
    texts = documented(Explanation)
    assert {name for name in vars(told) if not name.startswith("_")} <= set(texts), "an attribute without a comment"
    assert [name for cls in (Explanation, Event, fineline.Policy) for name, text in documented(cls).items() if not text] == []
    assert {name for name, text in texts.items() if HIDDEN in str(text)} == {"for_page", "graphs_kept", "costs_known"}
    listed = set(re.findall(r"`\.(\w+)", REFERENCE[REFERENCE.index("An explanation has `.graphs`") :].partition("\n\n")[0]))
    assert listed <= {*texts, "cause"} - {"for_page", "graphs_kept", "costs_known"}


def test_the_page_of_signatures_has_the_errors_alone() -> None:
    module = fineline.errors
    shown = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__ and HIDDEN not in str(value.__doc__)]
    assert len(shown) > 10 and all(isinstance(value, type) and issubclass(value, module.FinelineError) for value in shown)


@pytest.mark.parametrize("key", [*KEYS, "reason"])
def test_reference_has_each_key_of_policy_files(key: str) -> None:
    """In the table of keys, and in the example of a file."""
    table, example = re.split(r"^import os, sys, tempfile$", REFERENCE.partition("## Policy files")[2], maxsplit=1, flags=re.M)
    assert f"| `{key}` |" in table
    assert re.search(rf"^(\[{key}\]|{key} =)", example, re.M)


def test_reference_has_each_id_of_wrong_policies() -> None:
    ids = {id for id in REFUSALS if "FL211" <= id <= "FL216"}
    assert ids == set(re.findall(r"FL21\d", REFERENCE))


def test_reference_has_each_variable_of_the_environment() -> None:
    """Of those that the sources read or set."""
    used = {
        match
        for file in sorted(Path(fineline.__file__).parent.rglob("*"))
        if file.suffix in (".py", ".cpp", ".h")
        for match in re.findall(r"""(?:environ(?:\.get\(|\[)|getenv\()\s*["'](\w+)""", file.read_text())
    }
    assert "FINELINE_LOGS" in used
    assert {name for name in used if f"| `{name}` |" not in REFERENCE} == set()
    assert [name for name in CATEGORIES if f"| `{name}` | `fineline.{name}` |" not in REFERENCE] == []


def test_reference_has_each_command_and_option() -> None:
    for name, command in cli.commands.items():
        [row] = re.findall(rf"^\| `fineline {name} .*$", REFERENCE, re.M)
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert set(parameter.opts) & set(re.findall(r"-[\w-]+", row)), parameter.opts


def test_the_picture_is_what_its_script_draws() -> None:
    script = ROOT / "docs" / "pictures" / "how_it_works.py"
    assert runpy.run_path(str(script))["picture"]() == script.with_suffix(".svg").read_text()


@pytest.mark.parametrize("page", ["internals.md", "tour.md"])
def test_pages_name_files_that_exist(page: str) -> None:
    named = re.findall(r"`((?:\w+/)+(?:\w+\.\w+)?)`", (ROOT / "docs" / page).read_text())
    assert len(named) > 10 and [path for path in named if not (ROOT / "src" / "fineline" / path).exists()] == []


def _defined(path: Path) -> set[str]:
    """Returns the names of the functions and methods of a source file."""
    text = path.read_text()
    if path.suffix == ".cpp":
        return set(re.findall(r"^[\w:*&<> ]+?[ *]((?:\w+::)?\w+)\([^;]*\{$", text, re.M))
    found = set()
    for node in ast.parse(text).body:
        found |= {node.name} if isinstance(node, ast.FunctionDef) else set()
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return found


def test_the_table_of_decisions_names_functions_that_exist() -> None:
    text = (ROOT / "docs" / "internals.md").read_text().partition("\n## Where is it decided")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (?!question)([^-].*) \| (.*) \| (\d+) \|$", text, re.M)
    assert len(rows) == 35
    for question, where, opened in rows:
        named = re.findall(r"`([\w/]+\.(?:py|cpp))` `([\w.:]+)`", where)
        assert named and question.endswith("?") and int(opened) >= 1, where
        assert [name for file, name in named if name not in _defined(ROOT / "src" / "fineline" / file)] == []


def test_the_tests_page_has_each_twin_flag_and_folder() -> None:
    text = (ROOT / "tests" / "README.md").read_text()
    flags = [field.name for field in dataclasses.fields(oracle.Program) if field.name not in ("name", "make", "steps")]
    folders = {path.parent.relative_to(ROOT / "tests").as_posix() for path in (ROOT / "tests").rglob("test_*.py")} - {"."}
    assert [word for word in (*oracle.TWINS, *flags, *(f"{folder}/" for folder in folders)) if f"`{word}`" not in text] == []
