"""NumPy's functions, operators and methods that graphs can contain, with their counterparts in ``torch._numpy``.

Each has the kinds of dtypes (``b``: bool, ``i``, ``u``: ints, ``f``: floats, ``c``: complex) for which it gives what NumPy gives:
`tests/tensor_ops/test_array_functions.py` compares all of them with NumPy.
"""

from __future__ import annotations

import functools
import importlib
import operator
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from fineline.identity import IdentityMap
from fineline.import_thread import apart
from fineline.numpy_support import np
from fineline.tables import attributes


class ArrayFunction(NamedTuple):
    """A function with a counterpart. ``path``: the counterpart, in ``torch._numpy``; ``kinds``: of the dtypes of its operands."""

    name: str
    path: str
    kinds: str

    def counterpart(self) -> Any:
        found = torch_numpy()
        for name in self.path.split("."):
            found = getattr(found, name)
        return found


@functools.cache
def torch_numpy(module: str = "") -> Any:
    """Returns PyTorch's own implementation of NumPy, or a module of it, which is imported at the first use: that takes 0.1 s."""
    return apart(functools.partial(importlib.import_module, f"torch._numpy{module}"))


# By kinds of dtypes. Not here is what answers with Python's numbers (allclose), has results whose number or sizes depend on data (nonzero),
# raises errors that depend on data (inv), gives an array that may not be written (diagonal), or has nan in other places where an item is
# infinite (fft, and convolve of floats). PyTorch adds complex numbers as ``a + 1 * b``, which is nan where b is infinite.
_UFUNCS: Mapping[str, str] = MappingProxyType(
    {
        "biufc": "multiply equal not_equal logical_and logical_or logical_xor logical_not conjugate",
        "iufc": "negative positive square",
        "biuf": "add less less_equal greater greater_equal maximum minimum absolute isnan isinf isfinite",
        "iu": "sign gcd lcm",
        "if": "logaddexp logaddexp2",
        "biu": "bitwise_and bitwise_or bitwise_xor invert left_shift right_shift",
        "f": "power reciprocal remainder fmod floor_divide",
        "iuf": "subtract divide sqrt exp exp2 expm1 log log2 log10 log1p sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh "
        "floor ceil trunc rint signbit deg2rad rad2deg degrees radians fmax fmin arctan2 hypot copysign fabs",
    }
)
_FUNCTIONS: Mapping[str, str] = MappingProxyType(
    {
        "biufc": "where concatenate stack vstack hstack dstack column_stack split array_split hsplit vsplit dsplit reshape ravel transpose "
        "swapaxes moveaxis squeeze expand_dims atleast_1d atleast_2d atleast_3d roll tile repeat take tril triu zeros_like ones_like full_like "
        "copy diag trace array asarray asanyarray ascontiguousarray diagflat take_along_axis append resize meshgrid "
        "real count_nonzero average fft.fftshift fft.ifftshift",
        "biuf": "sum any all max min amax amin argmax argmin sort argsort clip mean prod",
        "iuf": "std var cumsum cumprod dot matmul inner outer vdot tensordot einsum kron round around diff nan_to_num "
        "linalg.norm linalg.multi_dot cross isclose sinc ptp percentile quantile gradient",
        "iu": "convolve correlate",
        "fc": "linalg.matrix_power",
    }
)
_METHODS: Mapping[str, str] = MappingProxyType(
    {
        "biufc": "reshape ravel transpose swapaxes squeeze repeat take astype flatten copy trace conj conjugate",
        "biuf": "sum any all max min argmax argmin argsort clip mean prod",
        "iuf": "std var cumsum cumprod dot round",
    }
)
# What has another name in ``torch._numpy``.
_SPELLED = MappingProxyType({"bool": "bool_", "asanyarray": "asarray"})
# The operators, and the ufuncs that they call.
INFIX: IdentityMap[Any] = IdentityMap(
    (fn, ufunc)
    for fn, name in (
        (operator.add, "add"), (operator.sub, "subtract"), (operator.mul, "multiply"), (operator.truediv, "divide"), (operator.pow, "power"),
        (operator.matmul, "matmul"), (operator.and_, "bitwise_and"), (operator.or_, "bitwise_or"), (operator.xor, "bitwise_xor"),
        (operator.eq, "equal"), (operator.ne, "not_equal"), (operator.lt, "less"), (operator.le, "less_equal"), (operator.gt, "greater"),
        (operator.ge, "greater_equal"), (operator.neg, "negative"), (operator.pos, "positive"), (operator.abs, "absolute"),
        (operator.invert, "invert"), (operator.floordiv, "floor_divide"), (operator.mod, "remainder"), (operator.lshift, "left_shift"),
        (operator.rshift, "right_shift"),
    )
    for ufunc in attributes(np, name)
)  # fmt: skip
# Those that PyTorch computes with the same operator of Python, which takes Python's numbers too.
_BY_OPERATOR = ("add", "subtract", "multiply", "divide", "power", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal")  # fmt: skip


def _functions() -> list[tuple[Any, ArrayFunction]]:
    rows: list[tuple[Any, ArrayFunction]] = []
    for kinds, names in (*_UFUNCS.items(), *_FUNCTIONS.items()):
        for path in names.split():
            module, _, name = path.rpartition(".")
            owner = getattr(np, module, None) if module else np
            rows += [(fn, ArrayFunction(f"numpy.{path}", _SPELLED.get(path, path), kinds)) for fn in attributes(owner, name)]
    for kinds, names in _METHODS.items():
        rows += [(fn, ArrayFunction(f"numpy.ndarray.{fn.__name__}", f"ndarray.{fn.__name__}", kinds)) for fn in attributes(np.ndarray, names)]
    return rows


FUNCTIONS: IdentityMap[ArrayFunction] = IdentityMap(_functions())
# By ufunc: the operator of Python that computes it on tensors.
OPERATORS: IdentityMap[Any] = IdentityMap((ufunc, fn) for fn, ufunc in INFIX.items() if ufunc.__name__ in _BY_OPERATOR)
IN_PLACE: IdentityMap[Any] = IdentityMap(
    (getattr(operator, f"i{fn.__name__.strip('_')}"), fn) for fn in INFIX if hasattr(operator, f"i{fn.__name__.strip('_')}")
)


# Methods that take a dtype as their first argument.
TAKES_DTYPE = frozenset({"numpy.ndarray.astype"})


def counterpart_of_ufunc(ufunc: Any) -> Any:
    """Returns what computes a ufunc on tensors of the dtypes of its loop."""
    name = ufunc.__name__
    impl = torch_numpy("._unary_ufuncs_impl" if ufunc.nin == 1 else "._binary_ufuncs_impl")
    return getattr(impl, name)


def torch_dtype(numpy_dtype: Any) -> Any:
    """Returns the dtype of ``torch._numpy`` for one of NumPy's, or for a scalar class."""
    return getattr(torch_numpy(), _SPELLED.get(name := np.dtype(numpy_dtype).name, name))

