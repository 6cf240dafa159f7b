"""The private names of PyTorch that fineline uses. Each may be another in the next release: they are what a release costs.

    python -m tests.test_private_names            writes tests/private_names.txt anew
    python -m tests.test_private_names --missing  prints the names that the PyTorch which is installed does not have

Found are: imports and dotted names that begin at a module of PyTorch (`torch._C._dispatch_keys`), private attributes that no class of fineline has (`._base`),
and, in C++, headers, qualified names and private fields. Not found are names in texts, which `fineline.tables.attributes` looks up: those that are gone drop out.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parent.parent / "src" / "fineline"
LISTED = Path(__file__).parent / "private_names.txt"
FILES = sorted(SOURCE.rglob("*.py"))
# Private attributes of Python's own classes and modules, and of NumPy's.
PYTHONS = {
    "_replace", "_fields", "_asdict", "_make", "_getframe", "_name_", "_value_", "_missing_", "_member_map_", "_mro_entries__", "_extobj_contextvar",
}  # fmt: skip
# There only while a graph is traced.
AT_TIMES = {"torch._guards._TLS.tracing_context"}
INCLUDE = re.compile(r"#include <((?:ATen|c10|torch|caffe2)/[\w/.]+)>")
QUALIFIED = re.compile(r"\b(?:at|c10|torch|caffe2)::[\w:]*\w|\bTHP\w+")
FIELD = re.compile(r"^EXPOSE\(\w+, (\w+)\)|(?:->|\.)(\w*[a-z]_)\b(?!\()", re.M)

DECLARED = re.compile(r"^ +[\w:<>,*& ]+[ *&>](\w+_)(?: = [^;]*|\{[^}]*\})?;", re.M)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def _own(trees: list[ast.Module]) -> set[str]:
    """Returns the private names that fineline's code defines."""
    found: set[str] = set()
    for node in [node for tree in trees for node in ast.walk(tree)]:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name) and node.value.id in ("self", "made", "call"):
            found.add(node.attr)
        elif isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__slots__" for t in node.targets):
            found |= {name.value for name in ast.walk(node.value) if isinstance(name, ast.Constant)}
    return found


def _names(tree: ast.Module, own: set[str]) -> Iterator[str]:
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "torch":
                    modules[alias.asname or "torch"] = alias.name if alias.asname else "torch"
                    yield from [alias.name] * any(map(_is_private, alias.name.split(".")))
                else:
                    modules[(alias.asname or alias.name).partition(".")[0]] = ""
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                ours = node.module.partition(".")[0] == "torch"
                full = f"{node.module}.{alias.name}" if ours else ""
                modules[alias.asname or alias.name] = full
                yield from [full] * any(map(_is_private, full.split(".")))
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            yield from _of_chain(node, modules, own)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr", "setattr", "delattr") and len(node.args) > 1:
            name = node.args[1]
            if isinstance(name, ast.Constant) and isinstance(name.value, str) and _is_private(name.value) and name.value not in own | PYTHONS:
                yield f".{name.value}"


def _of_chain(node: ast.AST, modules: dict[str, str], own: set[str]) -> Iterator[str]:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    root = modules.get(node.id) if isinstance(node, ast.Name) else None
    if root:
        full = ".".join([root, *parts])
        yield from [full] * any(map(_is_private, full.split(".")))
        return
    if root is None:
        yield from [f".{part}" for part in parts if _is_private(part) and part not in own | PYTHONS]


def found() -> list[str]:
    trees = [ast.parse(path.read_text()) for path in FILES]
    own = _own(trees)
    names = {name for tree in trees for name in _names(tree, own)}
    texts = [re.sub(r"//.*", "", path.read_text()) for path in [*SOURCE.glob("native/*.cpp"), *SOURCE.glob("native/*.h")]]
    declared = {name for text in texts for name in DECLARED.findall(text)}
    for text in texts:
        names |= {f"#include <{name}>" for name in INCLUDE.findall(text)} | {f"C++ {name}" for name in QUALIFIED.findall(text)}
        names |= {f"C++ field {a or b}" for a, b in FIELD.findall(text) if b not in declared}
    return sorted(names)


def missing() -> list[str]:
    """Returns the dotted names that the PyTorch which is installed does not have."""
    return [name for name in LISTED.read_text().splitlines() if name.startswith("torch.") and not _exists(name)]


def _exists(name: str) -> bool:
    parts = name.split(".")
    value: Any = None
    for i, part in enumerate(parts):
        try:
            # A package may have a function of the name of its module.
            value = importlib.import_module(".".join(parts[: i + 1]))
        except ImportError:
            if not hasattr(value, part):
                return False
            value = getattr(value, part)
    return True


def test_private_names_are_listed() -> None:
    listed, now = set(LISTED.read_text().splitlines()), set(found())
    assert listed == now, (
        f"fineline uses other private names of PyTorch than tests/private_names.txt lists: new {sorted(now - listed)}, gone {sorted(listed - now)}. "
        "Each new one may be another in the next release: is there a public way, or a row of src/fineline/torch_facts/releases.py? "
        "Then run `python -m tests.test_private_names` and commit the file."
    )


def test_this_release_has_them() -> None:
    assert set(missing()) <= AT_TIMES, "docs/new_torch.md says what to do about a private name that is gone"


if __name__ == "__main__":
    if "--missing" in sys.argv:
        print("\n".join(missing()))
    else:
        LISTED.write_text("\n".join(found()) + "\n")
