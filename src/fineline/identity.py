"""Tables whose keys are objects by identity: no ``__hash__`` or ``__eq__`` of a key runs.

They take the objects themselves, and differ in who keeps a key alive:

- `IdentityMap` and `IdentitySet` own their keys. Use them where something has to stay what it is while it is listed.
- `AddressMap` and `AddressSet` borrow theirs: they hold addresses. Use them for what must live no longer because of the table. The place where
  one is defined says why that is right: who else keeps the keys alive, or why it is harmless if another object gets the address of one.

All keep the order of insertion. What lists their contents gives a list: the table may change meanwhile. The native core has them, and `identity_in_python.py`.
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
