"""Names of functions that are the same on another machine, on another Python, and however the program is started."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

from fineline.ledger.reasons import COMPREHENSION
from fineline.stacks import is_library, short_path

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


class Names:
    """Names of functions, as a ledger in ``folder`` lists them.

    A function of a package has its dotted name, ``mypkg.net.Net.forward``; one of any other file the file's path from the folder,
    ``scripts/train.py:step``. Both follow from the files alone: ``__main__`` and ``sys.path`` differ between a script and a test.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = os.path.realpath(folder)
        # A script may change it later.
        self._working = os.getcwd()
        self._modules: dict[str, tuple[str, bool]] = {}
        self._scopes: dict[str, dict[str, tuple[int, int]]] = {}

    def absolute(self, file: str) -> str:
        """Returns the path of a file; the names of code without a file, such as ``<string>``, stay."""
        return file if file.startswith("<") else os.path.join(self._working, file)

    def function(self, file: str, line: int, function: str, region: str) -> str:
        """Returns the name of the function that contains a place. ``function``: its qualified name, "" if it is not known."""
        path = self.absolute(file)
        name = COMPREHENSION.sub("", function)
        scopes = self._scopes_of(path)
        if name not in scopes:
            # The event has no function, or names the object that was called.
            inner = max(((first, scope) for scope, (first, last) in scopes.items() if first <= line <= last), default=(0, ""))[1]
            name = inner or name or region
        if path not in self._modules:
            self._modules[path] = self._module(path)
        module, package = self._modules[path]
        return f"{module}.{name}" if package else f"{module}:{name}"

    def _module(self, path: str) -> tuple[str, bool]:
        """Returns the name of a file, and whether it is a dotted name."""
        if not os.path.isfile(path):
            # Cells of a notebook have numbers.
            return re.sub(r"\d+", "N", os.path.basename(path)), False
        if is_library(path) and not os.path.exists(os.path.join(os.path.dirname(path), "__init__.py")):
            return short_path(path).removesuffix(".py").replace(os.sep, "."), True
        path = os.path.realpath(path)
        stem = os.path.basename(path).removesuffix(".py")
        parts = [] if stem == "__init__" else [stem]
        folder = os.path.dirname(path)
        if not os.path.exists(os.path.join(folder, "__init__.py")):
            return Path(os.path.relpath(path, self._folder)).as_posix(), False
        while os.path.exists(os.path.join(folder, "__init__.py")):
            folder, _, name = folder.rpartition(os.sep)
            parts.insert(0, name)
        return ".".join(parts), True

    def _scopes_of(self, path: str) -> dict[str, tuple[int, int]]:
        """Returns the first and last line of each function of a file, by its qualified name."""
        if path not in self._scopes:
            try:
                tree = ast.parse(Path(path).read_bytes())
            except (OSError, SyntaxError, ValueError, RecursionError):
                tree = ast.Module([], [])
            self._scopes[path] = dict(_functions(tree))
        return self._scopes[path]


def _functions(tree: ast.Module) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yields the qualified name of each function in a file, with its first and last line."""
    # Not recursive: expressions may be nested deeply.
    waiting: list[tuple[ast.AST, str]] = [(tree, "")]
    while waiting:
        node, prefix = waiting.pop()
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, _SCOPES):
                waiting.append((child, prefix))
                continue
            name = prefix + ("<lambda>" if isinstance(child, ast.Lambda) else child.name)
            if not isinstance(child, ast.ClassDef):
                decorators = [] if isinstance(child, ast.Lambda) else child.decorator_list
                yield name, (min([child.lineno, *[d.lineno for d in decorators]]), child.end_lineno or child.lineno)
            waiting.append((child, f"{name}." if isinstance(child, ast.ClassDef) else f"{name}.<locals>."))
