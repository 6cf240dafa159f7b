"""Running an operator: on the values themselves, or in fake mode on what stands for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._library.utils import has_fake_kernel
from torch._ops import OpOverload
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from fineline.bytecode.asynchronous import let_pass
from fineline.fake.fake_tensors import DATA_DEPENDENT, NO_KERNEL, QUANTIZING, NotFakeable, unsymbolic
from fineline.frames.frame import covered
from fineline.frames.graph_breaks import GraphBreak
from fineline.kinds import is_a
from fineline.policy.selector import describe
from fineline.tensor_ops.fake_forms import FAKE_FORMS
from fineline.tracing.interp import Interp

_OUT_OF = (MemoryError, RecursionError, torch.OutOfMemoryError)


@contextmanager
def computing(interp: Interp) -> Iterator[None]:
    """Marks the operators in a block as not the user's."""
    before, interp.computing = interp.computing, True
    try:
        yield
    finally:
        interp.computing = before


def compute(interp: Interp, fn: Any, args: Any, kwargs: dict | None, born: bool = True) -> Any:
    """Runs an operator: on the values themselves, or in fake mode on what stands for them. ``born``: new symbols are sizes of its result."""
    unfaked = interp.lessons.graphs.no_fake_kernel
    if unfaked and getattr(fn, "__name__", "") in unfaked:
        raise GraphBreak(fn, tuple(args), kwargs, "FL516", f"{describe(fn)} does not run on fake tensors")
    if interp.fakes is None:
        try:
            return fn(*args, **kwargs) if kwargs else fn(*args)
        except Exception as e:
            let_pass(e)
            # An error that nobody handles leaves no program.
            if not interp.trace.active or interp.opaque is not None or is_a(e, _OUT_OF) or not covered(interp.frame) or _always(interp, fn, args, kwargs, e):
                raise
            text = f"{describe(fn)} raises {type(e).__name__}, which the numbers in its tensors decide"
            graph_break = GraphBreak(fn, tuple(args), kwargs, "FL523", text)
            graph_break.raised = e
        raise graph_break
    name = getattr(fn, "__name__", str(fn))
    if name.partition(".")[0] in QUANTIZING:
        raise GraphBreak(fn, tuple(args), kwargs, "FL516", f"{describe(fn)} gives a quantized tensor, which no fake tensor stands for")
    interp.computing = True
    try:
        result = interp.fakes.run(FAKE_FORMS.get(fn, fn), args, kwargs)
        shape_env = interp.fakes.mode.shape_env
        if born and shape_env is not None and shape_env.pending_fresh_unbacked_symbols:
            if not interp.tensors.shapes(interp) and _open(result, interp.trace.symbols.places.leaves if interp.trace.symbols is not None else ()):
                raise GraphBreak(fn, tuple(args), kwargs, "FL508", f"the shape of {describe(fn)}'s result depends on a tensor's values")
            if interp.trace.symbols is not None:
                interp.trace.symbols.born(result)
        return result
    except DATA_DEPENDENT:
        raise GraphBreak(fn, tuple(args), kwargs, "FL508", f"{describe(fn)}'s result depends on a tensor's values") from None
    except NO_KERNEL as e:
        raise GraphBreak(fn, tuple(args), kwargs, "FL516", f"{describe(fn)} does not run on fake tensors: {e}") from None
    except Exception as e:
        let_pass(e)
        # The exception itself, and what it says, are those of the real tensors.
        # A `torch.library.custom_op` without a fake kernel raises a plain RuntimeError.
        error = "FL516" if is_a(fn, OpOverload) and not has_fake_kernel(fn) else "FL515"
        graph_break = GraphBreak(fn, tuple(args), kwargs, error, f"{describe(fn)} raises {type(e).__name__}: {_in_words(interp, str(e))}")
        graph_break.keeps_variables = True
        raise interp.only_live(graph_break) from None
    finally:
        interp.computing = False


def _in_words(interp: Interp, text: str) -> str:
    """Returns what PyTorch says of fake tensors, with what the user's code reads in the place of symbols."""
    return text if interp.trace.symbols is None else interp.trace.symbols.in_words(text)


def _open(result: Any, given: Any) -> bool:
    """Returns whether only the graph knows a size of what an operator gave; ``given``: the symbols of inputs, of which some may be marked so."""
    if type(result) in (tuple, list):
        return any([_open(t, given) for t in result])
    sizes: list[Any] = [n for n in result.shape if type(n) is torch.SymInt] if is_a(result, torch.Tensor) else []
    return any([free_unbacked_symbols(n.node.expr).difference(given) for n in sizes])


def _always(interp: Interp, fn: Any, args: Any, kwargs: dict | None, error: Exception) -> bool:
    """Returns whether ``error`` follows from what the guards hold: it is raised for tensors without numbers, too."""
    if torch._C._functorch.get_dynamic_layer_stack_depth():
        # What a transform wraps is on no fake; and PyTorch's words for that would leave the thread's dispatch other than it was.
        return False
    try:
        with computing(interp):
            unsymbolic().run(FAKE_FORMS.get(fn, fn), args, kwargs)
    except (*DATA_DEPENDENT, *NO_KERNEL, NotFakeable):
        return is_a(error, NotImplementedError)
    except Exception as e:
        let_pass(e)
        return type(e) is type(error)
    return False


def compute_known(interp: Interp, fn: Any, args: Any, kwargs: dict | None) -> Any:
    """Returns, in fake mode, the real result of an operator on constant tensors; otherwise None, because its own result has the numbers."""
    if interp.fakes is None:
        return None
    interp.computing = True
    try:
        return fn(*[interp.known.numbers(a) for a in args], **(kwargs or {}))
    finally:
        interp.computing = False
