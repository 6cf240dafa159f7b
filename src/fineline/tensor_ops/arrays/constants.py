"""NumPy arrays of constants, and tensors of arrays: an array computed from constants is a constant, and one from outside an input of the graph.

A tensor made from a constant array is a copy of a tensor that the program holds.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from fineline.bytecode.asynchronous import let_pass
from fineline.guards.facts import storage_of
from fineline.guards.source import NumberedMember
from fineline.identity import AddressMap
from fineline.kinds import is_a
from fineline.numpy_support import np
from fineline.objects import c_access
from fineline.symbolic.arithmetic import settle_all
from fineline.tables import attributes
from fineline.tensor_ops.arrays.functions import IN_PLACE
from fineline.tensor_ops.backing import computing
from fineline.tensor_ops.rules import operator_rule
from fineline.tracing.identity_guards import identify
from fineline.tracing.interp import Interp
from fineline.tracing.plain_values import is_value
from fineline.tracing.segment_trace import SegmentTrace

# The results of these functions depend only on their arguments; the only thing they change is an array passed as ``out``, or their first argument.
_FUNCTIONS = (
    "abs absolute all any append arange argmax argmin argsort array array_split asarray ascontiguousarray atleast_1d atleast_2d "
    "atleast_3d average broadcast_to clip column_stack concatenate copyto cumprod cumsum diag diff dot dstack expand_dims eye "
    "fill_diagonal flip full full_like geomspace hamming hanning hsplit hstack identity indices inner interp kron linspace logspace "
    "matmul max maximum mean median meshgrid min minimum moveaxis ndim nonzero ones ones_like outer pad place prod put put_along_axis "
    "putmask ravel repeat reshape roll rot90 round searchsorted shape size sort split sqrt squeeze stack std sum swapaxes take "
    "tensordot tile trace transpose tri tril triu unique var vsplit vstack where zeros zeros_like"
)
_METHODS = (
    "all any argmax argmin argsort astype clip copy cumprod cumsum diagonal dot fill flatten item max mean min nonzero prod put ravel "
    "repeat reshape round searchsorted sort squeeze std sum swapaxes take tolist trace transpose var view __getitem__ __len__ __neg__ "
    "__pos__ __abs__ __float__ __int__ __bool__"
)
_DTYPES = "biufc"
# In bytes: a larger array is not kept as a constant, but made again in each call.
MOST = 2**24
SHARING = (torch.from_numpy, torch.as_tensor, torch.asarray)


class TracedArrays:
    """The arrays of the graph: by stand-in, which dies when the array would in eager code, what is known of it (`arrays.traced`)."""

    def __init__(self) -> None:
        # A later object at a stand-in's address is another one.
        self._found: AddressMap[tuple[Callable[[], Any], Any]] = AddressMap()

    def add(self, array: Any, known: Any) -> None:
        self._found[array] = weakref.ref(array), known

    def get(self, array: Any) -> Any:
        """Returns what is known of an array; None if it is not a part of the graph."""
        entry = self._found.get(array)
        return entry[1] if entry is not None and entry[0]() is array else None

    def __contains__(self, array: object) -> bool:
        return self.get(array) is not None


class Arrays:
    """The arrays of a capture. ``shared``: arrays that share memory with a tensor of the graph, each with this tensor; they cannot be constants."""

    def __init__(self) -> None:
        self.traced = TracedArrays()
        # Whether a graph may begin with any array from outside. After a graph break, most are what eager code plans with: there it may only
        # begin with those that have the memory of a tensor. All of them may meet another array of the graph.
        self.from_anywhere = True
        # Keeps arrays alive so that no other object gets an address that stands for one of them.
        self.alive: list[Any] = []
        self.shared: list[tuple[Any, Tensor]] = []
        # By array from outside the captured code: the tensors that are inputs of the graph; they share its memory and keep it alive.
        self.shown: AddressMap[list[Tensor]] = AddressMap()

    def made(self, trace: SegmentTrace, v: Any) -> None:
        """Notes that the captured code made the arrays in ``v``, a function's result."""
        if is_a(v, np.ndarray):
            self.alive.append(v)
            trace.made.update((v, v.base) if v.base is not None else (v,))
        elif type(v) in (list, tuple):
            self.alive.append(v)
            if type(v) is list:
                trace.made.add(v)
            for part in v:
                self.made(trace, part)

    def lies_in_shared(self, a: Any, written: Callable[[Tensor], bool] = lambda t: True) -> bool:
        """Returns whether ``a`` may share memory with an array in `shared` whose tensor ``written`` accepts."""
        return any([written(t) and np.may_share_memory(a, other) for other, t in self.shared])

    def constant(self, interp: Interp, v: Any) -> bool:
        """Returns whether ``v``, an argument, is the same in each call; guards it where needed."""
        trace = interp.trace
        if type(v) is np.ndarray:
            if v in self.traced:
                return False
            known = v in trace.made or (v.base is not None and v.base in trace.made)
            return known and v not in trace.sources and not self.lies_in_shared(v, lambda t: storage_of(t) in trace.recorder.writes.storages)
        if type(v) in (list, tuple):
            if type(v) is list and v not in trace.made and v in trace.sources:
                return False
            return all([self.constant(interp, x) for x in v])
        if is_a(v, np.dtype):
            identify(trace, v)
            return v.isbuiltin == 1
        if type(v) is slice:
            return all([self.constant(interp, x) for x in (v.start, v.stop, v.step)])
        return is_value(v) and c_access.may_compare(trace, v)


def _usable(result: Any) -> bool:
    if is_a(result, np.ndarray):
        return type(result) is np.ndarray and result.dtype.kind in _DTYPES and result.nbytes <= MOST
    return all(map(_usable, result)) if type(result) in (list, tuple) else is_value(result)


def may_compute(interp: Interp) -> bool:
    """Returns whether arrays of constants are constants here."""
    return interp.trace.active and interp.backing.restartable and interp.lessons.graphs.constant_arrays


def computed(interp: Interp, fn: Any, args: Any, kwargs: dict | None) -> tuple | None:
    """Returns the result of ``fn`` on constant arguments, in a tuple of one; None if an argument is not constant, or the result cannot be."""
    if interp.backing.may_be_symbolic:
        args, kwargs = [settle_all(a) for a in args], {k: settle_all(a) for k, a in kwargs.items()} if kwargs else None
    values = (*args, *(kwargs or {}).values())
    if not may_compute(interp) or not all([interp.tensors.arrays.constant(interp, v) for v in values]):
        return None
    before = [(a, a.copy()) for a in _targets(fn, values)]
    try:
        # Floating-point warnings become errors: eager code would issue them at each call.
        with np.errstate(all="raise"):
            result = fn(*args, **(kwargs or {}))
    except Exception as e:  # raised again by the call itself
        let_pass(e)
        # NumPy raises an error of arithmetic after it has written the results, and the call that is made again would read them.
        for a, items in before:
            a[...] = items
        return None
    if not _usable(result):
        return None
    interp.tensors.arrays.made(interp.trace, result)
    return (result,)


def _targets(fn: Any, values: tuple) -> list:
    """Returns the arrays among the arguments of a call into which it may write what it computes from them: no operator does but those in place."""
    if getattr(operator, getattr(fn, "__name__", ""), None) is fn and fn not in IN_PLACE:
        return []
    found = [a for v in values for a in (v if type(v) is tuple else (v,))]
    return [a for a in found if type(a) is np.ndarray and a.flags.writeable]


# -- tensors of arrays ---------------------------------------------------------------------------------------------------
class TensorOf(NumberedMember):
    """A descriptor for a tensor that shares an array's memory."""

    __slots__ = ()
    MEMBER_TEXTS = MappingProxyType({"": "torch.from_numpy({of})"})

    @property
    def __name__(self) -> str:
        return "from_numpy()"

    def __get__(self, a: Any, cls: Any = None) -> Any:
        if not is_plain(a):
            raise AttributeError("no such tensor")
        return torch.from_numpy(a)


def is_plain(a: Any) -> bool:
    """Returns whether PyTorch takes ``a`` without a warning, and only operators write into its memory (Python code writes into a bytearray's)."""
    holder = a
    while is_a(holder, np.ndarray):
        holder = holder.base
    return a.flags.writeable and (holder is None or is_a(holder, Tensor))


def tensor_from(interp: Interp, fn: Any, a: Any, more: list, kwargs: dict) -> Tensor | None:
    """Returns the tensor that ``fn`` makes of an array, as an input or a node of the graph; None if this would differ from the result of ``fn``."""
    trace = interp.trace
    options = {k: v for k, v in kwargs.items() if v is not None}
    if more or not options.keys() <= {"dtype", "device"} or not all([is_value(v) for v in options.values()]):
        return None
    modes = torch._C._len_torch_function_stack() or torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None
    if modes or interp.nested.modes or interp.nested.opaque is not None or not interp.backing.restartable or not is_plain(a):
        return None
    src, constant = trace.sources.get(a), interp.tensors.arrays.constant(interp, a)
    if constant and fn in SHARING and interp.tensors.arrays.lies_in_shared(a):
        return None
    if not constant and (src is None or torch.is_inference_mode_enabled() is not trace.state.start.inference_mode):
        return None
    try:
        result = fn(a, **options)
        with computing(interp):
            held = copied(a) if constant else torch.from_numpy(a)
            changes = {k: v for k, v in (("dtype", result.dtype), ("device", result.device)) if v != getattr(held, k)}
            form, given = (Tensor.to, changes) if changes else (Tensor.clone, {})
            copy = form(held, **given)
    except Exception as e:  # raised again by the call itself
        let_pass(e)
        return None
    shared = fn in SHARING and not (changes or constant)
    if not shared and (copy.stride() != result.stride() or ruled(interp, form, [held], given)):
        return None
    if constant:
        trace.pin(held, "array")
    else:
        assert src is not None, "an array that is not constant has a source"
        trace.load(held, trace.guards.access(src, "member", TensorOf(len(interp.tensors.arrays.shown.setdefault(a, []))), held))
        interp.tensors.arrays.shown[a].append(held)
    if shared:
        return held
    if not interp.backing.real:
        result = interp.backing.run(interp, form, (held,), given)
    interp.tensors.record(interp, "call_method", form.__name__, (trace.to_fx(held),), {k: trace.to_fx(v) for k, v in given.items()}, result)
    if fn in SHARING:
        interp.tensors.arrays.shared.append((a, result))
    return result


def copied(a: Any) -> Tensor:
    with torch.inference_mode(False):
        return torch.from_numpy(a.copy(order="K"))


def ruled(interp: Interp, fn: Any, args: list, kwargs: Any) -> bool:
    return interp.rules is not None and operator_rule(interp, fn, args, kwargs) is not None


# NumPy's functions and methods whose results on constants are constants.
FUNCTIONS = [*attributes(np, _FUNCTIONS)] + [v for v in vars(np).values() if type(v) is np.ufunc]
METHODS = [*attributes(np.ndarray, _METHODS)]
