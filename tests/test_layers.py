"""The shape of the source: imports point down only, nothing imports itself round, and the rival is imported nowhere."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "fineline"
# From the top: a file may import from its own layer and from those below.
LAYERS = (
    "__main__ cli pytest_plugin pytest_session testing __init__ install porting capture_files export bisection api ledger saving region distributed codegen "
    "interp builtins tensor_ops objects tracing symbolic frames cpython policy background fake fx torch_facts guards backends report toml_file errors "
    "torch_support refusals import_thread stacks bytecode exception_slots tables kinds numpy_support identity identity_in_python _native"
).split()
FILES = sorted(SOURCE.rglob("*.py"))
ROOMS = sorted({path.parent for path in FILES if path.parent != SOURCE})
# Files a package may have.
MOST_FILES = 24
# Lines a file may have. A subject, not a length, decides where a file is cut: this bound only catches a file that has grown several.
LONGEST = 900
# Lines a function may have.
LONGEST_FUNCTION = 70
# Attributes that a class may have. One with more holds several subjects, each of which is to be a class of its own.
MOST_ATTRIBUTES = 15
# Those that are one table, or what somebody else has laid out.
WIDE = {
    "Options": "the user's options, one a field",
    "AmbientFacts": "PyTorch's state in a thread, one fact a field, compared as a whole",
    "CallableSpec": "a row of the table of callables",
}


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


# What others install: PyTorch brings the one, and who has the plugin loaded has the other.
BROUGHT = {"sympy", "pytest"}


def test_what_is_imported_of_others_is_a_dependency() -> None:
    """Also what is imported late."""
    found = {module.partition(".")[0] for path in FILES for module in {*imported(path), *late(path).values()}}
    project = tomllib.loads((SOURCE.parent.parent / "pyproject.toml").read_text())["project"]
    named = {re.split(r"[^\w-]", text)[0] for text in [*project["dependencies"], *project["optional-dependencies"]["numpy"]]}
    assert found - set(sys.stdlib_module_names) - {"fineline"} - BROUGHT - named == set()


def late(path: Path) -> dict[str, str]:
    """The modules that a file imports when it needs them (`LateModule`), by the names that they have there."""
    found = {}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Assign) and "LateModule(" in ast.unparse(node.value):
            names = [name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)]
            texts = [part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
            found.update(zip(names, texts, strict=True))
    return found


def layer(module: str) -> int:
    return LAYERS.index(module.split(".")[1])


@pytest.mark.parametrize("path", FILES, ids=name)
def test_imports_point_down(path: Path) -> None:
    for module in imported(path):
        assert not module.startswith("torch._dynamo"), f"{name(path)} imports {module}"
        assert module.partition(".")[0] != "numpy" or name(path) == "fineline.numpy_support", f"{name(path)} imports NumPy, which may be absent"
        if module in MODULES and path.name != "__init__.py":
            assert layer(module) >= layer(name(path)), f"{name(path)} imports {module}, which lies above it"


@pytest.mark.parametrize("path", [path for path in FILES if late(path)], ids=name)
def test_late_modules_are_those_that_type_checkers_read(path: Path) -> None:
    """So the tests of the direction and of cycles see them too, and each use has a type."""
    blocks = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    read = {}
    for node in ast.walk(ast.Module(blocks, [])):
        if isinstance(node, ast.ImportFrom):
            read.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    assert late(path).items() <= read.items()


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


def attributes(cls: ast.ClassDef) -> set[str]:
    """The attributes that are annotated in a class's body, and those that its methods set on ``self``."""
    found = {node.target.id for node in cls.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    for method in cls.body:
        if isinstance(method, ast.FunctionDef) and method.args.args:
            own = method.args.args[0].arg
            for node in ast.walk(method):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name) and node.value.id == own:
                    found.add(node.attr)
    return found


def test_no_function_is_too_long() -> None:
    functions = [(path, node) for path in FILES for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lengths = {f"{name(path)}.{node.name}": (node.end_lineno or 0) - node.lineno + 1 for path, node in functions}
    assert {function: lines for function, lines in lengths.items() if lines > LONGEST_FUNCTION} == {}


def test_no_class_has_too_many_attributes() -> None:
    classes = [node for path in FILES for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)]
    wide = {cls.name: len(attributes(cls)) for cls in classes if len(attributes(cls)) > MOST_ATTRIBUTES}
    assert wide.keys() == WIDE.keys(), wide


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_shape_of_a_package(room: Path) -> None:
    assert len(list(room.glob("*.py"))) <= MOST_FILES
    if (room / "__init__.py").exists():
        told = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
        assert len(told.splitlines()) > 2, "it says what the package is for, what comes in, what goes out, and what it must not know"


def test_the_map_is_made_of_the_docstrings() -> None:
    written = dict(re.findall(r"^\| `([\w/]+)/` \| (.*) \|$", (SOURCE.parent.parent / "CONTRIBUTING.md").read_text(), re.M))
    rooms = [room for room in ROOMS if (room / "__init__.py").exists()]
    docs = {room: ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or "" for room in rooms}
    assert written == {room.relative_to(SOURCE).as_posix(): " ".join(doc.partition("\n\n")[0].split()) for room, doc in docs.items()}
    outermost = list(dict.fromkeys([room.partition("/")[0] for room in written]))
    assert outermost == [room for room in LAYERS if room in outermost]


def test_the_mode_of_a_capture_is_asked_of_its_backing() -> None:
    """No code asks whether there are fakes, or of which class a backing is: it calls a method, or reads a property."""
    asks = re.compile(r"\bfakes is (not )?None\b|(is_a|isinstance)\(.*\b(Live|Fake)Backing\b|\bis (not )?(Live|Fake)Backing\b")
    assert [name(path) for path in FILES if asks.search(path.read_text())] == []


def test_python_versions_in_one_folder() -> None:
    assert {path.parent.name for path in FILES if "version_info" in path.read_text()} <= {"bytecode"}
