"""Checks of an object's type that run no user code."""

from __future__ import annotations

import sys
from types import UnionType
from typing import TYPE_CHECKING

import torch


def is_a_in_python(obj: object, kinds: type | UnionType | tuple[type, ...]) -> bool:
    """Returns the result of ``isinstance()``, but never reads ``obj.__class__``, which may run user code."""
    return issubclass(type(obj), kinds)


if TYPE_CHECKING:
    from builtins import isinstance as is_a
else:
    try:
        from fineline._native import is_a
    except ImportError:
        is_a = is_a_in_python


# Read a class, whatever its metaclass defines.
_FLAGS_OF, _MODULE_OF = [type.__dict__[name].__get__ for name in ("__flags__", "__module__")]
# Flags of classes: created at run time, and without attributes that can be assigned.
_HEAP_TYPE, _IMMUTABLE = 1 << 9, 1 << 8
# The modules of the standard library whose C types have been created at run time since before 3.12. Tables of types let C handle them where it may.
_BEFORE_3_12 = (
    "_blake2", "_bz2", "_csv", "_hashlib", "_lzma", "_queue", "_sha512", "_sre", "_ssl", "_struct", "_thread", "array", "functools", "mmap",
    "operator", "re", "sqlite3", "ssl", "unicodedata",
)  # fmt: skip
# Those whose C types later versions create at run time, or may.
_SINCE = sys.stdlib_module_names.difference(_BEFORE_3_12)


def is_users_class(cls: type) -> bool:
    """Returns whether a class is, or has to be treated like, one that is defined in Python: it may run Python code.

    C's own types are not, although each version of CPython creates more of them at run time, as a class statement does: C makes these immutable.
    """
    kind = _FLAGS_OF(cls) & (_HEAP_TYPE | _IMMUTABLE)
    if kind <= _HEAP_TYPE:
        return bool(kind == _HEAP_TYPE)
    # Not a text, if the type describes an attribute of its instances of that name.
    module = _MODULE_OF(cls)
    return type(module) is not str or module.partition(".")[0] not in _SINCE


def taken_as_it_is(t: type[torch.Tensor]) -> bool:
    """Returns whether operators treat a tensor as a plain one because its class disables both hooks, as ``nn.Parameter`` does."""
    return t.__torch_function__ is torch._C._disabled_torch_function_impl and t.__torch_dispatch__ is torch._C._disabled_torch_dispatch_impl


def is_wrapper_class(t: type[torch.Tensor]) -> bool:
    """Returns whether tensors of the class ``t`` consist of other tensors: it computes operators itself, and says how to take a tensor apart."""
    return (
        t.__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl
        and all([callable(getattr(t, name, None)) for name in ("__tensor_flatten__", "__tensor_unflatten__")])
    )


__all__ = ["is_a", "is_users_class", "is_wrapper_class", "taken_as_it_is"]
