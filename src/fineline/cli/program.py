"""Runs a script or module as plain Python does: arguments, path, ``__main__``, exit code and tracebacks."""

from __future__ import annotations

import builtins
import importlib.machinery
import importlib.util
import io
import os
import sys
import types
from pathlib import Path

from click import ClickException, UsageError


class Program:
    """``python file args`` or, as a module, ``python -m name args``. The constructor sets up the path: rules may name its modules."""

    def __init__(self, target: str, args: tuple[str, ...], module: bool) -> None:
        self.main = types.ModuleType("__main__")
        self.main.__dict__.update(__builtins__=builtins, __annotations__={})
        first = self._find_module(target) if module else self._find_script(target)
        if not sys.flags.safe_path:
            sys.path[0] = first
        self.code = self._code_of_module(target) if module else None
        sys.argv = [str(self.main.__file__) if module else target, *args]

    def _find_script(self, target: str) -> str:
        path = Path(target)
        if not path.exists():
            raise UsageError(f"can't open file {target!r}: no such file")
        file = os.path.abspath(path / "__main__.py" if path.is_dir() else path)
        self.main.__dict__.update(__file__=file, __cached__=None)
        self.main.__loader__ = importlib.machinery.SourceFileLoader("__main__", file)
        return str(path.resolve() if path.is_dir() else path.resolve().parent)

    def _find_module(self, target: str) -> str:
        self.main.__file__ = target
        return os.getcwd()

    def _code_of_module(self, name: str) -> types.CodeType:
        try:
            spec = importlib.util.find_spec(name)
            if spec is not None and spec.submodule_search_locations is not None:
                spec = importlib.util.find_spec(f"{name}.__main__")
        except ImportError as e:
            raise ClickException(str(e)) from None
        loader = spec.loader if spec is not None else None
        code = loader.get_code(spec.name) if spec is not None and loader is not None and hasattr(loader, "get_code") else None
        if spec is None or code is None:
            raise ClickException(f"No module named {name}, or none that can be run")
        facts = {"__file__": spec.origin, "__spec__": spec, "__package__": spec.parent, "__loader__": loader, "__cached__": spec.cached}
        self.main.__dict__.update(facts)
        return code

    def run(self) -> None:
        """Runs the program; Python shows its exception with the program's frames only."""
        sys.modules["__main__"] = self.main
        try:
            if self.code is None:
                with io.open_code(str(self.main.__file__)) as file:
                    self.code = compile(file.read(), str(self.main.__file__), "exec", dont_inherit=True)
            exec(self.code, self.main.__dict__)
        except BaseException:
            usual = sys.excepthook

            def shown(kind: type[BaseException], e: BaseException, tb: types.TracebackType | None) -> None:
                while tb is not None and tb.tb_frame.f_code is not self.code:
                    tb = tb.tb_next
                usual(kind, e.with_traceback(tb), tb)

            sys.excepthook = shown
            raise
