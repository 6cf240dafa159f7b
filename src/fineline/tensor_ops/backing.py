"""The two backings of a capture: the user's tensors, or fakes that stand for them. All differences between the two modes are decided here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._library.utils import has_fake_kernel
from torch._ops import OpOverload
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from fineline.backends.lock import TRACERS
from fineline.background.turns import Turn
from fineline.bytecode.asynchronous import let_pass
from fineline.fake.fake_tensors import DATA_DEPENDENT, NO_KERNEL, QUANTIZING, Fakes, NotFakeable, Rows, TransformEnded, unsymbolic
from fineline.frames.frame import covered
from fineline.frames.graph_breaks import GraphBreak, Restart
from fineline.kinds import is_a
from fineline.policy.selector import describe
from fineline.tensor_ops.fake_forms import FAKE_FORMS
from fineline.tracing.constant_tensors import ConstantTensors, FakeConstants
from fineline.tracing.interp import Backing, Interp

_OUT_OF = (MemoryError, RecursionError, torch.OutOfMemoryError)


@contextmanager
def computing(interp: Interp) -> Iterator[None]:
    """Marks the operators in a block as fineline's own, not the user's."""
    before, interp.eager.computing = interp.eager.computing, True
    try:
        yield
    finally:
        interp.eager.computing = before


class LiveBacking(Backing):
    """The backing of a capture on the user's tensors: operators compute, and their writes take effect."""

    __slots__ = ("may_be_symbolic", "real", "restartable", "switches", "undone")

    def __init__(self, switches: bool = False, restartable: bool = False, undone: bool = False) -> None:
        self.real, self.may_be_symbolic = True, False
        self.switches, self.restartable, self.undone = switches, restartable, undone

    @property
    def is_symbolic(self) -> bool:
        return False

    def run(self, interp: Interp, fn: Any, args: Any, kwargs: dict | None, born: bool = True, form: Callable | None = None) -> Any:
        """Runs an operator. Breaks the graph at an error that the guards do not imply and that the user's code handles."""
        unfaked = interp.lessons.graphs.no_fake_kernel
        if unfaked and getattr(fn, "__name__", "") in unfaked:
            raise _unfaked(fn, args, kwargs, "does not run on fake tensors")
        try:
            return fn(*args, **kwargs) if kwargs else fn(*args)
        except Exception as e:
            let_pass(e)
            # If the user's code does not handle the error, the capture makes no program.
            if not interp.trace.active or interp.nested.opaque is not None or is_a(e, _OUT_OF) or not covered(interp.frame):
                raise
            if self._always(interp, fn, args, kwargs, e):
                raise
            text = f"{describe(fn)} raises {type(e).__name__}, which the numbers in its tensors decide"
            graph_break = GraphBreak(fn, tuple(args), kwargs, "FL523", text)
            graph_break.raised = e
        raise graph_break

    def _always(self, interp: Interp, fn: Any, args: Any, kwargs: dict | None, error: Exception) -> bool:
        """Returns whether ``error`` follows from guarded facts: the operator raises the same type on fake tensors."""
        if torch._C._functorch.get_dynamic_layer_stack_depth():
            # A tensor that a transform wraps has no fake, and PyTorch's error about it would leave the thread's dispatch state changed.
            return False
        try:
            with computing(interp):
                self.run_on_fakes(FAKE_FORMS.get(fn, fn), args, kwargs)
        except (*DATA_DEPENDENT, *NO_KERNEL, NotFakeable):
            return is_a(error, NotImplementedError)
        except Exception as e:
            let_pass(e)
            # From PyTorch 2.15 on, more operators raise NotImplementedError for a dtype, where they raise RuntimeError on fake tensors.
            return type(e) is type(error) or (is_a(error, NotImplementedError) and is_a(e, RuntimeError))
        return False

    def run_on_fakes(self, fn: Any, args: Any, kwargs: dict | None) -> Any:
        return unsymbolic().run(fn, args, kwargs)

    def fold(self, interp: Interp, fn: Any, args: Any, kwargs: dict | None) -> Any:
        """Returns None: the operator's result already contains the numbers."""
        return None

    def constants(self) -> ConstantTensors:
        return ConstantTensors()

    def may_have_truth(self, t: Tensor, truth: bool) -> bool:
        """Returns whether ``bool(t)`` is ``truth``; reads the number."""
        # Without dispatch modes, which would count this as an operator of the user's code.
        with torch._C._DisableTorchDispatch():
            return bool(t.detach()) is truth

    def memory(self, interp: Interp, t: Any) -> Any:
        return t

    def view_as_class(self, interp: Interp, t: Tensor, cls: type[Tensor], detached: bool) -> Tensor:
        return Tensor._make_subclass(cls, t) if detached else t.as_subclass(cls)

    def length(self, interp: Interp, t: Tensor) -> Any:
        return len(t)

    def outside(self, value: Any) -> Any:
        return value

    def operands(self, value: Any) -> Any:
        return value

    def body_fakes(self, rows: bool) -> Fakes:
        return Rows(None) if rows else unsymbolic()

    def forget_numbers(self) -> None:
        """Does nothing: this backing reads each number from the tensor and keeps none."""

    def may_have_drawn(self) -> bool:
        return True

    def inner(self) -> LiveBacking:
        return LiveBacking()

    def hold(self, fn: Callable[[], Any]) -> Any:
        """Calls ``fn``, which runs the user's code for real, without a lock."""
        return fn()


class FakeBacking(Backing):
    """The backing of a capture on fakes: tensors have no numbers, sizes may be symbols, and no effect happens before the program runs."""

    __slots__ = ("_fakes", "_turn", "may_be_symbolic", "real", "restartable", "switches", "undone")

    def __init__(self, fakes: Fakes, restartable: bool = False, turn: Turn | None = None) -> None:
        """``turn``: those of a thread that captures beside calls, which it takes before each operator."""
        self._fakes, self._turn = fakes, turn
        self.real, self.may_be_symbolic = False, True
        self.switches, self.restartable, self.undone = False, restartable, True

    @property
    def is_symbolic(self) -> bool:
        return self._fakes.symbolic

    def run(self, interp: Interp, fn: Any, args: Any, kwargs: dict | None, born: bool = True, form: Callable | None = None) -> Any:
        """Runs an operator on fakes. Breaks the graph if it has no fake kernel, raises an error, or returns what depends on tensors' values."""
        name = getattr(fn, "__name__", str(fn))
        if name in interp.lessons.graphs.no_fake_kernel:
            raise _unfaked(fn, args, kwargs, "does not run on fake tensors")
        if name.partition(".")[0] in QUANTIZING:
            raise _unfaked(fn, args, kwargs, "gives a quantized tensor, which no fake tensor stands for")
        if self._turn is not None:
            self._turn.take()
        interp.eager.computing = True
        try:
            result = self._fakes.run(form or FAKE_FORMS.get(fn, fn), args, kwargs)
            shape_env = self._fakes.mode.shape_env
            if born and shape_env is not None and shape_env.pending_fresh_unbacked_symbols:
                if not interp.tensors.shapes(interp) and _open(result, interp.trace.symbols.places.leaves if interp.trace.symbols is not None else ()):
                    raise GraphBreak(fn, tuple(args), kwargs, "FL508", f"the shape of {describe(fn)}'s result depends on a tensor's values")
                if interp.trace.symbols is not None:
                    interp.trace.symbols.born(result)
            return result
        except TransformEnded as e:
            raise Restart("FL515", str(e)) from None
        except DATA_DEPENDENT:
            raise GraphBreak(fn, tuple(args), kwargs, "FL508", f"{describe(fn)}'s result depends on a tensor's values") from None
        except NO_KERNEL as e:
            raise _unfaked(fn, args, kwargs, f"does not run on fake tensors: {e}") from None
        except Exception as e:
            let_pass(e)
            # The graph break reruns the operator on the real tensors, so that the user's code sees their exception and its message.
            # A `torch.library.custom_op` without a fake kernel raises a plain RuntimeError.
            error = "FL516" if is_a(fn, OpOverload) and not has_fake_kernel(fn) else "FL515"
            graph_break = GraphBreak(fn, tuple(args), kwargs, error, f"{describe(fn)} raises {type(e).__name__}: {_in_words(interp, str(e))}")
            graph_break.keeps_variables = True
            raise interp.only_live(graph_break) from None
        finally:
            interp.eager.computing = False

    def run_on_fakes(self, fn: Any, args: Any, kwargs: dict | None) -> Any:
        return self._fakes.run(fn, args, kwargs)

    def fold(self, interp: Interp, fn: Any, args: Any, kwargs: dict | None) -> Any:
        """Returns the operator's result on the constant tensors that hold the numbers of its arguments."""
        with computing(interp):
            return fn(*[interp.tensors.known.numbers(a) for a in args], **(kwargs or {}))

    def constants(self) -> ConstantTensors:
        return FakeConstants(self._fakes)

    def may_have_truth(self, t: Tensor, truth: bool) -> bool:
        """Returns True: the number is not known before the program runs."""
        return True

    def memory(self, interp: Interp, t: Any) -> Any:
        """Returns the fake of a tensor; restarts the capture on the real tensors if the tensor cannot have one."""
        if not is_a(t, Tensor):
            return t
        before, interp.eager.computing = interp.eager.computing, True
        try:
            return self._fakes.twin(t)
        except NotFakeable as e:
            raise Restart("FL515", str(e)) from None
        finally:
            interp.eager.computing = before

    def view_as_class(self, interp: Interp, t: Tensor, cls: type[Tensor], detached: bool) -> Tensor:
        with computing(interp):
            return self._fakes.view_as_class(t, cls, detached)

    def length(self, interp: Interp, t: Tensor) -> Any:
        # For a tensor without dimensions, len() raises Python's error.
        return self.memory(interp, t).shape[0] if t.dim() else len(t)

    def outside(self, value: Any) -> Any:
        return self._fakes.outside(value)

    def operands(self, value: Any) -> Any:
        return self._fakes.inside(value)

    def body_fakes(self, rows: bool) -> Fakes:
        return Rows(self._fakes) if rows else self._fakes

    def forget_numbers(self) -> None:
        self._fakes.forget()

    def may_have_drawn(self) -> bool:
        return self._fakes.mode.moved

    def inner(self) -> FakeBacking:
        return FakeBacking(self._fakes, turn=self._turn)

    def hold(self, fn: Callable[[], Any]) -> Any:
        """Calls ``fn`` under the lock of PyTorch's tracers, which fakes need."""
        return TRACERS.holding(fn)


def _unfaked(fn: Any, args: Any, kwargs: dict | None, text: str) -> GraphBreak:
    return GraphBreak(fn, tuple(args), kwargs, "FL516", f"{describe(fn)} {text}")


def _in_words(interp: Interp, text: str) -> str:
    """Returns an error message of PyTorch about fake tensors, with each symbol replaced by the expression that the user's code reads."""
    return text if interp.trace.symbols is None else interp.trace.symbols.in_words(text)


def _open(result: Any, given: Any) -> bool:
    """Returns whether an operator's result has a size with unbacked symbols other than ``given``, the inputs' (a mark may make one unbacked)."""
    if type(result) in (tuple, list):
        return any([_open(t, given) for t in result])
    sizes: list[Any] = [n for n in result.shape if type(n) is torch.SymInt] if is_a(result, torch.Tensor) else []
    return any([free_unbacked_symbols(n.node.expr).difference(given) for n in sizes])
