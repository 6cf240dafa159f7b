"""NumPy, if it is installed: the only module that imports it.

PyTorch runs without NumPy, and so does fineline. Without it, the classes that the engine compares with have no objects, and the tables
of NumPy's functions are empty: `tables.attributes` finds none of them here.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
else:

    class _Generic:
        def item(self) -> None:
            """Stands for the method of NumPy's scalars."""

    def _absent(*names: str) -> dict[str, type]:
        """Returns a class for each name, of which there are no objects."""
        return {name: type(name, (), {}) for name in names}

    try:
        import numpy as np
    except ImportError:
        np = SimpleNamespace(generic=_Generic, typecodes={"All": ""}, random=SimpleNamespace(**_absent("RandomState", "Generator")))
        np.__dict__.update(_absent("ndarray", "dtype", "ufunc", "integer"))

# The context variable that tells NumPy's C code what to do at a floating-point error: Python code only sets it (NumPy 2).
ERRORS_VARIABLE = getattr(getattr(getattr(np, "_core", None), "umath", None), "_extobj_contextvar", None)

__all__ = ["ERRORS_VARIABLE", "np"]
