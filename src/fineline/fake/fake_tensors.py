"""Tensors without numbers: the fake twins of those that existed before, and operators run on them."""

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
from fineline.fx.output_fixups import disowned
from fineline.guards.facts import has_tangent
from fineline.identity import AddressMap
from fineline.import_thread import shapes_imported
from fineline.kinds import is_a, taken_as_it_is
from fineline.torch_facts.spellings import OWN

DATA_DEPENDENT = (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode)
# Of Longformer with symbolic sizes, 74 short segments, the first capture takes 8 s instead of 29; of BERT after a graph break 0.78 instead of 0.70.
UNKEPT = 800
NO_KERNEL = (UnsupportedOperatorException, NotImplementedError)


_VIEWS = frozenset({torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default})
# Operators that give quantized tensors. Fakes of these are of another type, and no more quantized than what they are made of.
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
_LOG = logging.getLogger("torch._subclasses.fake_tensor")


@functools.cache
def own_attributes() -> frozenset[str]:
    """Returns what a fake holds beside what the user's code has set on it."""
    # No operator of the user's, for those who count these.
    with torch._C._DisableTorchDispatch():
        t = torch.empty(0)
    return frozenset(FakeTensorMode(static_shapes=True).from_tensor(t).__dict__)


@contextmanager
def unwarned() -> Iterator[None]:
    """Silences warnings while gradients are read, as PyTorch does to make a fake, also if warnings are errors.

    It replaces the filters: if it changed them, Python would forget the warnings that it has shown once.
    """
    before, warnings.filters = warnings.filters, [("ignore", None, Warning, None, 0)]
    try:
        yield
    finally:
        warnings.filters = before


class Path(NamedSource):
    """A source as PyTorch's shape environment wants it: by its text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __eq__(self, other: object) -> bool:
        return is_a(other, Path) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    @property
    def _name_template(self) -> str:
        return self._text


def carry(value: float) -> Tensor:
    """Returns a float in a tensor: backends take no float that changes from call to call."""
    # It is no operator of the user's: no mode of theirs hears of it.
    with torch._C._DisableTorchDispatch():
        return torch.scalar_tensor(value, dtype=torch.float64, device="cpu")


class NotFakeable(Exception):
    """A tensor that no fake stands for."""


class Drawing(FakeTensorMode):
    """A fake mode that notes whether an operator would have drawn random numbers, or written into a tensor.

    ``moved``: whether one may have drawn some for real: a kernel that stands in for a fake one, or a user's fake implementation.
    """

    drew = wrote = moved = False
    # How many operators there are still, on symbolic sizes, whose results are not kept for others of the same arguments.
    unkept = 0
    # Whether an operator has taken a float that varies where compilers need its value; None if nobody wants to know.
    kept_floats: bool | None = None
    # Their rules are kept by the exact class of a mode: what has one for FakeTensorMode is not found for this one.
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
            # With results that are kept it gains nothing.
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
        """Returns the sizes and strides of a view of what is not contiguous, as the kernel has them; it raises where there is no such view.

        PyTorch's rule for fakes gives some that are not there, and other strides to dimensions of one element.
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
        # One element goes with what stands behind it.
        for i in reversed([i for i, n in enumerate(view.shape) if type(n) is int and n == 1]):
            strides[i] = t.stride(-1) if i == view.dim() - 1 else strides[i + 1] * view.shape[i + 1]
        return view.shape, strides


def _contiguous(t: Any, shape: Any) -> tuple[list, list] | None:
    """Returns the sizes and strides of a contiguous tensor's view, where some are symbolic.

    PyTorch compares the sizes one by one, to find those that it may leave: a quarter of Longformer's first capture.
    """
    numbers = [n for n in (*t.shape, *shape) if type(n) is torch.SymInt]
    if not numbers or type(t) is not FakeTensor or 0 in [n for n in t.shape if type(n) is int]:
        return None
    # What data decides has rules of its own.
    if not all([n.node.has_hint() and n.node.hint for n in numbers]):
        return None
    if [expression(n) for n in t.stride()] != [expression(n) for n in make_contiguous_strides_for(t.shape)]:
        return None
    sizes = infer_size(shape, t.numel())
    return list(sizes), list(make_contiguous_strides_for(sizes))


def _is_symbolic(a: Any) -> bool:
    """Returns whether an argument is a symbolic number, or has one, or is a tensor with such a size."""
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
    """Returns a number, or what a symbolic one is called: to compare two of these says nothing about their values."""
    return n.node.expr if type(n) is torch.SymInt else n


def _drops(func: OpOverload, args: Any, kwargs: Any) -> bool:
    """Returns whether an operator that can draw random numbers does: attention without dropout, for one, does not."""
    at = next((i for i, a in enumerate(func._schema.arguments) if a.name == "dropout_p"), None)
    if at is None:
        return True
    p = args[at] if at < len(args) else (kwargs or {}).get("dropout_p", 0.0)
    # One that varies is not asked: that would fix it.
    return type(p) not in (int, float) or p != 0


class Twin(NamedTuple):
    """A fake, what it stands for, and how it looked when the graph began."""

    real: Tensor
    fake: Tensor
    version: int
    requires_grad: bool


class _Made(torch.autograd.Function):
    """A tensor with a history and any strides."""

    @staticmethod
    def forward(ctx: Any, seed: Tensor, sizes: Any, strides: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty_strided(sizes, strides, dtype=dtype, device=device)


def empty_strided(sizes: Any, strides: Any, dtype: torch.dtype, device: torch.device, history: bool) -> Tensor:
    """Makes a tensor that lies so in memory; with a ``history``, if it is to require a gradient and be no leaf."""
    if not history:
        return torch.empty_strided(sizes, strides, dtype=dtype, device=device)
    with torch.enable_grad():
        found: Tensor = _Made.apply(torch.zeros((), requires_grad=True), sizes, strides, dtype, device)
    return found


class Fakes:
    """The fake mode of one segment.

    ``context`` says of a tensor which of its sizes are symbolic: -> (symbolic context or None, source or None); ``bind``
    hears of each that has some, with its fake.
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
        # Whether some number is symbolic.
        self.symbolic = False
        # Whether a tensor's ``data`` has been read: what is written there changes no version.
        self.unversioned = False
        self._signals: tuple[int, ...] | None = None
        # Each `Twin` holds both tensors.
        self._twins: AddressMap[Twin] = AddressMap()
        self._reals: AddressMap[Tensor] = AddressMap()

    def keep_later(self) -> None:
        """Makes the first operators on symbolic sizes cache no results: a check of a result costs as much again, and pays only if layers repeat."""
        if self.mode.cache_enabled:
            self.mode.unkept, self.mode.cache_enabled = UNKEPT, False

    def close(self) -> None:
        """Ends the making of fakes."""
        del self.context, self.bind

    def twin(self, t: Tensor) -> Tensor:
        """Returns the fake that stands for ``t``; a fake is its own, and so is what a transform makes of one."""
        if type(t) is FakeTensor or torch._C._functorch.is_functorch_wrapped_tensor(t):
            return t
        found = self._twins.get(t)
        if found is None:
            if type(t) is not Tensor and not taken_as_it_is(type(t)):
                raise NotFakeable(f"a tensor of class {type(t).__name__}")
            if disowned(t):
                raise NotFakeable("a view made without gradients that was written into")
            if t.is_nested and t.layout is torch.strided:
                raise NotFakeable("a nested tensor, which has no sizes")
            if has_tangent(t):
                raise NotFakeable("a tensor with a tangent of forward-mode gradients")
            symbolic, source = self.context(t)
            if symbolic is not None and (t.is_conj() or t.is_neg()):
                raise NotFakeable("a conjugate or negative view")
            fake: Tensor
            try:
                with unwarned():
                    if symbolic is None:
                        fake = self.mode.from_tensor(t, static_shapes=True)
                    elif t._is_view():
                        fake = self._strided(t, source, symbolic)
                    else:
                        fake = self.mode.from_tensor(t, source=source, symbolic_context=symbolic)
            except UnsupportedFakeTensorException:  # of compressed sparse rows, for one
                raise NotFakeable(f"a tensor of layout {t.layout}") from None
            if symbolic is not None:
                self.bind(t, fake)
            found = self._twins[t] = Twin(t, fake, 0 if t.is_inference() else fake._version, t.requires_grad)
            self._reals[fake] = t
        return found.fake

    def _strided(self, t: Tensor, source: Any, symbolic: Any) -> Tensor:
        # Of a view, PyTorch would make the base symbolic too, of which the program knows nothing.
        assert self.shapes is not None
        sizes, strides, _ = self.shapes.create_symbolic_sizes_strides_storage_offset(t, source, symbolic_context=symbolic)
        return self._like(t, t.requires_grad, sizes, strides)

    def _like(self, t: Tensor, requires_grad: bool, sizes: Any, strides: Any) -> Tensor:
        """Returns a fake, of memory of its own, that has a history if ``t`` has one: into a leaf compilers write without gradients."""
        # What is made in an inference mode has no version: of a view that was made outside, the fake has one as well.
        inference = torch.is_inference_mode_enabled() and t.is_inference()
        with temporarily_clear_interpreter_stack(), self.mode, torch.inference_mode(inference), torch.enable_grad():
            if requires_grad and not t.is_leaf:
                return empty_strided(sizes, strides, t.dtype, t.device, history=True)
            with torch.no_grad():
                return torch.empty_strided(sizes, strides, dtype=t.dtype, device=t.device).requires_grad_(requires_grad)

    def example(self, t: Tensor) -> Tensor:
        """Returns the fake of ``t`` as the graph's input was when the graph began."""
        fake = self.twin(t)
        found = self._twins[t]
        if t.is_inference() or (fake._version == found.version and fake.requires_grad == found.requires_grad):
            return fake
        return self._like(t, found.requires_grad, fake.shape, fake.stride())

    def forget(self) -> None:
        """Forgets numbers that were read from memory, because it is about to be written, also where no version counts the write."""
        if self.unversioned:
            self.mode.epoch += 1

    def number(self, value: torch.SymFloat) -> Tensor:
        """Returns a float as a graph's input: a tensor that is known to hold it."""
        fake: Any = self.mode.from_tensor(carry(0.0), static_shapes=True)
        fake.item_memo = value
        return fake

    def run(self, fn: Callable, args: Any, kwargs: Any) -> Any:
        """Runs ``fn`` on the fakes of the real tensors among its arguments."""
        if self.shapes is None:
            return TRACERS.holding(self._run, fn, args, kwargs)
        # C++ asks the symbols, in Python, and where that raises anything it may end the process.
        if self._signals is None:
            self._signals = handled_signals()
        return TRACERS.holding(standing_in, Deferral, self._signals, self._run, fn, args, kwargs)

    def _run(self, fn: Callable, args: Any, kwargs: Any) -> Any:
        if fn is getattr and args[1] == "data":
            self.unversioned = True
        args = [self.inside(a) for a in args]
        kwargs = {k: self.inside(v) for k, v in kwargs.items()} if kwargs else {}
        # What fails here is tried on the real tensors: no cause for alarm.
        quiet, _LOG.disabled = _LOG.disabled, True
        # The user's hooks are for the real tensors.
        unhooked = _saved_tensors_hooks_set_tracing(True)
        try:
            if not self.symbolic or not any(map(_is_symbolic, (*args, *kwargs.values()))):
                with self.mode:
                    return self._out(fn(*args, **kwargs))
            # Operators that C composes of others would ask there for the value of each size. In Python they take several times as long.
            with self.mode, enable_python_dispatcher():
                return self._out(fn(*args, **kwargs))
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

    def _out(self, value: Any) -> Any:
        if is_a(value, Tensor):
            return self._reals.get(value, value)
        if type(value) is dict:
            return {k: self._out(x) for k, x in value.items()}
        if type(value) in (tuple, list):
            items = [self._out(x) for x in value]
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
    """Returns fakes of which no number is symbolic."""
    shapes_imported()
    return Fakes(ShapeEnv(), _nothing_varies, lambda t, fake: None)


def sizeless() -> Fakes:
    """Returns fakes without any symbol: an operator fails if numbers in a tensor decide a size of its result."""
    return Fakes(None, _nothing_varies, lambda t, fake: None)


class Rows(Fakes):
    """Inside of ``vmap``: what stands for a tensor there is as large as one row. ``around``: the fakes of the captured code, in fake mode."""

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
