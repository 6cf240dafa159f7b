"""Facts about operators' names: the names that PyTorch has for one operator, and the operators of Python's symbols."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "abs": "absolute",
        "acos": "arccos",
        "acosh": "arccosh",
        "adjoint": "mH",
        "asin": "arcsin",
        "asinh": "arcsinh",
        "atan": "arctan",
        "atan2": "arctan2",
        "atanh": "arctanh",
        "bitwise_and": "__and__",
        "bitwise_left_shift": "__lshift__",
        "bitwise_or": "__or__",
        "bitwise_right_shift": "__rshift__",
        "bitwise_xor": "__xor__",
        "cat": "concat concatenate",
        "clamp": "clip",
        "diagonal": "linalg_diagonal",
        "digamma": "special_digamma special_psi",
        "div": "divide true_divide",
        "erf": "special_erf",
        "erfc": "special_erfc",
        "erfinv": "special_erfinv",
        "exp2": "special_exp2",
        "expm1": "special_expm1",
        "ge": "greater_equal",
        "gt": "greater",
        "i0": "special_i0",
        "igamma": "special_gammainc",
        "igammac": "special_gammaincc",
        "le": "less_equal",
        "lgamma": "special_gammaln",
        "linalg_det": "det",
        "linalg_householder_product": "orgqr",
        "linalg_inv": "inverse",
        "linalg_matrix_power": "matrix_power",
        "linalg_pinv": "pinverse",
        "linalg_slogdet": "slogdet",
        "log1p": "special_log1p",
        "log_softmax": "special_log_softmax",
        "logit": "special_logit",
        "logsumexp": "special_logsumexp",
        "lt": "less",
        "matmul": "linalg_matmul",
        "matrix_exp": "linalg_matrix_exp",
        "movedim": "moveaxis",
        "mul": "multiply",
        "mvlgamma": "special_multigammaln",
        "ne": "not_equal",
        "neg": "negative",
        "outer": "ger",
        "polygamma": "special_polygamma",
        "round": "special_round",
        "sigmoid": "special_expit",
        "sinc": "special_sinc",
        "softmax": "special_softmax",
        "sub": "rsub subtract",
        "transpose": "swapaxes swapdims",
        "trapezoid": "trapz",
        "trunc": "fix",
        "vstack": "row_stack",
        "xlogy": "special_xlogy",
    }
)
"""By ATen operator: further ATen operators that PyTorch documents as the same one ("Alias for …"), and the reverse of an infix operator.

Each one's in-place variant is an alias of the other's in-place variant. `maximum` is not `max`, which reduces, too.
"""

C_NAMES: Mapping[str, str] = MappingProxyType(
    {"dsmm": "mm", "spmm": "mm", "hsmm": "hspmm", "saddmm": "sspaddmm", "nelement": "numel", "ndimension": "dim"}
)
"""By C function or method: the ATen operator that it calls, if the names differ."""

FUNCTIONAL: Mapping[str, str] = MappingProxyType(
    {
        "adaptive_max_pool1d_with_indices": "adaptive_max_pool1d",
        "adaptive_max_pool2d_with_indices": "adaptive_max_pool2d",
        "adaptive_max_pool3d_with_indices": "adaptive_max_pool3d",
        "affine_grid": "affine_grid_generator",
        "cross_entropy": "cross_entropy_loss",
        "fold": "col2im",
        "fractional_max_pool2d_with_indices": "fractional_max_pool2d",
        "fractional_max_pool3d_with_indices": "fractional_max_pool3d",
        "grid_sample": "grid_sampler",
        "nll_loss": "nll_loss_nd",
        "unfold": "im2col",
    }
)
"""By function of `torch.nn.functional`: the one ATen operator that it wraps, if the names differ (`aten::unfold` is `Tensor.unfold`)."""

INFIX: Mapping[str, str] = MappingProxyType(
    {name: name for name in ("add", "sub", "mul", "div", "pow", "matmul")}
    | {"truediv": "div", "floordiv": "floor_divide", "mod": "remainder"}
    | {"and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift"}
)
"""By infix operator: the ATen operator of `__name__` and of the reverse `__rname__`; `__iname__` is its in-place variant."""

UNARY: Mapping[str, str] = MappingProxyType(
    {"neg": "neg", "pos": "positive", "invert": "bitwise_not", "inv": "bitwise_not", "abs": "abs"}
    | {name: name for name in ("eq", "ne", "lt", "le", "gt", "ge")}
)
"""Prefix operators and comparisons, which have neither a reverse nor an in-place variant."""

SUBSCRIPT = "getitem setitem delitem contains"
"""Operators of containers: they do not correspond to one ATen operator, so their names are `torch.Tensor.__getitem__` …"""

ATTRIBUTES: Mapping[str, str] = MappingProxyType({"T": "numpy_T", "H": "matrix_H", "mT": "mT", "mH": "mH", "real": "real", "imag": "imag"})
"""By attribute of a tensor: the ATen operator that a read of it calls."""
