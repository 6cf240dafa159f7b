"""The shape of the source: imports point down only, nothing imports itself round, and the rival is imported nowhere."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "fineline"
# From the top: a file may import from its own layer and from those below.
LAYERS = (
    "__main__ cli __init__ install porting export api region program interp builtins tensor_ops objects tracing symbolic frames cpython "
    "policy graph guards backends report errors refusals apart stacks bytecode raw kinds tables _native"
).split()
FILES = sorted(SOURCE.rglob("*.py"))
# Lines a file may have. A subject, not a length, decides where a file is cut: this bound only catches a file that has grown several.
LONGEST = 900


def name(path: Path) -> str:
    return ".".join(["fineline", *path.relative_to(SOURCE).with_suffix("").parts])


def imported(path: Path) -> set[str]:
    """The modules that a file imports when it is imported: names, of modules where they are files."""
    out = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            out |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                out.add(full if full in MODULES else str(node.module))
    return out


MODULES = {name(path) for path in FILES} | {"fineline._native"}


def layer(module: str) -> int:
    return LAYERS.index(module.split(".")[1])


@pytest.mark.parametrize("path", FILES, ids=name)
def test_imports_point_down(path: Path) -> None:
    for module in imported(path):
        assert not module.startswith("torch._dynamo"), f"{name(path)} imports {module}"
        if module in MODULES and path.name != "__init__.py":
            assert layer(module) >= layer(name(path)), f"{name(path)} imports {module}, which lies above it"


def test_no_cycle() -> None:
    graph = {name(path): imported(path) & MODULES for path in FILES if path.name != "__init__.py"}
    TopologicalSorter(graph).prepare()  # raises CycleError


@pytest.mark.parametrize("path", FILES, ids=name)
def test_shape_of_a_file(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    assert text.count("\n") <= LONGEST
    if text:
        assert ast.get_docstring(tree), "no sentence at its head"
    for function in ast.walk(tree):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for node in ast.walk(function):
                assert not isinstance(node, (ast.Import, ast.ImportFrom, ast.Global)), f"{path}:{node.lineno}: {ast.unparse(node)}"


def test_python_versions_in_one_folder() -> None:
    assert {path.parent.name for path in FILES if "version_info" in path.read_text()} <= {"bytecode"}
