"""NumPy's functions that graphs can contain, each against NumPy: type, dtype, sizes, strides and memory are equal, values up to rounding."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fineline.fx.recorder import NotForGraph
from fineline.identity import AddressMap
from fineline.tensor_ops.arrays import calls, traced
from fineline.tensor_ops.arrays.constants import TracedArrays
from fineline.tensor_ops.arrays.functions import FUNCTIONS
from fineline.tensor_ops.arrays.traced import NotTraced, TracedArray

DTYPES = {"b": [bool], "i": [np.int64, np.int32, np.int16, np.int8], "u": [np.uint8], "f": [np.float32, np.float64], "c": [np.complex64, np.complex128]}
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan]


class Operators:
    """Runs each operator at once."""

    def __init__(self) -> None:
        self.arrays = SimpleNamespace(traced=TracedArrays(), constant=lambda interp, a: False)

    def operator(self, interp: Any, fn: Any, args: Any, kwargs: Any, used: bool = False) -> Any:
        return fn(*args, **(kwargs or {}))

    def attribute(self, interp: Any, t: Any, name: str, kind: str) -> Any:
        return getattr(t, name)


def interpreter() -> Any:
    """What the functions ask of an interpreter: operators run on real tensors."""
    trace = SimpleNamespace(made=set(), deferred=SimpleNamespace(texts=set(), numbers=()), fresh=lambda v: v, sources=AddressMap())
    trace.made = SimpleNamespace(add=lambda v: None)
    backing = SimpleNamespace(memory=lambda interp, t: t, run=lambda interp, fn, args, kwargs: fn(*args, **(kwargs or {})))
    return SimpleNamespace(trace=trace, backing=backing, tensors=Operators())


def trace(interp: Any, v: Any) -> Any:
    if type(v) in (list, tuple):
        return type(v)([trace(interp, x) for x in v])
    if type(v) is np.ndarray:
        interp.tensors.arrays.traced.add(v, TracedArray(torch.from_numpy(v)))
    return v


def value(interp: Any, v: Any) -> Any:
    if type(v) in (list, tuple):
        return type(v)([value(interp, x) for x in v])
    found = interp.tensors.arrays.traced.get(v)
    array = found.tensor.numpy()
    return array[()] if found.scalar else array


def arrays_in(args: Any) -> list[Any]:
    return [a for v in args for a in (arrays_in(v) if type(v) in (list, tuple) else [v] if type(v) is np.ndarray else [])]


def compare(expected: Any, got: Any, args: Any) -> None:
    if type(expected) in (list, tuple):
        assert type(got) is type(expected) and len(got) == len(expected)
        for e, g in zip(expected, got, strict=True):
            compare(e, g, args)
        return
    assert type(got) is type(expected) and got.dtype == expected.dtype and got.shape == expected.shape
    if type(expected) is np.ndarray:
        assert got.flags.writeable == expected.flags.writeable
        assert [np.may_share_memory(got, a) for a in args if a.size] == [np.may_share_memory(expected, a) for a in args if a.size]
        if expected.size > 1:
            pairs = zip(expected.shape, expected.strides, got.strides, strict=True)
            assert all([n == 1 or a == b for n, a, b in pairs])
    if expected.dtype.kind in "biu":
        np.testing.assert_array_equal(got, expected)
    else:
        double = expected.dtype in (np.float64, np.complex128)
        np.testing.assert_allclose(got, expected, rtol=1e-9 if double else 2e-5, atol=1e-12 if double else 1e-5)


@st.composite
def array(draw: Any, kinds: str, shape: tuple[int, ...] | None = None) -> Any:
    """An array of a dtype of one of these ``kinds``."""
    dtype = np.dtype(draw(st.sampled_from([d for kind in kinds for d in DTYPES[kind]])))
    if shape is None:
        shape = tuple(draw(st.lists(st.integers(0, 3), min_size=0, max_size=3)))
    n = int(np.prod(shape))
    if dtype.kind == "b":
        items: Any = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    elif dtype.kind in "iu":
        items = draw(st.lists(st.integers(0 if dtype.kind == "u" else -9, 9), min_size=n, max_size=n))
    else:
        items = draw(st.lists(st.sampled_from(SPECIAL) | st.floats(-9, 9, width=16), min_size=n, max_size=n))
    whole = np.array(items, dtype=dtype).reshape(shape)
    layout = draw(st.sampled_from(["C", "F", "strided"]))
    if layout == "F":
        return np.asfortranarray(whole)
    if layout == "strided" and whole.ndim and n:
        wide = np.zeros((*shape[:-1], shape[-1] * 2), dtype)
        wide[..., ::2] = whole
        return wide[..., ::2]
    return whole


NUMBERS = {"b": [True], "i": [2, -3], "u": [2, 3], "f": [2, 0.1, -1.3, np.float64(0.7)], "c": [2, 0.1, 1.1j]}
AXES: list[dict[str, Any]] = [{}, {"axis": 0}, {"axis": -1}, {"axis": None}, {"axis": 0, "keepdims": True}, {"keepdims": True}]
A = ["a"]
METHODS = ("", "ndarray.")
REDUCED = [(A, axis) for axis in AXES]
# By name: the arguments. ``a``, ``b``: arrays of equal sizes; ``m``: a mask; ``s``: a matrix; ``v``, ``w``: vectors;
# ``q``: a square matrix; ``n``: a number.
ARGUMENTS: dict[str, list[tuple[Any, dict[str, Any]]]] = {
    **dict.fromkeys(["where"], [(("m", "a", "b"), {}), (("m", "a", "n"), {}), (("m", "n", "a"), {})]),
    **dict.fromkeys(["concatenate"], [((["a", "b"],), {}), ((["a", "b"],), {"axis": -1}), ((("a", "b"), 0), {})]),
    **dict.fromkeys(["stack"], [((["a", "b"],), {}), ((["a", "b"],), {"axis": -1})]),
    **dict.fromkeys(["vstack", "hstack", "dstack", "column_stack"], [((["a", "b"],), {})]),
    **dict.fromkeys(["split", "array_split", "hsplit", "vsplit", "dsplit"], [(("a", 2), {}), (("a", [1, 2]), {}), (("s", 3), {})]),
    "reshape": [(("a", -1), {}), (("s", (4, 3)), {}), (("s", (2, -1)), {}), (("s", (2, -1)), {"order": "F"})],
    "ndarray.reshape": [(("a", -1), {}), (("s", 4, 3), {}), (("s", (2, -1)), {}), (("s", (2, -1)), {"order": "F"}), (("s", 12), {"order": "A"})],
    "transpose": [(A, {}), (("s", (1, 0)), {})],
    "ndarray.transpose": [(A, {}), (("s", 1, 0), {})],
    **dict.fromkeys(["swapaxes", "ndarray.swapaxes", "moveaxis"], [(("s", 0, 1), {}), (("a", 0, -1), {})]),
    **dict.fromkeys(["squeeze", "ndarray.squeeze"], [(A, {}), (("a",), {"axis": 0})]),
    "expand_dims": [(("a", 0), {}), (("a", -1), {}), (("a", (0, 1)), {})],
    "roll": [(("a", 1), {}), (("a", -2), {"axis": 0})],
    "tile": [(("a", 2), {}), (("a", (2, 3)), {})],
    **dict.fromkeys(["repeat", "ndarray.repeat"], [(("a", 2), {}), (("a", 2), {"axis": 0})]),
    **dict.fromkeys(["take", "ndarray.take"], [(("s", "k"), {}), (("s", "k"), {"axis": 0}), (("s", 1), {"axis": 1})]),
    **dict.fromkeys(["tril", "triu", "trace", "ndarray.trace"], [(("s",), {}), (("s", 1), {}), (A, {})]),
    **dict.fromkeys(["array", "asarray", "asanyarray"], [(A, {}), (A, {"dtype": np.float64}), ((["v", "v"],), {})]),
    "ndarray.copy": [(A, {}), (A, {"order": "F"}), (A, {"order": "K"})],
    "copy": [(A, {}), (A, {"order": "C"})],
    **dict.fromkeys(["ravel", "ndarray.ravel"], [(A, {}), (("s", "F"), {}), (("s",), {"order": "K"}), (("s",), {"order": "A"})]),
    "diag": [(("v",), {}), (("v", 1), {}), (("s",), {})],
    "full_like": [(("a", "n"), {})],
    **dict.fromkeys(["zeros_like", "ones_like"], [(A, {}), (A, {"dtype": np.float64})]),
    **dict.fromkeys([f"{of}{name}" for of in METHODS for name in ("sum", "prod", "mean")], [*REDUCED, (A, {"dtype": np.float64}), (A, {"axis": (0, 1)})]),
    **dict.fromkeys([f"{of}{name}" for of in METHODS for name in ("std", "var")], [*REDUCED, (A, {"ddof": 1})]),
    **dict.fromkeys(["amax", "amin", *[f"{of}{name}" for of in METHODS for name in ("any", "all", "max", "min")]], REDUCED),
    **dict.fromkeys(["argmax", "argmin", "ndarray.argmax", "ndarray.argmin"], [(A, {}), (A, {"axis": 0}), (A, {"axis": -1})]),
    **dict.fromkeys(["cumsum", "cumprod", "ndarray.cumsum", "ndarray.cumprod"], [(A, {}), (A, {"axis": 0})]),
    "sort": [(A, {}), (A, {"axis": 0})],
    **dict.fromkeys(["clip", "ndarray.clip"], [(("a", 0, 2), {}), (("a", 0.1, 0.7), {}), (("a", None, 1), {}), (("a", 1, None), {}), (("a", "b", None), {})]),
    **dict.fromkeys(["dot", "ndarray.dot"], [(("v", "v"), {}), (("s", "w"), {}), (("s", "t"), {})]),
    "matmul": [(("v", "v"), {}), (("s", "w"), {}), (("s", "t"), {}), (("w", "t"), {})],
    **dict.fromkeys(["inner", "vdot"], [(("v", "v"), {}), (("s", "s"), {})]),
    **dict.fromkeys(["outer", "kron"], [(("v", "v"), {}), (("v", "w"), {}), (("s", "s"), {})]),
    "tensordot": [(("s", "t"), {"axes": 1}), (("s", "s"), {}), (("s", "s"), {"axes": ([0], [0])})],
    "einsum": [(("ij,jk->ik", "s", "t"), {}), (("ij->ji", "s"), {}), (("ij,ij->", "s", "s"), {}), (("ij->i", "s"), {})],
    "cross": [(("v", "v"), {})],
    **dict.fromkeys(["round", "around", "ndarray.round"], [(A, {}), (("a", 1), {}), (A, {"decimals": 2})]),
    "diff": [(A, {}), (("a", 2), {}), (("a",), {"axis": 0}), (("v",), {"prepend": "w"}), (("v",), {"append": 0})],
    "linalg.norm": [(A, {}), (("s",), {"axis": 0}), (("v", 1), {}), (("s", "fro"), {}), (("s",), {"axis": -1, "keepdims": True}), (("v", np.inf), {})],
    "isclose": [(("a", "b"), {}), (("a", "b"), {"equal_nan": True, "atol": 2}), (("a", "n"), {"rtol": 0.5})],
    "nan_to_num": [(A, {}), (A, {"nan": 5, "posinf": 1}), (A, {"copy": False})],
    "ndarray.astype": [(("a", t), {}) for t in (np.float32, np.float64, "float32", bool, np.dtype("int64"), np.int32, np.int8, np.uint8)],
    "diagflat": [(("v",), {}), (("s",), {})],
    "take_along_axis": [(("v", "k", 0), {}), (("w", "k"), {"axis": 0}), (("w", "k"), {"axis": -1})],
    "append": [(("v", "w"), {}), (("s", "s", 0), {}), (("s", "s"), {"axis": 1})],
    "resize": [(("v", (2, 4)), {}), (("s", 5), {})],
    "meshgrid": [(("v", "w"), {}), (("v", "w"), {"indexing": "ij"})],
    **dict.fromkeys(["count_nonzero"], REDUCED),
    "average": [*REDUCED, (("w",), {"weights": "w"})],
    **dict.fromkeys(["fft.fftshift", "fft.ifftshift"], [(("s",), {}), (("w",), {}), (("s",), {"axes": 0})]),
    **dict.fromkeys(["argsort", "ndarray.argsort"], [(A, {}), (A, {"kind": "stable"}), (("s",), {"kind": "stable", "axis": 0})]),
    "linalg.multi_dot": [((["s", "t"],), {}), ((["v", "s", "t"],), {})],
    "linalg.matrix_power": [(("q", 2), {}), (("q", 3), {}), (("q", 0), {}), (("q", -1), {})],
    "ptp": [(A, {}), (("s",), {"axis": 0}), (("s",), {"axis": -1, "keepdims": True})],
    "percentile": [(("a", 50), {}), (("s", 30), {"axis": 0}), (("s", [10, 90]), {"axis": 1}), (("s", 25.0), {"method": "lower"}), (("a", 101), {})],
    "quantile": [(("a", 0.5), {}), (("s", 0.3), {"axis": 0}), (("s", [0.1, 0.9]), {"axis": 1}), (("s", 0.25), {"method": "nearest"}), (("s", "w"), {})],
    "gradient": [(("w",), {}), (("s",), {}), (("s",), {"axis": 0}), (("w", 0.5), {})],
    "convolve": [(("v", "w"), {}), (("v", "w"), {"mode": "same"}), (("v", "w", "valid"), {})],
    "correlate": [(("v", "w"), {}), (("v", "w"), {"mode": "same"}), (("v", "w", "full"), {})],
    "ndarray.flatten": [(A, {}), (("s", "F"), {}), (("s",), {"order": "A"})],
}  # fmt: skip


def arguments(path: str, nin: int) -> list[tuple[Any, dict[str, Any]]]:
    if path in ARGUMENTS:
        return ARGUMENTS[path]
    return [(A, {})] if nin == 1 else [(("a", "b"), {}), (("a", "n"), {}), (("n", "a"), {}), (("s", "w"), {}), (("a", "number"), {})]


ROWS = {row.name: (fn, row) for fn, row in FUNCTIONS.items()}


def test_the_page_names_all() -> None:
    text = (Path(__file__).parents[2] / "docs" / "data_dependent.md").read_text().partition("do the same:\n\n")[2].partition("\n\n")[0]
    assert re.findall(r"`([\w.]+)`", text) == sorted({name.partition(".")[2] for name in ROWS if not name.startswith("numpy.ndarray.")})


def test_other_functions_are_not_called(tmp_path: Path) -> None:
    interp, a = interpreter(), np.ones(2)
    trace(interp, a)
    with pytest.raises(NotTraced, match="not among the functions"):
        calls._compute(interp, np.savetxt, [str(tmp_path / "a"), a], {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ROWS)
def test_as_in_numpy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fn, row = ROWS[name]
    monkeypatch.setattr(traced, "begin", lambda interp: None)
    templates = arguments(row.path, fn.nin if isinstance(fn, np.ufunc) else 1)
    captured: set[int] = set()

    @settings(max_examples=20, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def compared(data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(templates) - 1))
        args, kwargs = templates[at]
        kinds = row.kinds
        a = data.draw(array(kinds))
        made = {
            "a": a, "b": None, "m": None, "k": np.array([0, 1, 1]), "n": data.draw(st.sampled_from(NUMBERS[a.dtype.kind])), "number": a.dtype.type(1),
        }  # fmt: skip

        def given_for(v: Any) -> Any:
            if type(v) in (list, tuple):
                return type(v)([given_for(x) for x in v])
            if v == "b":
                return data.draw(array(kinds, a.shape))
            if v == "m":
                return data.draw(array("b", a.shape))
            sizes = {"s": (3, 4), "t": (4, 2), "w": (4,), "v": (3,), "q": (3, 3)}.get(v) if type(v) is str else None
            if sizes is not None:
                return data.draw(array(a.dtype.kind, sizes))
            return made[v] if type(v) is str and v in made else v

        values, named = [given_for(v) for v in args], {k: given_for(v) for k, v in kwargs.items()}
        compare_call(fn, values, named, captured, at)

    compared()
    assert captured, "none of the calls became a part of a graph"


def compare_call(fn: Any, values: list[Any], named: dict[str, Any], captured: set[int], at: int) -> None:
    interp = interpreter()
    trace(interp, values)
    trace(interp, list(named.values()))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = value(interp, calls._compute(interp, fn, values, named))
    except (NotTraced, NotForGraph, TypeError, ValueError, RuntimeError, IndexError, NotImplementedError):
        return
    captured.add(at)
    with np.errstate(all="ignore"):
        expected = fn(*values, **named)
    compare(expected, got, arrays_in([*values, *named.values()]))
