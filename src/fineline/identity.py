"""Tables whose keys are objects by identity: no ``__hash__`` or ``__eq__`` of a key runs.

Keys are passed as objects. The tables differ in what keeps a key alive:

- `IdentityMap` and `IdentitySet` own their keys. Use them where an entry must stay about the same object.
- `AddressMap` and `AddressSet` borrow their keys: they store addresses. Use them for objects that the table must not keep
  alive. The definition of each such table says why that is safe: what keeps the keys alive, or why a reused address is harmless.

All keep the order of insertion. Methods that list contents return lists, because the table may change during a loop. The
native core implements them; `identity_in_python.py` does so for a build without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch  # noqa: F401 - loads the libraries that the native core is linked to

if TYPE_CHECKING:
    from fineline.identity_in_python import AddressMap, AddressSet, IdentityMap, IdentitySet
else:
    try:
        from fineline._native import AddressMap, AddressSet, IdentityMap, IdentitySet
    except ImportError:
        from fineline.identity_in_python import AddressMap, AddressSet, IdentityMap, IdentitySet

__all__ = ["AddressMap", "AddressSet", "IdentityMap", "IdentitySet"]
