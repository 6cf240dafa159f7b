"""Running an operator: on the values themselves, or in fake mode on what stands for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from fineline.bytecode.asynchronous import let_pass
from fineline.fake.fake_tensors import DATA_DEPENDENT, NO_KERNEL, QUANTIZING, NotFakeable, unsymbolic
from fineline.frames.frame import covered
from fineline.frames.graph_breaks import GraphBreak
from fineline.kinds import is_a
from fineline.policy.selector import describe
from fineline.tensor_ops.fake_forms import FAKE_FORMS

_OUT_OF = (MemoryError, RecursionError, torch.OutOfMemoryError)


@contextmanager
def computing(vm: Any) -> Iterator[None]:
    """What runs now is none of the user's operators."""
    before, vm.computing = vm.computing, True
    try:
        yield
    finally:
        vm.computing = before


def compute(vm: Any, fn: Any, args: Any, kwargs: dict | None, born: bool = True) -> Any:
    """Runs an operator: on the values themselves, or in fake mode on what stands for them. ``born``: new symbols are sizes of its result."""
    unfaked = vm.options.unfaked
    if unfaked and getattr(fn, "__name__", "") in unfaked:
        raise GraphBreak(fn, tuple(args), kwargs, "FL516", f"{describe(fn)} does not run on fake tensors")
    if vm.fakes is None:
        try:
            return fn(*args, **kwargs) if kwargs else fn(*args)
        except Exception as e:
            let_pass(e)
            # An error that nobody handles leaves no program.
            if not vm.cap.active or vm.opaque is not None or is_a(e, _OUT_OF) or not covered(vm.frame) or _always(vm, fn, args, kwargs, e):
                raise
            text = f"{describe(fn)} raises {type(e).__name__}, which the numbers in its tensors decide"
            border = GraphBreak(fn, tuple(args), kwargs, "FL523", text)
            border.raised = e
        raise border
    name = getattr(fn, "__name__", str(fn))
    if name.partition(".")[0] in QUANTIZING:
        raise GraphBreak(fn, tuple(args), kwargs, "FL516", f"{describe(fn)} gives a quantized tensor, which no fake tensor stands for")
    vm.computing = True
    try:
        result = vm.fakes.run(FAKE_FORMS.get(fn, fn), args, kwargs)
        if born and vm.fakes.mode.shape_env.pending_fresh_unbacked_symbols:
            if not vm.tensors.shapes(vm) and _open(result, vm.cap.symbols.leaves if vm.cap.symbols is not None else ()):
                raise GraphBreak(fn, tuple(args), kwargs, "FL508", f"the shape of {describe(fn)}'s result depends on a tensor's values")
            if vm.cap.symbols is not None:
                vm.cap.symbols.born(result)
        return result
    except DATA_DEPENDENT:
        raise GraphBreak(fn, tuple(args), kwargs, "FL508", f"{describe(fn)}'s result depends on a tensor's values") from None
    except NO_KERNEL as e:
        raise GraphBreak(fn, tuple(args), kwargs, "FL516", f"{describe(fn)} does not run on fake tensors: {e}") from None
    except Exception as e:
        let_pass(e)
        # The exception itself, and what it says, are those of the real tensors.
        border = GraphBreak(fn, tuple(args), kwargs, "FL515", f"{describe(fn)} raises {type(e).__name__}: {_in_words(vm, str(e))}")
        border.keeps_variables = True
        raise vm.only_live(border) from None
    finally:
        vm.computing = False


def _in_words(vm: Any, text: str) -> str:
    """Returns what PyTorch says of fake tensors, with what the user's code reads in the place of symbols."""
    return text if vm.cap.symbols is None else vm.cap.symbols.in_words(text)


def _open(result: Any, given: Any) -> bool:
    """Returns whether only the graph knows a size of what an operator gave; ``given``: the symbols of inputs, of which some may be marked so."""
    if type(result) in (tuple, list):
        return any([_open(t, given) for t in result])
    sizes: list[Any] = [n for n in result.shape if type(n) is torch.SymInt] if is_a(result, torch.Tensor) else []
    return any([free_unbacked_symbols(n.node.expr).difference(given) for n in sizes])


def _always(vm: Any, fn: Any, args: Any, kwargs: dict | None, error: Exception) -> bool:
    """Returns whether ``error`` follows from what the guards hold: it is raised for tensors without numbers, too."""
    if torch._C._functorch.get_dynamic_layer_stack_depth():
        # What a transform wraps is on no fake; and PyTorch's words for that would leave the thread's dispatch other than it was.
        return False
    try:
        with computing(vm):
            unsymbolic().run(FAKE_FORMS.get(fn, fn), args, kwargs)
    except (*DATA_DEPENDENT, *NO_KERNEL, NotFakeable):
        return is_a(error, NotImplementedError)
    except Exception as e:
        let_pass(e)
        return type(e) is type(error)
    return False


def compute_known(vm: Any, fn: Any, args: Any, kwargs: dict | None) -> Any:
    """In fake mode: what an operator on known tensors gives, in numbers. Else None: the operator's own result holds them."""
    if vm.fakes is None:
        return None
    vm.computing = True
    try:
        return fn(*[vm.known.numbers(a) for a in args], **(kwargs or {}))
    finally:
        vm.computing = False
