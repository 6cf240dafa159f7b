"""Checks of an object's type that run no user code."""

from __future__ import annotations

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
# The modules whose C types were created at run time in 3.11 already. Tables of types let C handle them where it may.
_OF_3_11 = frozenset(
    (
        "_blake2", "_bz2", "_csv", "_hashlib", "_lzma", "_queue", "_sha512", "_sre", "_ssl", "_struct", "_thread", "array", "functools", "mmap",
        "operator", "re", "sqlite3", "ssl", "unicodedata",
    )
)  # fmt: skip


def is_users_class(cls: type) -> bool:
    """Returns whether a class is, or has to be treated like, one that is defined in Python: it may run Python code.

    C types are not, although each version of CPython creates more of them at run time, as a class statement does: C makes these immutable.
    """
    kind = _FLAGS_OF(cls) & (_HEAP_TYPE | _IMMUTABLE)
    return bool(kind == _HEAP_TYPE or (kind and kind != _IMMUTABLE and _MODULE_OF(cls) in _OF_3_11))


def taken_as_it_is(t: type[torch.Tensor]) -> bool:
    """Returns whether operators treat a tensor as a plain one because its class disables both hooks, as ``nn.Parameter`` does."""
    return t.__torch_function__ is torch._C._disabled_torch_function_impl and t.__torch_dispatch__ is torch._C._disabled_torch_dispatch_impl


__all__ = ["is_a", "is_users_class", "taken_as_it_is"]
