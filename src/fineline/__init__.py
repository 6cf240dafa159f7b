"""fineline draws the line between compiled and eager PyTorch code."""

from fineline import errors
from fineline.api import compile, explain, reset, set_policy
from fineline.backends.registry import list_backends, register_backend
from fineline.capture.builtin_rules import builtin_rules
from fineline.capture.why import why
from fineline.export import export, exported_program
from fineline.install import install, uninstall
from fineline.policy.declare import (
    allow_in_graph,
    assume_constant_result,
    disable,
    disallow_in_graph,
    forbid_in_graph,
    substitute_in_graph,
)
from fineline.policy.dims import mark_dynamic, mark_static, mark_unbacked, maybe_mark_dynamic
from fineline.policy.files import load_policy
from fineline.policy.marks import graph_break, is_compiling, is_dynamo_compiling
from fineline.policy.policy import Policy
from fineline.policy.stance import set_stance
from fineline.policy.strict import error_on_graph_break
from fineline.porting import nested_compile_region, optimize, optimize_assert, run
from fineline.region.module import OptimizedModule

__version__ = "0.1.0"
__all__ = [
    "OptimizedModule",
    "Policy",
    "allow_in_graph",
    "assume_constant_result",
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
    "load_policy",
    "mark_dynamic",
    "mark_static",
    "mark_unbacked",
    "maybe_mark_dynamic",
    "nested_compile_region",
    "optimize",
    "optimize_assert",
    "register_backend",
    "reset",
    "run",
    "set_policy",
    "set_stance",
    "substitute_in_graph",
    "uninstall",
    "why",
]
