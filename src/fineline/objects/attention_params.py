"""`SDPAParams`, which describe a call of attention, and the functions that answer from them which kernels may run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from torch import Tensor
from torch.backends.cuda import SDPAParams, can_use_cudnn_attention, can_use_efficient_attention, can_use_flash_attention

from fineline.frames.frame import Frame
from fineline.kinds import is_a
from fineline.objects.copying import mark_made
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.tracing.interp import Call, Handler


def attention_fields(v: SDPAParams) -> tuple[Any, ...]:
    """Returns the arguments that make such an object."""
    return v.query, v.key, v.value, v.attn_mask, v.dropout, v.is_causal, v.enable_gqa


def _make(call: Call) -> Frame | None:
    """Makes the object, which holds the very tensors that it gets; the numbers beside them have to be known."""
    if not call.trace.active:
        return call.run_natively()
    if any([type(a) in SYMBOLIC for a in call.values()]):
        raise call.graph_break("FL410", "SDPAParams of a number that varies")
    try:
        made = SDPAParams(*call.args, **(call.kwargs or {}))
    except TypeError:
        raise call.graph_break("FL437", "SDPAParams rejects what it gets") from None
    mark_made(call.trace, made)
    return call.finish(made)


def _answer(call: Call) -> Frame | None:
    """Answers from the dtypes, sizes and strides of the tensors, and from PyTorch's settings: the guards cover all of these."""
    interp, trace, params = call.interp, call.trace, call.args[0] if call.args else None
    if not trace.active or type(params) is not SDPAParams or params not in trace.made or len(call.values()) > 1:
        return interp.tensors.call(call, "query")
    fields = attention_fields(params)
    tensors = [a for a in fields if is_a(a, Tensor)]
    if trace.recorder.kernels.unmeasured and not trace.recorder.all_measured(tensors):
        raise call.graph_break("FL503", f"{call.fn.__name__} reads strides that nothing measures")
    return call.finish(interp.backing.run(interp, _ask, [call.fn, *fields], None))


def _ask(fn: Callable[[Any], bool], *fields: Any) -> bool:
    return fn(SDPAParams(*fields))


HANDLERS: Mapping[Any, Handler] = MappingProxyType(
    {SDPAParams: _make, can_use_cudnn_attention: _answer, can_use_efficient_attention: _answer, can_use_flash_attention: _answer}
)
