"""Runs at the start of each Python process that a program under ``fineline run`` starts, and makes it compile on fineline.

``fineline run`` puts the folder of this file first in PYTHONPATH. A process that never loads PyTorch pays for one lookup at each
import. It may be any Python, with or without fineline: nothing here may fail, and its own ``sitecustomize`` runs too.
"""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Protocol

    class Spec(Protocol):
        """The spec of a module that is being loaded."""

        loader: object

    class Loaded(Protocol):
        """A module that is being loaded."""

        __spec__: Spec
        __loader__: object

    class ModuleLoader(Protocol):
        """The module's own loader."""

        def create_module(self, spec: Spec) -> object: ...
        def exec_module(self, module: Loaded) -> None: ...

    class Torch(Protocol):
        """The module torch."""

        compile: Callable


class Watch:
    """Finds torch and torch._dynamo with the other finders, and calls a function after they are loaded."""

    def __init__(self, then: dict[str, Callable]) -> None:
        self.then = then

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name not in self.then:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None and finder is not self else None
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = Loader(spec.loader, self.then[name])
                return spec
        return None


class Loader:
    """Loads a module with its own loader, and then calls a function with it."""

    def __init__(self, loader: ModuleLoader, then: Callable) -> None:
        self.loader = loader
        self.then = then

    def __getattr__(self, name: str) -> object:
        return getattr(self.loader, name)

    def create_module(self, spec: Spec) -> object:
        return self.loader.create_module(spec)

    def exec_module(self, module: Loaded) -> None:
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        self.then(module)


class Worker:
    """Installs fineline in this process at the first compilation after PyTorch is loaded."""

    def __init__(self) -> None:
        self.torch: Torch | None = None
        self.compile: Callable | None = None
        self.first: Callable | None = None
        self.joined = False

    def see_torch(self, torch: Torch) -> None:
        """Makes ``torch.compile`` install fineline at its first call: most processes that load PyTorch never call it."""
        theirs = self.compile = getattr(torch, "compile", None)
        if theirs is None:
            return  # PyTorch before 2.0

        @functools.wraps(theirs)
        def compile(*args: object, **kwargs: object) -> object:
            self.join()
            caller = sys._getframe(1).f_globals.get("__name__")
            install = sys.modules.get("fineline.install")
            if install is not None and install.asked_by_torch(caller):
                return theirs(*args, **kwargs)
            return torch.compile(*args, **kwargs)

        self.torch, self.first = torch, compile
        torch.compile = compile

    def join(self, module: object = None) -> None:
        """Installs fineline, with the policy of the run."""
        if self.joined:
            return
        self.joined = True
        if self.torch is not None and self.compile is not None and self.torch.compile is self.first:
            self.torch.compile = self.compile
        try:
            importlib.import_module("fineline.cli.workers").join()
        except Exception:
            text = traceback.format_exc(limit=0).strip()
            sys.stderr.write(f"fineline: process {os.getpid()} stays on PyTorch's own compiler: {text}\n")


def run_next() -> None:
    """Runs the ``sitecustomize`` that this one hides."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("FINELINE_RUN"):
    WORKER = Worker()
    sys.meta_path.insert(0, Watch({"torch": WORKER.see_torch, "torch._dynamo": WORKER.join}))
run_next()
