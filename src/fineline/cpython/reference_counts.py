"""How many references there are to objects.

Code in Python can't count the references of its own variables: up to CPython 3.13 an argument is another reference, and from 3.14 on a variable
lends it, where the compiler finds that the variable outlives the call. `map` holds one reference to each object in all versions.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable


def reference_counts(objects: Iterable[object]) -> list[int]:
    """Returns the number of references to each of ``objects``, which include those of a list that holds them."""
    return [count - 1 for count in map(sys.getrefcount, objects)]
