"""fineline draws the line between compiled and eager PyTorch code."""

from fineline import errors
from fineline.api import compile, explain, reset
from fineline.backends.registry import list_backends, register_backend
from fineline.policy.marks import disable, graph_break, is_compiling, is_dynamo_compiling
from fineline.region.module import OptimizedModule

__version__ = "0.1.0"
__all__ = [
    "OptimizedModule",
    "compile",
    "disable",
    "errors",
    "explain",
    "graph_break",
    "is_compiling",
    "is_dynamo_compiling",
    "list_backends",
    "register_backend",
    "reset",
]
