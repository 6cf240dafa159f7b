"""fineline draws the line between compiled and eager PyTorch code."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fineline import torch_support

if TYPE_CHECKING:
    from fineline import errors
    from fineline.api import compile, explain, report, reset, set_policy, wait
    from fineline.backends.registry import list_backends, register_backend
    from fineline.bisection.call import bisect
    from fineline.builtins.builtin_rules import builtin_rules
    from fineline.builtins.why import why
    from fineline.capture_files import load, save
    from fineline.export import export, exported_program
    from fineline.install import install, uninstall
    from fineline.policy.break_settings import error_on_graph_break
    from fineline.policy.declare import (
        allow_in_graph,
        assume_constant_result,
        disable,
        disallow_in_graph,
        forbid_in_graph,
        substitute_in_graph,
    )
    from fineline.policy.dim_marks import mark_dynamic, mark_static, mark_unbacked, maybe_mark_dynamic
    from fineline.policy.files import load_policy
    from fineline.policy.marks import graph_break, is_compiling, is_dynamo_compiling
    from fineline.policy.policy import Policy
    from fineline.policy.stance import set_stance
    from fineline.porting import nested_compile_region, optimize, optimize_assert, run
    from fineline.region.optimized_module import OptimizedModule

__version__ = "0.1.0"
__all__ = [
    "OptimizedModule",
    "Policy",
    "allow_in_graph",
    "assume_constant_result",
    "bisect",
    "builtin_rules",
    "compile",
    "disable",
    "disallow_in_graph",
    "error_on_graph_break",
    "errors",
    "explain",
    "export",
    "exported_program",
    "forbid_in_graph",
    "graph_break",
    "install",
    "is_compiling",
    "is_dynamo_compiling",
    "list_backends",
    "load",
    "load_policy",
    "mark_dynamic",
    "mark_static",
    "mark_unbacked",
    "maybe_mark_dynamic",
    "nested_compile_region",
    "optimize",
    "optimize_assert",
    "register_backend",
    "report",
    "reset",
    "run",
    "save",
    "set_policy",
    "set_stance",
    "substitute_in_graph",
    "uninstall",
    "wait",
    "why",
]

# The modules that define the public names. The imports above repeat this for type checkers, which do not run `_Unloaded`.
_HOMES: Mapping[str, str] = MappingProxyType(
    {
        "fineline.api": "compile explain report reset set_policy wait",
        "fineline.backends.registry": "list_backends register_backend",
        "fineline.bisection.call": "bisect",
        "fineline.builtins.builtin_rules": "builtin_rules",
        "fineline.builtins.why": "why",
        "fineline.capture_files": "load save",
        "fineline.export": "export exported_program",
        "fineline.install": "install uninstall",
        "fineline.policy.declare": "allow_in_graph assume_constant_result disable disallow_in_graph forbid_in_graph substitute_in_graph",
        "fineline.policy.dim_marks": "mark_dynamic mark_static mark_unbacked maybe_mark_dynamic",
        "fineline.policy.files": "load_policy",
        "fineline.policy.marks": "graph_break is_compiling is_dynamo_compiling",
        "fineline.policy.policy": "Policy",
        "fineline.policy.stance": "set_stance",
        "fineline.policy.break_settings": "error_on_graph_break",
        "fineline.porting": "nested_compile_region optimize optimize_assert run",
        "fineline.region.optimized_module": "OptimizedModule",
    }
)
_FUNCTIONS = frozenset(" ".join(_HOMES.values()).split())


class _Unloaded(types.ModuleType):
    """The package until a public name is read, so that the command line prints help and completes words without PyTorch.

    The first read of a public name sets all public names. Their modules load in 0.07 s, and test the native core. The first call of a compiled
    function loads the engine, in 0.9 s. After the first read the package is a plain module, because captured code reads names from it.
    """

    def __getattr__(self, name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=self)
        torch_support.check_installed()
        torch_support.warn_if_untested(torch_support.installed_version())
        modules = {home: importlib.import_module(home) for home in _HOMES}
        found = {public: getattr(modules[home], public) for home, names in _HOMES.items() for public in names.split()}
        self.__class__ = types.ModuleType  # type: ignore[assignment]
        vars(self).update(found)
        return vars(self)[name]

    def __setattr__(self, name: str, value: object) -> None:
        # The import of a submodule sets it here. To users, `export`, `install` and `report` are functions, not modules.
        if not (isinstance(value, types.ModuleType) and name in _FUNCTIONS):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *__all__})


torch_support.check_python()
torch_support.check_supported(torch_support.installed_version())
sys.modules[__name__].__class__ = _Unloaded
