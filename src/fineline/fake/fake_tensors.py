"""Makes fake tensors for tensors that existed before, and runs operators on them."""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C._autograd import _saved_tensors_hooks_set_tracing
from torch._dispatch.python import enable_python_dispatcher
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch._guards import Source as NamedSource
from torch._higher_order_ops.utils import registered_hop_fake_fns
from torch._ops import HigherOrderOperator, OpOverload
from torch._prims_common import infer_size, make_contiguous_strides_for
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
from torch.autograd.function import BackwardCFunction
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv

from fineline.backends.lock import TRACERS
from fineline.bytecode.handlers import Deferral, handled_signals, standing_in
from fineline.fx.output_fixups import disowned, plain_example
from fineline.guards.facts import has_tangent
from fineline.identity import AddressMap
from fineline.import_thread import shapes_imported
from fineline.kinds import is_a
from fineline.torch_facts.distributed_tensors import holds_masks
from fineline.torch_facts.releases import static_fake
from fineline.torch_facts.spellings import OWN
from fineline.torch_facts.thread_state import end_guards
from fineline.torch_facts.wrapper_subclasses import (
    NotTakenApart,
    is_jagged,
    is_ragged,
    is_wrapper,
    lengths_of,
    on_fakes,
    parts_of,
    put_together,
    supported,
)

DATA_DEPENDENT = (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode)
# The number of operators without cached results. With it, the first capture of Longformer with symbolic sizes (74 short segments)
# takes 8 s instead of 29 s; that of BERT after a graph break 0.78 s instead of 0.70 s.
UNKEPT = 800
NO_KERNEL = (UnsupportedOperatorException, NotImplementedError)


_VIEWS = frozenset({torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default})
# Operators that return quantized tensors. Their fakes have another type and are only as quantized as their inputs.
QUANTIZING = frozenset(
    {
        "quantize_per_tensor", "quantize_per_channel", "quantize_per_tensor_dynamic", "empty_quantized", "_empty_affine_quantized",
        "_empty_per_channel_affine_quantized", "_make_per_tensor_quantized_tensor", "_make_per_channel_quantized_tensor",
    }
)  # fmt: skip
# Operators on a float that PyTorch's compilers have a form for with the float in a tensor (torch 2.13).
_TENSORIFIED = frozenset(
    [getattr(torch.ops.aten, name).Tensor for name in ("add", "sub", "mul", "div")]
    + [getattr(torch.ops.aten, name).Scalar for name in ("gt", "lt", "ge", "le", "eq", "ne")]
)
# What PyTorch says is the level of a tensor whose transform has ended.
ENDED = -2
_LOG = logging.getLogger("torch._subclasses.fake_tensor")


@functools.cache
def own_attributes() -> frozenset[str]:
    """Returns the attributes that each fake tensor has, in contrast to those that user code has set on it."""
    # Hides the operator from user modes that count operators.
    with torch._C._DisableTorchDispatch():
        t = torch.empty(0)
    return frozenset(FakeTensorMode(static_shapes=True).from_tensor(t).__dict__)


@contextmanager
def unwarned() -> Iterator[None]:
    """Silences warnings, even if they are errors: PyTorch reads gradients when it makes a fake, which may warn.

    It replaces the filters: if it changed them, Python would forget the warnings that it has shown.
    """
    before, warnings.filters = warnings.filters, [("ignore", None, Warning, None, 0)]
    try:
        yield
    finally:
        warnings.filters = before


class Path(NamedSource):
    """A source for PyTorch's shape environment, which identifies it by its text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __eq__(self, other: object) -> bool:
        return is_a(other, Path) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> tuple[type[Path], tuple[str]]:
        # PyTorch's takes the fields of dataclasses only. The process that compiles in the background gets sizes with their sources.
        return Path, (self._text,)

    @property
    def _name_template(self) -> str:
        return self._text


def carry(value: float) -> Tensor:
    """Returns a float in a tensor: backends do not accept a float that changes from call to call."""
    # Hides the operator from user modes.
    with torch._C._DisableTorchDispatch():
        return torch.scalar_tensor(value, dtype=torch.float64, device="cpu")


class NotFakeable(Exception):
    """A tensor cannot have a fake."""


class TransformEnded(NotFakeable):
    """Raised for a tensor of a transform that has ended. No backend can get an example of it either."""


class Drawing(FakeTensorMode):
    """A fake mode that records whether an operator would have drawn random numbers, or written into a tensor.

    ``moved``: whether one may really have drawn numbers: a kernel used as a fake implementation, or a user's fake implementation.
    """

    drew = wrote = moved = False
    # The number of further operators on symbolic sizes whose results are not cached.
    unkept = 0
    # Whether an operator has taken a float that varies where compilers need its value; None outside of `AskedNumbers`, which reads it.
    kept_floats: bool | None = None
    # `__torch_dispatch__` finds their rules, which PyTorch stores by the exact class of a mode, here FakeTensorMode.
    supports_higher_order_operators = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_a(func, HigherOrderOperator) and func not in registered_hop_fake_fns:
            rule = func.python_key_table.get(FakeTensorMode)
            return NotImplemented if rule is None else rule(self, *args, **(kwargs or {}))
        if self.unkept:
            symbolic = any(map(_is_symbolic, (*args, *(kwargs or {}).values())))
            if symbolic:
                self.unkept -= 1
            self.cache_enabled = not (symbolic and self.unkept)
            # With cached results this would gain nothing.
            if func in _VIEWS and len(args) == 2 and (layout := _contiguous(*args)) is not None:
                func, args = torch.ops.aten.as_strided.default, (args[0], *layout)
        if func in _VIEWS and len(args) == 2 and type(args[0]) is FakeTensor and (seen := self._seen(func, *args)) is not None:
            func, args = torch.ops.aten.as_strided.default, (args[0], *seen)
        if self.kept_floats is False:
            given = (*(() if func in _TENSORIFIED else args), *(kwargs or {}).values())
            self.kept_floats = torch.SymFloat in map(type, given)
        if is_a(func, OpOverload):
            self.drew |= torch.Tag.nondeterministic_seeded in func.tags and _drops(func, args, kwargs)
            self.moved |= self.drew or func.namespace not in OWN
            self.wrote |= func._schema.is_mutable
        return super().__torch_dispatch__(func, types, args, kwargs)

    def _seen(self, func: OpOverload, t: Tensor, shape: Any) -> tuple[Any, Any] | None:
        """Returns the kernel's sizes and strides for a view of a non-contiguous tensor; None if PyTorch's rule for fakes agrees.

        Raises if there is no such view. PyTorch's rule allows some that do not exist, and gives dimensions of one element other strides.
        """
        if t.dim() == 0 or [expression(n) for n in t.stride()] == [expression(n) for n in make_contiguous_strides_for(t.shape)]:
            return None
        if torch.SymInt not in [type(n) for n in (*t.shape, *t.stride(), *shape)]:
            with torch._C._DisableTorchDispatch():
                kernels = torch.empty_strided(t.shape, t.stride(), device="meta").view(shape)
            return kernels.shape, kernels.stride()
        if 1 not in [n for n in shape if type(n) is int]:
            return None
        view: Any = super().__torch_dispatch__(func, (), (t, shape))
        strides = list(view.stride())
        # A dimension of one element belongs to the dimension after it.
        for i in reversed([i for i, n in enumerate(view.shape) if type(n) is int and n == 1]):
            strides[i] = t.stride(-1) if i == view.dim() - 1 else strides[i + 1] * view.shape[i + 1]
        return view.shape, strides


def _contiguous(t: Any, shape: Any) -> tuple[list, list] | None:
    """Returns the sizes and strides of a contiguous tensor's view if some are symbolic, else None.

    PyTorch compares the sizes one by one to find unchanged ones, which takes a quarter of Longformer's first capture.
    """
    numbers = [n for n in (*t.shape, *shape) if type(n) is torch.SymInt]
    if not numbers or type(t) is not FakeTensor or 0 in [n for n in t.shape if type(n) is int]:
        return None
    # Sizes that depend on data follow other rules.
    if not all([n.node.has_hint() and n.node.hint for n in numbers]):
        return None
    if [expression(n) for n in t.stride()] != [expression(n) for n in make_contiguous_strides_for(t.shape)]:
        return None
    sizes = infer_size(shape, t.numel())
    return list(sizes), list(make_contiguous_strides_for(sizes))


def _is_symbolic(a: Any) -> bool:
    """Returns whether an argument is a symbolic number, contains one, or is a tensor with a symbolic size or stride."""
    if is_a(a, Tensor):
        return bool(a._has_symbolic_sizes_strides)
    if is_a(a, (tuple, list)):
        return any(map(_is_symbolic, a))
    if type(a) is dict:
        return any(map(_is_symbolic, a.values()))
    if type(a) is slice:
        return _is_symbolic(a.start) or _is_symbolic(a.stop) or _is_symbolic(a.step)
    return type(a) in (torch.SymInt, torch.SymFloat, torch.SymBool)


def expression(n: Any) -> Any:
    """Returns a number, or the expression of a symbolic one. A comparison of expressions makes no guard on the values."""
    return n.node.expr if type(n) is torch.SymInt else n


def _drops(func: OpOverload, args: Any, kwargs: Any) -> bool:
    """Returns whether an operator that can draw random numbers does so; attention without dropout, for example, does not."""
    at = next((i for i, a in enumerate(func._schema.arguments) if a.name == "dropout_p"), None)
    if at is None:
        return True
    p = args[at] if at < len(args) else (kwargs or {}).get("dropout_p", 0.0)
    # Do not read a symbolic probability: that would specialize it.
    return type(p) not in (int, float) or p != 0


class Twin(NamedTuple):
    """A real tensor and its fake, with the fake's version and ``requires_grad`` when the graph began."""

    real: Tensor
    fake: Tensor
    version: int
    requires_grad: bool


class _Made(torch.autograd.Function):
    """Makes a tensor with an autograd history and any strides."""

    @staticmethod
    def forward(ctx: Any, seed: Tensor, sizes: Any, strides: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty_strided(sizes, strides, dtype=dtype, device=device)


def empty_strided(sizes: Any, strides: Any, dtype: torch.dtype, device: torch.device, history: bool) -> Tensor:
    """Makes a tensor with these sizes and strides; with ``history``, one that requires a gradient and is not a leaf."""
    if not history:
        return torch.empty_strided(sizes, strides, dtype=dtype, device=device)
    with torch.enable_grad():
        found: Tensor = _Made.apply(torch.zeros((), requires_grad=True), sizes, strides, dtype, device)
    return found


class Fakes:
    """The fake mode of one segment.

    ``context`` returns which sizes of a tensor are symbolic, as (symbolic context or None, source or None); ``bind`` is called
    with each tensor that has symbolic sizes, and its fake.
    """

    def __init__(
        self,
        shapes: ShapeEnv | None,
        context: Callable[[Tensor], tuple[Any, NamedSource | None]],
        bind: Callable[[Tensor, Tensor], None],
    ) -> None:
        self.shapes = shapes
        self.mode = Drawing(shape_env=shapes)
        self.context, self.bind = context, bind
        # Whether any number is symbolic.
        self.symbolic = False
        # Whether the code has read a tensor's ``data``: writes through it change no version.
        self.unversioned = False
        self._signals: tuple[int, ...] | None = None
        # Addresses are safe: each `Twin` holds both tensors.
        self._twins: AddressMap[Twin] = AddressMap()
        self._reals: AddressMap[Tensor] = AddressMap()

    def keep_later(self) -> None:
        """Disables the cache for the first operators on symbolic sizes: a lookup doubles the cost, and pays only if layers repeat."""
        if self.mode.cache_enabled:
            self.mode.unkept, self.mode.cache_enabled = UNKEPT, False

    def close(self) -> None:
        """Drops the callbacks and the user's tensors: what decides about a refused graph lives until the graph is compiled. No new fakes can be made."""
        del self.context, self.bind
        self._twins.clear()
        self._reals.clear()

    def twin(self, t: Tensor) -> Tensor:
        """Returns the fake of ``t``; a fake, or a tensor wrapped by a transform, is returned as it is."""
        if type(t) is FakeTensor or torch._C._functorch.is_functorch_wrapped_tensor(t):
            if torch._C._functorch.maybe_get_level(t) == ENDED:
                raise TransformEnded("a tensor of a transform that has ended")
            return t
        found = self._twins.get(t)
        if found is None:
            if type(t).__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl:
                return self._twin_of_wrapper(t)
            # Of a tensor whose class overrides operators, a plain one with its memory is read.
            plain = plain_example(t)
            fake, varies = self._fake_of(plain, *self.context(t))
            if varies:
                self.bind(t, fake)
            found = self._twins[t] = Twin(t, fake, 0 if plain.is_inference() else fake._version, plain.requires_grad)
            self._reals[fake] = t
        return found.fake

    def _twin_of_wrapper(self, t: Tensor) -> Tensor:
        """Returns the fake of a tensor of a wrapper subclass, which consists of the fakes of its inner tensors; one of fakes as it is."""
        if not is_wrapper(t):
            raise NotFakeable(f"a tensor of class {type(t).__name__}")
        if on_fakes(t):
            return t
        if not supported(t) or has_tangent(t) or holds_masks(t):
            raise NotFakeable(f"a tensor of class {type(t).__name__} that is nested, has symbolic sizes, a tangent, or placements with a mask")
        symbolic, source = self.context(t)
        sizes, strides = self._jagged_sizes(t) if is_jagged(t) else (t.shape, t.stride())
        if symbolic is not None:
            assert self.shapes is not None and source is not None
            with torch._C.DisableTorchFunction():
                sizes, strides, _ = self.shapes.create_symbolic_sizes_strides_storage_offset(t, source, symbolic_context=symbolic)
        fake = self._wrapper(t, self.twin, sizes, strides)
        if symbolic is not None:
            self.bind(t, fake)
        self._twins[t] = Twin(t, fake, fake._version, t.requires_grad)
        self._reals[fake] = t
        return fake

    def _jagged_sizes(self, t: Any) -> tuple[Any, Any]:
        """Returns sizes for the fake of a tensor with a ragged dimension, which computes all but the one of this dimension from its inner tensors."""
        if self.shapes is None:
            raise NotFakeable("a tensor with a ragged dimension, whose size is a symbol")
        lengths: Any = self.twin(lengths_of(t))
        with self.mode:
            size = lengths.get_nested_int()
        return [size if is_ragged(n) else n for n in t._size], t._strides

    def _wrapper(self, t: Tensor, fake_of: Callable[[Tensor], Tensor], sizes: Any, strides: Any) -> Tensor:
        """Returns a tensor like ``t``, of a wrapper subclass, with fakes as inner tensors."""
        try:
            parts = parts_of(t)
            fakes = parts._replace(tensors=tuple([fake_of(x) for x in parts.tensors]))
            with temporarily_clear_interpreter_stack(), self.mode, torch.enable_grad(), torch._C.DisableTorchFunctionSubclass():
                fake = put_together(type(t), fakes, tuple(sizes), tuple(strides))
                if t.requires_grad and not fake.requires_grad:
                    fake.requires_grad_()
                    fake = fake if t.is_leaf else fake.view_as(fake)
            if fake.requires_grad != t.requires_grad:
                raise NotTakenApart(f"a tensor of class {type(t).__name__}, whose inner tensors require a gradient")
        except NotTakenApart as e:
            raise NotFakeable(str(e)) from None
        return fake

    def _fake_of(self, t: Tensor, symbolic: Any, source: NamedSource | None) -> tuple[Tensor, bool]:
        """Returns a new fake of a plain tensor, and whether some of its sizes are symbols."""
        if disowned(t):
            raise NotFakeable("a view made without gradients that was written into")
        if t.is_nested and t.layout is torch.strided:
            raise NotFakeable("a nested tensor, which has no sizes")
        if has_tangent(t):
            raise NotFakeable("a tensor with a tangent of forward-mode gradients")
        if symbolic is not None and (t.is_conj() or t.is_neg()):
            raise NotFakeable("a conjugate or negative view")
        try:
            with unwarned():
                if symbolic is None:
                    return static_fake(self.mode, t), False
                if t._is_view():
                    return self._strided(t, source, symbolic), True
                fake: Tensor = self.mode.from_tensor(t, source=source, symbolic_context=symbolic)
                return fake, True
        except UnsupportedFakeTensorException:  # for example compressed sparse rows
            raise NotFakeable(f"a tensor of layout {t.layout}") from None

    def view_as_class(self, t: Tensor, cls: type[Tensor], detached: bool) -> Tensor:
        """Returns what stands for a view of ``t`` of the class ``cls``: a tensor of that class without numbers, which has a fake.

        ``detached``: autograd does not take it for a view.
        """
        fake: Tensor = self.run(torch.ops.aten.detach.default if detached else torch.ops.aten.alias.default, (t,), None)
        if cls is Tensor:
            return fake
        with torch._C._DisableTorchDispatch():
            plain = torch.empty(0, device="meta")
            made = Tensor._make_subclass(cls, plain) if detached else plain.as_subclass(cls)
        self._twins[made] = Twin(made, fake, fake._version, fake.requires_grad)
        self._reals[fake] = made
        return made

    def _strided(self, t: Tensor, source: Any, symbolic: Any) -> Tensor:
        # For a view, PyTorch would make the base symbolic too, which the program cannot read.
        assert self.shapes is not None
        sizes, strides, _ = self.shapes.create_symbolic_sizes_strides_storage_offset(t, source, symbolic_context=symbolic)
        return self._like(t, t.requires_grad, sizes, strides)

    def _like(self, t: Tensor, requires_grad: bool, sizes: Any, strides: Any) -> Tensor:
        """Returns a fake with its own memory, and a history if ``t`` has one: compilers write into a leaf without gradients."""
        # A tensor made in inference mode has no version; the fake of a view that was made outside needs one.
        inference = torch.is_inference_mode_enabled() and t.is_inference()
        with temporarily_clear_interpreter_stack(), self.mode, torch.inference_mode(inference), torch.enable_grad():
            if requires_grad and not t.is_leaf:
                return empty_strided(sizes, strides, t.dtype, t.device, history=True)
            with torch.no_grad():
                return torch.empty_strided(sizes, strides, dtype=t.dtype, device=t.device).requires_grad_(requires_grad)

    def example(self, t: Tensor) -> Tensor:
        """Returns the fake of ``t`` in its state when the graph began, as an example input."""
        fake = self.twin(t)
        if is_wrapper(t):
            # One with a ragged dimension has noted its sizes when it was made: some of these symbols may be constants since.
            noted = is_jagged(t) and self.symbolic
            return fake if t not in self._twins or (not noted and self._unchanged(t)) else self._wrapper(t, self.example, fake.shape, fake.stride())
        found = self._twins[t]
        if t.is_inference() or (fake._version == found.version and fake.requires_grad == found.requires_grad):
            return fake
        return self._like(t, found.requires_grad, fake.shape, fake.stride())

    def _unchanged(self, t: Tensor) -> bool:
        """Returns whether no operator has written into the fake of ``t``, or into its inner tensors."""
        inner = [x for x in (parts_of(t).tensors if is_wrapper(t) else ()) if x in self._twins]
        found = self._twins[t]
        now = found.fake
        return now._version == found.version and now.requires_grad == found.requires_grad and all(map(self._unchanged, inner))

    def forget(self) -> None:
        """Forgets numbers that were read from memory, before a write to it that may change no version."""
        if self.unversioned:
            self.mode.epoch += 1

    def number(self, value: torch.SymFloat) -> Tensor:
        """Returns a graph input for a float: a fake tensor whose ``item()`` is ``value``."""
        fake: Any = static_fake(self.mode, carry(0.0))
        fake.item_memo = value
        return fake

    def run(self, fn: Callable, args: Any, kwargs: Any) -> Any:
        """Runs ``fn`` on the fakes of the real tensors among its arguments."""
        if self.shapes is None:
            return TRACERS.holding(self._run, fn, args, kwargs)
        # C++ evaluates the symbols in Python, and may end the process if that raises an exception.
        if self._signals is None:
            self._signals = handled_signals()
        return TRACERS.holding(standing_in, Deferral, self._signals, self._run, fn, args, kwargs)

    def _run(self, fn: Callable, args: Any, kwargs: Any) -> Any:
        if fn is getattr and args[1] == "data":
            self.unversioned = True
        args = [self.inside(a) for a in args]
        kwargs = {k: self.inside(v) for k, v in kwargs.items()} if kwargs else {}
        # Silences the log: an operator that fails here is tried on the real tensors.
        quiet, _LOG.disabled = _LOG.disabled, True
        # The user's hooks are for the real tensors.
        unhooked = _saved_tensors_hooks_set_tracing(True)
        try:
            if not self.symbolic or not any(map(_is_symbolic, (*args, *kwargs.values()))):
                with self.mode:
                    return self.outside(fn(*args, **kwargs))
            # In C, composite operators would read the value of each size. In Python they take several times as long.
            with self.mode, enable_python_dispatcher():
                return self.outside(fn(*args, **kwargs))
        except Exception as e:
            end_guards(e)
            raise
        finally:
            _saved_tensors_hooks_set_tracing(unhooked)
            _LOG.disabled = quiet

    def differentiate(self, results: list[Tensor], earlier: list) -> None:
        """Runs the gradient formulas of an operator, without an effect. ``earlier``: the histories of its arguments."""
        self.run(_differentiate, [results, earlier], None)

    def inside(self, a: Any) -> Any:
        """Returns ``a`` with the fakes of the real tensors in it."""
        if is_a(a, Tensor):
            return self.twin(a)
        if is_a(a, (tuple, list)) and a:
            items = [self.inside(x) for x in a]
            if all([x is y for x, y in zip(items, a, strict=True)]):
                return a
            return items if type(a) is list else tuple(items) if type(a) is tuple else type(a)(*items)
        if type(a) is dict:
            return {k: self.inside(v) for k, v in a.items()}
        if type(a) is slice:
            return slice(self.inside(a.start), self.inside(a.stop), self.inside(a.step))
        return a

    def outside(self, value: Any) -> Any:
        """Returns ``value`` with the real tensors in place of their fakes."""
        if is_a(value, Tensor):
            return self._reals.get(value, value)
        if type(value) is dict:
            return {k: self.outside(x) for k, x in value.items()}
        if type(value) in (tuple, list):
            items = [self.outside(x) for x in value]
            return value if all([a is b for a, b in zip(items, value, strict=True)]) else type(value)(items)
        return value


def _differentiate(results: list[Tensor], earlier: list) -> None:
    nodes: list[Any] = [t.grad_fn for t in results]
    seen = {None, *earlier}
    with torch.no_grad():
        while nodes:
            node = nodes.pop()
            if node in seen or is_a(node, BackwardCFunction):
                continue
            seen.add(node)
            nodes += [following for following, _ in node.next_functions]
            if type(node).__name__ != "AccumulateGrad":
                node(*[torch.zeros(m.shape, dtype=m.dtype, device=m.device) for m in node._input_metadata])


def _nothing_varies(t: Tensor) -> tuple[None, None]:
    return None, None


def unsymbolic() -> Fakes:
    """Returns fakes with a shape environment, but without symbolic inputs."""
    shapes_imported()
    return Fakes(ShapeEnv(), _nothing_varies, lambda t, fake: None)


def sizeless() -> Fakes:
    """Returns fakes without a shape environment: an operator fails if the data of a tensor decide a size of its result."""
    return Fakes(None, _nothing_varies, lambda t, fake: None)


class Rows(Fakes):
    """Fakes inside ``vmap``: the fake of a batched tensor has the size of one row. ``around``: the fakes of a capture on fakes."""

    def __init__(self, around: Fakes | None) -> None:
        super().__init__(ShapeEnv() if around is None else around.shapes, _nothing_varies, lambda t, fake: None)
        self.around = around
        if around is not None:
            self.mode, self.symbolic = around.mode, around.symbolic

    def twin(self, t: Tensor) -> Tensor:
        if type(t) is FakeTensor or not torch._C._functorch.is_functorch_wrapped_tensor(t):
            return super().twin(t) if self.around is None else self.around.twin(t)
        if t not in self._twins:
            with temporarily_clear_interpreter_stack(), self.mode, torch.no_grad():
                fake = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device).requires_grad_(t.requires_grad)
            self._twins[t] = Twin(t, fake, fake._version, t.requires_grad)
            self._reals[fake] = t
        return self._twins[t].fake
