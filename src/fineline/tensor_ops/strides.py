"""Strides of computed tensors that Python code reads on fakes: the kernels confirm them before the program relies on them.

In fake mode PyTorch's rules decide the strides of a result. A rule may differ from the kernel, mostly for dimensions of one element, whose
strides have no effect. Therefore the operators that compute the tensor run once, on zeros of the same layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C._autograd import _saved_tensors_hooks_set_tracing
from torch.fx import Node
from torch.fx.node import map_arg

from fineline.fake.fake_tensors import empty_strided, expression
from fineline.frames.graph_breaks import GraphBreak, Restart
from fineline.fx.body_recorder import BodyRecorder
from fineline.fx.recorder import Recorder, computes
from fineline.guards.facts import storage_of, tensor_number
from fineline.guards.source import Source
from fineline.kinds import is_a
from fineline.policy.selector import describe
from fineline.symbolic.arithmetic import SYMBOLIC, holds, unknown
from fineline.symbolic.floats import hint
from fineline.tensor_ops.backing import computing
from fineline.tensor_ops.composites import Composition
from fineline.torch_facts.mutation import METADATA_NAMES
from fineline.torch_facts.random_state import put_back, random_states, unmoved
from fineline.torch_facts.wrapper_subclasses import is_wrapper, memory_of, parts_of
from fineline.tracing.interp import Interp
from fineline.tracing.plain_values import PLAIN_TENSORS
from fineline.tracing.segment_trace import SegmentTrace

# By name: functions, methods and operators of the dispatcher alike.
_READERS = frozenset(
    {
        "dim_order", "is_contiguous", "is_non_overlapping_and_dense", "is_strides_like_format", "stride", "sym_is_contiguous", "sym_stride",
        "_overlaps", "_select_batch_norm_backend", "_select_conv_backend",
    }
)  # fmt: skip


class Layout(NamedTuple):
    """The layout of a tensor in memory, without its numbers."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool

    def zeros(self) -> Tensor:
        """Returns a tensor of zeros with this layout."""
        t = empty_strided(self.sizes, self.strides, self.dtype, self.device, self.requires_grad)
        # Fills the storage, because operators refuse to write into a tensor whose elements share memory.
        memory: Any = t.untyped_storage()
        memory.fill_(0)
        return t


def offset_of(interp: Interp, t: Tensor) -> int | None:
    """Returns the offset of a tensor in its memory, and guards it; None if no guard can check it.

    The offset of a result follows from guarded facts, unless it lies in the memory of an input: then that of the input decides as well.
    """
    trace, memory = interp.trace, interp.backing.memory
    if not (type(t) in PLAIN_TENSORS or is_wrapper(t)) or t.layout is not torch.strided:
        return None
    if (src := trace.sources.get(t)) is not None:
        _guard_offset(trace, src)
        return int(t.storage_offset())
    if is_wrapper(t):
        return None
    storage = storage_of(memory(interp, t))
    # A graph that gets a tensor of a wrapper subclass reads the inner tensors from it.
    given = [x for _, src in trace.recorder.inputs if is_a(src.value, Tensor) for x in memory_of(src.value)]
    shared = [trace.sources[x] for x in given if x in trace.sources and storage_of(memory(interp, x)) == storage]
    offset = memory(interp, t).storage_offset()
    if type(offset) is not int or (shared and trace.symbols is not None) or storage == 0:
        # The fake of a view with symbolic sizes has its own memory.
        return None
    for src in shared:
        _guard_offset(trace, src)
    return offset


def _guard_offset(trace: SegmentTrace, src: Source) -> None:
    offset = tensor_number(src.value, "offset", 0)
    trace.guards.check(src, "predicate", (partial(_lies_at, offset), f"lies at {offset} in its memory"), ("offset", offset))


def _lies_at(offset: int, t: Tensor) -> bool:
    return tensor_number(t, "offset", 0) == offset


class Unconfirmed(Exception):
    """Raised if the kernels cannot confirm strides, with the reason."""


def reads_strides(fn: Any) -> bool:
    """Returns whether the result of ``fn`` depends on the strides of its arguments."""
    return getattr(fn, "__name__", "").partition(".")[0] in _READERS


def confirm(interp: Interp, fn: Any, args: Any, kwargs: dict | None, answer: Any) -> None:
    """Breaks the graph before ``fn``, or restarts the capture, unless the kernels' results would give the ``answer`` that ``fn`` gave on fakes."""
    recorder = interp.trace.recorder
    asked = [a for a in args if is_a(a, Tensor) and recorder.known(a)]
    if not asked:
        return
    try:
        text = "" if _agree(interp, fn, args, kwargs, answer) else "its kernels lay it out otherwise than PyTorch's rule for fakes says"
    except Unconfirmed as e:
        text = str(e)
    if not text:
        return
    text = f"{describe(fn)} reads the strides of a tensor that the graph computes, and {text}"
    if not interp.backing.is_symbolic:
        raise Restart("FL524", text)
    raise GraphBreak(fn, tuple(args), kwargs, "FL524", text)


def _agree(interp: Interp, fn: Any, args: Any, kwargs: dict | None, answer: Any) -> bool:
    """Returns whether the kernels' results give the same answer at the sizes of this call, and at others if a stride may agree by chance."""
    if torch._C._functorch.get_dynamic_layer_stack_depth():
        raise Unconfirmed("it is computed inside of a transform")
    scales: list[dict] = [{}]
    if holds(answer) and any([_one_wide(interp, a) for a in args if is_a(a, Tensor)]):
        scales.append({symbol: int(value) + 1 + i for i, (symbol, value) in enumerate(interp.trace.symbols.shapes.backed_var_to_val.items())})
    return all([_answer(interp, fn, args, kwargs, sizes) == _plain(answer, sizes) for sizes in scales])


def _one_wide(interp: Interp, t: Tensor) -> bool:
    """Returns whether a dimension of one element has a symbolic stride."""
    fake = interp.backing.memory(interp, t)
    return any([type(n) is int and n == 1 and type(stride) in SYMBOLIC for n, stride in zip(fake.shape, fake.stride(), strict=True)])


def _answer(interp: Interp, fn: Any, args: Any, kwargs: dict | None, sizes: Mapping) -> Any:
    kernels = Kernels(interp, interp.trace.recorder, sizes)
    with _apart(interp):
        try:
            given = [kernels.of(a) if is_a(a, Tensor) else _plain(a, sizes) for a in args]
            return _plain(fn(*given, **{k: _plain(v, sizes) for k, v in (kwargs or {}).items()}), sizes)
        except Unconfirmed:
            raise
        except Exception as e:
            raise Unconfirmed(f"they can't be asked how: {type(e).__name__}: {e}") from None


def _plain(value: Any, sizes: Mapping) -> Any:
    """Returns ``value`` with plain numbers instead of symbolic ones; ``sizes``: values that replace those of this call, by symbol."""
    if type(value) in SYMBOLIC:
        if unknown(value):
            raise Unconfirmed("only the graph knows its sizes")
        return hint(value) if not sizes else type(hint(value))(expression(value).subs(sizes))
    if is_a(value, (tuple, list)):
        return tuple([_plain(x, sizes) for x in value])
    return value


@contextmanager
def _apart(interp: Interp) -> Iterator[None]:
    """Hides the operators in a block: no mode sees them, they call no hook, and the random state is put back after them."""
    before, unhooked = random_states(), _saved_tensors_hooks_set_tracing(True)
    try:
        with computing(interp), torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            yield
    finally:
        _saved_tensors_hooks_set_tracing(unhooked)
        if not unmoved(before):
            put_back(before)


class Kernels:
    """Runs the nodes that compute a tensor, on zeros, to find the tensor's strides."""

    def __init__(self, interp: Interp, recorder: Recorder, sizes: Mapping) -> None:
        self.interp, self.recorder, self.sizes = interp, recorder, sizes
        # The values of the graph's inputs, and the kernels of the graph around this one that compute some of them.
        self.given: dict[Node, Any] = {}
        self.around: Kernels | None = None
        if is_a(recorder, BodyRecorder):
            self.around = Kernels(interp, recorder.parent, sizes)
            self.given = {node: value for node, value, _ in recorder.lifted}
            if interp.trace.symbols is None:
                # Without symbols, the operands of the operator have the layout of real tensors.
                self.given |= dict(recorder.holes)
        else:
            self.given = {node: src.value for node, src in recorder.inputs}
        # Layouts of results that are known at the sizes of this call: their nodes need not run again.
        self.known: dict[Node, Layout] = {} if sizes else recorder.kernels.layouts

    def of(self, t: Tensor) -> Tensor:
        """Returns a tensor with the strides that ``t`` will have."""
        node = self.recorder.find(t)
        if node is None:
            return self._layout(t).zeros()
        nodes, reshaped = self._needed(node)
        env: dict[Node, Any] = {}
        for at in nodes:
            env[at] = self.known[at].zeros() if at in self.known else self._run(at, env)
        found: Tensor = env[node]
        if not reshaped and is_a(found, Tensor):
            self.known[node] = _layout_of(found)
        return found

    def _needed(self, node: Node) -> tuple[list[Node], bool]:
        """Returns the nodes that compute ``node``, in order, and whether one of them changes the layout of an existing tensor."""
        needed, reshaped = {node}, False
        found = []
        for at in reversed(self.recorder.graph.nodes):
            changes = at.op == "call_method" and at.target in METADATA_NAMES and at.args[0] in needed
            if at in needed or changes:
                reshaped = reshaped or changes
                found.append(at)
                if at not in self.known:
                    needed.update(at.all_input_nodes)
        if reshaped and self.known:
            # A known layout may be from before or from after the change.
            self.known.clear()
            return self._needed(node)
        return found[::-1], reshaped

    def _run(self, node: Node, env: Mapping[Node, Any]) -> Any:
        if node.op == "placeholder":
            value = self.given.get(node)
            if is_wrapper(value):
                # The nodes that read its parts get them.
                return value
            if is_a(value, Tensor):
                if self.around is not None and self.around.recorder.known(value):
                    return self.around.of(value)
                return self._layout(value).zeros()
            if value is None:
                raise Unconfirmed("an input of the graph is not known yet")
            return _plain(value, self.sizes)
        composition: Composition | None = self.recorder.kernels.compositions.get(node)
        if composition is None and (node.op not in ("call_function", "call_method") or not computes(node)):
            raise Unconfirmed(f"{getattr(node.target, '__name__', node.target)} may do more than compute, and can't run twice")
        args, kwargs = map_arg(node.args, env.__getitem__), map_arg(node.kwargs, env.__getitem__)
        if node.target is not getattr and any([is_wrapper(env[at]) for at in node.all_input_nodes]):
            raise Unconfirmed("it is computed by a tensor's class")
        if composition is not None:
            try:
                return composition.on(args, kwargs, partial(_plain, sizes=self.sizes))
            except KeyError:
                raise Unconfirmed(f"{node.target} uses a tensor of its own") from None
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        fn: Any = node.target
        if fn is getattr and is_wrapper(args[0]) and args[1] in parts_of(args[0]).names:
            inner = getattr(*args)
            return inner if is_wrapper(inner) else self._layout(inner).zeros()
        return fn(*args, **kwargs)

    def _layout(self, t: Tensor) -> Layout:
        if t.layout is not torch.strided or t.is_nested or t.is_quantized or t.is_conj() or t.is_neg():
            raise Unconfirmed("it is made of a tensor that has no strides alone")
        fake = self.interp.backing.memory(self.interp, t)
        sizes, strides = [_plain(tuple(n), self.sizes) for n in (fake.shape, fake.stride())]
        return Layout(sizes, strides, t.dtype, t.device, t.requires_grad)


def _layout_of(t: Tensor) -> Layout:
    return Layout(tuple(t.shape), t.stride(), t.dtype, t.device, t.requires_grad)
