"""Arrays that share memory with tensors of the graph, and the objects that stand for them during a capture.

Such a capture runs on fakes, which have no memory. The stand-in is a real array that shows nothing: it has the type, dtype and sizes that the
array will have, and may not be written. C code that would read its items breaks the graph, as for any array that is not a constant. In each
call the program makes the array itself from the graph's tensor, with ``Tensor.numpy``. A scalar of NumPy that the graph computes has an array
without dimensions as its stand-in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fineline.cpython.reference_counts import reference_counts
from fineline.frames.graph_breaks import Restart
from fineline.identity import IdentitySet
from fineline.kinds import is_a
from fineline.numpy_support import np
from fineline.symbolic.floats import hint
from fineline.tensor_ops.arrays.constants import TensorOf, copied, is_plain
from fineline.tensor_ops.backing import computing
from fineline.tracing.interp import Interp
from fineline.tracing.plain_values import PLAIN_TENSORS

_NAMES = "bool uint8 int8 int16 int32 int64 float32 float64 complex64 complex128"
# The dtypes of arrays in graphs. NumPy and PyTorch round halves at other places, and PyTorch has few operators for wider unsigned ints.
DTYPES: Mapping[torch.dtype, str] = MappingProxyType({getattr(torch, name): name for name in _NAMES.split()})
TORCH_DTYPES: Mapping[str, torch.dtype] = MappingProxyType({name: dtype for dtype, name in DTYPES.items()})
# What NumPy does at a floating-point error, where it does nothing that the program would have to repeat.
_QUIET = frozenset({"warn", "ignore"})


class TracedArray(NamedTuple):
    """The tensor of an array. ``scalar``: its stand-in stands for a scalar of NumPy."""

    tensor: Tensor
    scalar: bool = False


class NotTraced(Exception):
    """Says why a call on arrays cannot be a part of the graph."""


def may_trace(interp: Interp) -> bool:
    """Returns whether arrays may be parts of the graph here; restarts a capture on real values, which cannot show them, on fakes."""
    trace, nested = interp.trace, interp.nested
    if not trace.active or interp.options.numpy != "capture" or interp.options.exported or not interp.lessons.graphs.traced_arrays:
        return False
    if nested.subgraph_rules is not None or nested.any() or nested.modes or nested.index_modes or not interp.backing.restartable:
        return False
    modes = torch._C._len_torch_function_stack() or torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None
    if modes or torch._C._functorch.get_dynamic_layer_stack_depth() or not _QUIET.issuperset(np.geterr().values()):
        return False
    return not interp.backing.real or interp.may_restart()


def begin(interp: Interp) -> None:
    """Restarts the capture on fakes if it runs on real values; guards that NumPy does not raise floating-point errors."""
    if interp.backing.real:
        raise Restart("FL453", "an array of NumPy becomes part of the graph", draws=True)
    src = interp.trace.pin(np, "numpy")
    interp.trace.guards.check(src, "predicate", (_is_quiet, "raises no floating-point errors"), "errors")


def _is_quiet(numpy: Any) -> bool:
    return _QUIET.issuperset(numpy.geterr().values())


def add(interp: Interp, tensor: Tensor, scalar: bool = False) -> Any:
    """Returns a new stand-in for the array, or for the scalar, that the program makes from ``tensor``."""
    fake = interp.backing.memory(interp, tensor)
    sizes = [hint(n) for n in fake.shape]
    if None in sizes:
        raise NotTraced("has a size that only the graph knows")
    array = np.broadcast_to(np.zeros((), DTYPES[fake.dtype]), sizes)
    interp.tensors.arrays.traced.add(array, TracedArray(tensor, scalar))
    interp.trace.made.add(array)
    return array


def tensor_of(interp: Interp, a: Any) -> Tensor:
    """Returns the tensor of the graph that shares the memory of an array; for a constant array, a copy of it."""
    arrays, trace = interp.tensors.arrays, interp.trace
    if (found := arrays.traced.get(a)) is not None:
        return found.tensor
    if arrays.constant(interp, a):
        with computing(interp):
            held = copied(a)
        trace.pin(held, "array")
        return held
    src = trace.sources.get(a)
    if src is None or not is_input(interp, a):
        raise NotTraced("gets an array that no graph can hold")
    shown = arrays.shown.setdefault(a, [])
    for held in shown:
        if held in trace.sources:
            return held
    with computing(interp):
        held = torch.from_numpy(a)
    trace.load(held, trace.guards.access(src, "member", TensorOf(len(shown)), held))
    shown.append(held)
    return held


def may_include(interp: Interp, a: Any) -> bool:
    """Returns whether an array is one that the code has made of constants, and that `include` can make a part of the graph."""
    arrays, owner = interp.tensors.arrays, owner_of(a)
    if not (a in interp.trace.made and arrays.constant(interp, a) and owner.base is None and owner.dtype.name in TORCH_DTYPES):
        return False
    return not arrays.lies_in_shared(owner) and all([_fits(part, owner) for part in _of_memory(interp, owner)])


def _of_memory(interp: Interp, owner: Any) -> list[Any]:
    """Returns ``owner``, and the arrays with its memory that code can still reach."""
    alive = interp.tensors.arrays.alive
    views = [*IdentitySet(a for a in alive if is_a(a, np.ndarray) and a is not owner and owner_of(a) is owner)]
    places = Counter(map(id, alive))
    # The list of views holds a reference, too.
    return [owner, *[a for a, count in zip(views, reference_counts(views), strict=True) if count > places[id(a)] + 1]]


def _fits(a: Any, owner: Any) -> bool:
    """Returns whether a tensor can lie in the memory of ``owner`` as an array does."""
    whole = all([n >= 0 and n % a.itemsize == 0 for n in (*a.strides, _offset(a, owner))])
    return type(a) is np.ndarray and a.dtype == owner.dtype and a.dtype.isnative and a.flags.writeable and whole


def _offset(a: Any, owner: Any) -> int:
    """Returns where the first item of an array lies in the memory of ``owner``, in bytes."""
    return a.__array_interface__["data"][0] - owner.__array_interface__["data"][0] if a.size else 0


def include(interp: Interp, a: Any) -> None:
    """Makes an array of constants, into which the graph writes, a part of the graph, with all arrays that have its memory."""
    arrays, owner = interp.tensors.arrays, owner_of(a)
    parts, memory = _of_memory(interp, owner), interp.tensors.operator(interp, Tensor.clone, [tensor_of(interp, owner)], None, True)
    for part in parts:
        layout = [list(part.shape), [n // part.itemsize for n in part.strides], _offset(part, owner) // part.itemsize]
        tensor = memory if part is owner else interp.tensors.operator(interp, torch.as_strided, [memory, *layout], None, True)
        # Nothing may read what the stand-in contains from here on, or write into it.
        part.flags.writeable = False
        arrays.traced.add(part, TracedArray(tensor))


def is_input(interp: Interp, a: Any) -> bool:
    """Returns whether an array from outside can be an input of the graph."""
    if a not in interp.trace.sources or a.dtype.name not in TORCH_DTYPES or not a.dtype.isnative or not is_plain(a):
        return False
    known = torch.is_inference_mode_enabled() is interp.trace.state.start.inference_mode
    return known and all([stride >= 0 and stride % a.itemsize == 0 for stride in a.strides])


def owner_of(a: Any) -> Any:
    """Returns the array that owns the memory of an array."""
    while is_a(a.base, np.ndarray):
        a = a.base
    return a


def _of_a_tensor(a: Any) -> bool:
    """Returns whether an array has the memory of a tensor."""
    return is_a(owner_of(a).base, Tensor)


def shows_memory(x: Any) -> bool:
    """Returns whether ``x.numpy()`` shows the memory of a tensor as it is."""
    if type(x) not in PLAIN_TENSORS or x.layout is not torch.strided or x.device.type != "cpu" or x.dtype not in DTYPES:
        return False
    return not (x.requires_grad or x.is_conj() or x.is_neg())


def is_traced(interp: Interp, v: Any) -> bool:
    """Returns whether ``v`` stands for an array of the graph, or contains such an object."""
    if type(v) is np.ndarray:
        return v in interp.tensors.arrays.traced
    return type(v) in (list, tuple) and any([is_traced(interp, x) for x in v])


def is_array(interp: Interp, v: Any) -> bool:
    """Returns whether ``v`` is an array of the graph, one from outside whose operators may begin a graph, or contains one."""
    if type(v) is np.ndarray:
        return v in interp.tensors.arrays.traced or (is_input(interp, v) and (interp.tensors.arrays.from_anywhere or _of_a_tensor(v)))
    return type(v) in (list, tuple) and any([is_array(interp, x) for x in v])


def type_of(interp: Interp, a: Any) -> type:
    """Returns the class of the object that an array, or a stand-in, is or stands for."""
    found = interp.tensors.arrays.traced.get(a)
    return a.dtype.type if found is not None and found.scalar else type(a)


def sizes_of(interp: Interp, tensor: Tensor) -> tuple[Any, ...]:
    """Returns the sizes of a tensor, which may be symbols."""
    found = interp.backing.run(interp, getattr, (tensor, "shape"), None)
    assert is_a(found, tuple)
    return tuple(found)
