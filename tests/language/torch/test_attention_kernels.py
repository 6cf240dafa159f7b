"""Blocks and settings that say which kernels PyTorch may choose: those of attention are in the graph, all others break it.

What flash attention gives is not the same to the last bit as what the plain one gives, and lies in memory in another way: a wrong choice shows.
"""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch.utils.checkpoint import checkpoint

import fineline
from fineline.errors import FinelineError
from tests.oracle import Program, Table, check, t

table = Table()
MATH, FLASH, CUDNN = SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION


def tokens(place: int) -> tuple[Any, ...]:
    return (t(place, 1, 4, 2, 8).transpose(1, 2),)


def attend(x):
    return F.scaled_dot_product_attention(x, x, x)


def allowed():
    return [name for name in ("flash", "mem_efficient", "math", "cudnn") if getattr(torch.backends.cuda, f"{name}_sdp_enabled")()]


@table.snippet(args=tokens, max_graphs=1)
def one_kernel(x):
    y = attend(x * 2)
    with sdpa_kernel(MATH):
        z = attend(x * 2)
    return y, z, attend(z)


@table.snippet(args=tokens, max_graphs=1, grad=True)
def one_kernel_with_gradients(x):
    with sdpa_kernel(MATH):
        y = attend(x)
    return y + attend(x).sin()


@table.snippet(args=tokens, max_graphs=1)
def several_kernels(x):
    with sdpa_kernel([FLASH, MATH]) as given:
        y = attend(x)
        inside = allowed()
    return y + 1, inside, allowed(), given


@table.snippet(args=tokens, max_graphs=1)
def kernels_in_an_order(x):
    with sdpa_kernel([MATH, FLASH], set_priority=True):
        y = attend(x)
        inside = torch._C._get_sdp_priority_order()
    return y, inside, torch._C._get_sdp_priority_order()


@sdpa_kernel(MATH)
def plainly(x):
    return attend(x) + 1


@table.snippet(args=tokens, max_graphs=1)
def as_a_decorator(x):
    return plainly(x) * 2, attend(x)


@table.snippet(args=tokens, max_graphs=1)
@sdpa_kernel([MATH])
def as_the_decorator_of_all(x):
    return attend(x) * 2


@table.snippet(args=tokens, max_graphs=1)
def blocks_in_blocks(x):
    with sdpa_kernel([FLASH, MATH]):
        a = attend(x)
        with sdpa_kernel(MATH):
            b = attend(x)
            with sdpa_kernel(FLASH):
                c = attend(x)
        return a, b, c, attend(x)


@table.snippet(args=tokens, max_graphs=1)
def in_a_loop(x):
    given = []
    for n in range(4):
        with sdpa_kernel(MATH) if n % 2 else contextlib.nullcontext():
            x = attend(x)
            given.append(x)
    return given


@table.snippet(args=tokens, max_graphs=1, recompiles={1, 2})
def entered_by_a_stack(x):
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(sdpa_kernel(MATH))
        y = attend(x)
    return y, attend(x)


@table.snippet(args=tokens, max_graphs=1)
def with_an_exception_inside(x):
    try:
        with sdpa_kernel(MATH):
            y = attend(x)
            raise ValueError("out of the block")
    except ValueError:
        pass
    return y, attend(x), allowed()


@table.snippet(args=tokens, min_graphs=0)
def with_an_exception_that_leaves_the_call(x):
    with sdpa_kernel(MATH):
        y = attend(x)
        raise ValueError(str(y.shape))


@table.snippet(args=tokens, breaks=True)
def with_graph_breaks_inside(x):
    a = attend(x)
    with sdpa_kernel(MATH):
        b = attend(x)
        print("inside", allowed())
        c = attend(x)
        print("still inside")
        with sdpa_kernel(FLASH):
            d = attend(x)
            print("deep inside")
            e = attend(x)
        f = attend(x)
    return a, b, c, d, e, f, attend(x)


@table.snippet(args=tokens, breaks=True)
def breaks_before_and_behind(x):
    print("before")
    with sdpa_kernel(MATH):
        x = attend(x)
    print("behind", allowed())
    return attend(x)


@table.snippet(args=tokens, breaks=True, grad=True)
def a_break_inside_with_gradients(x):
    with sdpa_kernel(MATH):
        y = attend(x)
        print("inside")
        z = attend(y.sin())
    return attend(z)


@table.snippet(args=tokens, min_graphs=0)
def a_kernel_that_is_not_there(x):
    with sdpa_kernel(CUDNN):
        return attend(x)


@table.snippet(args=tokens, breaks=True, min_graphs=0)
def a_kernel_that_is_not_there_and_a_handler(x):
    try:
        with sdpa_kernel(CUDNN):
            y = attend(x)
    except RuntimeError as error:
        y = str(error)
    return y, attend(x)


@table.snippet(args=lambda place: (*tokens(place), torch.tensor([[0], [3], [9], [1]][place])), calls=4, recompiles=range(4))
def an_operator_inside_fails(x, index):
    with sdpa_kernel(MATH):
        y = attend(x)[0, 0][index]
    return y, attend(x)


@table.snippet(args=lambda place: (*tokens(place), torch.tensor([[0], [3], [9], [1]][place])), calls=4, recompiles=range(4))
def an_operator_inside_fails_after_a_draw(x, index):
    with sdpa_kernel(MATH):
        y = F.dropout(attend(x))[0, 0][index]
    return y, attend(x)


@table.snippet(args=lambda place: (*tokens(place), torch.tensor([[0], [3], [9], [1]][place])), calls=4, recompiles=range(4))
def an_operator_fails_behind_a_setting(x, index):
    torch.backends.cuda.enable_math_sdp(False)
    y = F.dropout(attend(x))[0, 0][index]
    torch.backends.cuda.enable_math_sdp(True)
    return y


@table.snippet(args=tokens, max_graphs=1)
def settings_there_and_back(x):
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)
    y = attend(x)
    before = allowed()
    torch.backends.cuda.enable_flash_sdp(True)
    torch.backends.cuda.enable_math_sdp(False)
    z = attend(x)
    torch.backends.cuda.enable_math_sdp(True)
    torch.backends.cuda.enable_mem_efficient_sdp(True)
    torch.backends.cuda.enable_cudnn_sdp(True)
    return y, before, z


@table.snippet(args=tokens, recompiles={1})
def a_setting_that_stays(x):
    y = attend(x)
    torch.backends.cuda.enable_flash_sdp(False)
    return y, attend(x)


@table.snippet(args=lambda place: (*tokens(place), place % 2 == 0), calls=4, recompiles={1})
def a_setting_by_an_argument(x, flash):
    torch.backends.cuda.enable_flash_sdp(flash)
    y = attend(x)
    torch.backends.cuda.enable_flash_sdp(True)
    return y


@table.snippet(args=lambda place: (t(place, 1, 2, 3 + place, 8),), calls=4, recompiles=range(4))
def a_setting_by_a_size(x):
    torch.backends.cuda.enable_flash_sdp(x.shape[2] > 4)
    y = attend(x)
    torch.backends.cuda.enable_flash_sdp(True)
    return y


@table.snippet(args=tokens, max_graphs=1)
def reduced_sums(x):
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    with sdpa_kernel(MATH):
        y = attend(x.bfloat16())
    inside = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(False)
    return y, inside, torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()


@table.snippet(args=tokens, max_graphs=1)
def asked_inside(x):
    with sdpa_kernel(MATH):
        y = attend(x) if torch.backends.cuda.math_sdp_enabled() else x
        if not torch.backends.cuda.flash_sdp_enabled():
            y = y + 1
    return y * 2 if torch.backends.cuda.flash_sdp_enabled() else y


def flash(on: bool) -> Any:
    return lambda state: torch.backends.cuda.enable_flash_sdp(on)


@table.snippet(args=tokens, calls=5, change={1: flash(False), 2: flash(True), 3: flash(False), 4: flash(True)}, recompiles={1}, must_recompile=True)
def changed_from_outside(x):
    return attend(x) + 1


@table.snippet(args=tokens, calls=4, change={1: flash(False), 3: flash(True)}, recompiles={1}, must_recompile=True)
def changed_from_outside_around_a_block(x):
    with sdpa_kernel([MATH, FLASH]):
        y = attend(x)
    return y, attend(x), allowed()


def ordered(*order: int) -> Any:
    return lambda state: torch._C._set_sdp_priority_order([*order])


@table.snippet(args=tokens, change={1: ordered(0, 1, 2, 3, 4), 2: ordered(1, 2, 0, 3, 4)}, recompiles={1}, must_recompile=True)
def another_order_from_outside(x):
    with sdpa_kernel([FLASH, MATH], set_priority=True):
        y = attend(x)
    return y, attend(x), torch._C._get_sdp_priority_order()


@table.program(args=tokens, change={1: lambda state: state["kernels"].remove(FLASH)}, recompiles={1}, must_recompile=True)
def a_list_from_outside():
    state: dict[str, Any] = {"kernels": [FLASH, MATH]}

    def fn(x):
        with sdpa_kernel(state["kernels"]):
            return attend(x) + 1

    return fn, state


@table.program(args=tokens, change={1: lambda state: state.update(kernel=FLASH)}, recompiles={1}, must_recompile=True)
def a_kernel_from_outside():
    state: dict[str, Any] = {"kernel": MATH}

    def fn(x):
        with sdpa_kernel(state["kernel"]):
            y = attend(x)
        return y, state["kernel"] is MATH, state["kernel"] == FLASH, {MATH: 1}.get(state["kernel"]), state["kernel"]

    return fn, state


@table.snippet(args=tokens, max_graphs=1)
def kernels_as_values(x):
    kernels = {MATH: "math", FLASH: "flash"}
    y = x + len(kernels[FLASH]) + int(MATH)
    return y, MATH in kernels, sorted([int(k) for k in kernels]), MATH, [FLASH], MATH == FLASH


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.to_all = nn.Linear(8, 24)

    @sdpa_kernel(MATH)
    def forward(self, x):
        q, k, v = self.to_all(x).chunk(3, -1)
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.0, is_causal=True)


@table.program(args=tokens, grad=True, max_graphs=1)
def a_module():
    torch.manual_seed(0)
    return nn.Sequential(Attention(), Attention())


@table.snippet(args=lambda place: (t(place, 1, 2, 4, 8, grad=True),), calls=3)
def in_a_checkpoint(x):
    def block(x):
        y = x.sin()
        with sdpa_kernel(MATH):
            return attend(y).sin()

    return checkpoint(block, x, use_reentrant=False), attend(x)


@table.snippet(args=lambda place: (*tokens(place), t(place).sum() > 0))
def in_branches(x, which):
    def one(x):
        with sdpa_kernel(MATH):
            return attend(x).contiguous()

    return torch.cond(which, one, lambda x: attend(x).contiguous(), (x,)), attend(x)


@table.snippet(args=tokens, breaks=True, recompiles={1, 2})
def a_branch_inside(x):
    with sdpa_kernel(MATH):
        y = attend(x)
        if y.sum() > 0:
            y = y + 1
        else:
            y = attend(y) - 1
    return attend(y)


@table.snippet(args=tokens, breaks=True, recompiles={1, 2})
def a_number_inside(x):
    with sdpa_kernel(MATH):
        y = attend(x) * x.sum().item()
        y = attend(y)
    return attend(y), allowed()


@table.snippet(args=tokens, breaks=True)
def left_by_a_generator(x):
    def blocks():
        with sdpa_kernel(MATH):
            yield attend(x)
            yield attend(x)
        yield attend(x)

    made = blocks()
    first = next(made)
    print("between")
    return first, next(made), next(made)


@table.snippet(args=tokens, breaks=True)
def other_settings_break_graphs(x):
    y = attend(x)
    with torch.backends.cudnn.flags(enabled=False):
        a = torch.backends.cudnn.enabled
        y = y * 2
    with torch.backends.mkldnn.flags(enabled=False):
        b = torch.backends.mkldnn.enabled
        y = y @ y.mT
    torch.use_deterministic_algorithms(True)
    c = torch.are_deterministic_algorithms_enabled()
    y = y.cumsum(0)
    torch.use_deterministic_algorithms(False)
    return y + 1, a, b, c, torch.backends.cudnn.enabled, torch.backends.mkldnn.enabled


@table.snippet(args=lambda place: (t(place, 2, 4, 6), t(place, 3, 2, 4)), breaks=True)
def a_loss_without_cudnn(logits, x):
    probabilities = F.log_softmax(logits, -1).transpose(0, 1)
    lengths = torch.tensor([4, 4]), torch.tensor([2, 2])
    with torch.backends.cudnn.flags(enabled=False):
        loss = F.ctc_loss(probabilities, torch.ones(2, 2, dtype=torch.long), *lengths)
    return loss, x * 2


def mkldnn(on: bool) -> Any:
    return lambda state: torch._C._set_mkldnn_enabled(on)


@table.snippet(change={1: mkldnn(False), 2: mkldnn(True)}, recompiles={1}, must_recompile=True)
def other_settings_from_outside(x):
    return x @ x.T, torch.backends.mkldnn.enabled


@table.program(max_graphs=1, options={"fullgraph": True}, args=lambda k: (tokens(k)[0],))
def what_attention_may_use_is_asked():
    """Which kernels there are follows from what is guarded; the object that describes the call is made anew where it leaves."""
    def fn(q):
        params = torch.backends.cuda.SDPAParams(q, q * 2, q, None, 0.25, False, False)
        y = q * 2 if torch.backends.cuda.can_use_flash_attention(params) else q + 1
        return y.sin() + params.dropout, params.is_causal, params.query is q, params.key + 1, params.attn_mask

    return fn


@table.snippet(recompiles={1}, options={"fullgraph": True}, calls=4, args=lambda k: (t(k, 1, 2, 3 + k, 4), t(k + 9, 1, 2, 6, 4)))
def what_attention_may_use_is_asked_for_sizes_that_vary(q, k):
    params = torch.backends.cuda.SDPAParams(q, k, k, None, 0.0, True, False)
    flash = torch.backends.cuda.can_use_flash_attention(params)
    efficient = torch.backends.cuda.can_use_efficient_attention(params)
    return q * 2 if flash or efficient else q + 1


# A PyTorch that is built for CUDA asks the device, and raises where there is none.
@table.snippet(steady=False, min_graphs=0, args=lambda k: (tokens(k)[0],))
def whether_attention_may_use_cudnn(q):
    return q + 1, torch.backends.cuda.can_use_cudnn_attention(torch.backends.cuda.SDPAParams(q, q, q, None, 0.0, True, False))


@table.snippet(breaks=True, args=lambda k: (tokens(k)[0],))
def description_of_attention_of_too_little(q):
    y = q * 2
    try:
        torch.backends.cuda.SDPAParams(q, q)
    except TypeError as e:
        return y + 1, str(e).split(":")[0]


@table.snippet(breaks=True, args=lambda k: (tokens(k)[0],))
def description_of_attention_across_a_break(q):
    params = torch.backends.cuda.SDPAParams(q, q * 3, q, None, 0.25, True, False)
    y = q + 1
    torch._dynamo.graph_break()
    return params.key + y, params.is_causal, torch.backends.cuda.can_use_flash_attention(params)


@table.program(max_graphs=1, options={"fullgraph": True}, args=lambda k: (t(k, 1, 2, 3, 4), t(k + 9, 1, 2, 5, 4)))
def a_causal_bias():
    bias = causal_lower_right(3, 5)
    with torch._C.DisableTorchFunctionSubclass():
        # Its own memory holds nothing, and the comparison reads it.
        torch.Tensor.zero_(bias)

    def fn(q, k):
        q = q * 2
        return F.scaled_dot_product_attention(q, k, k, attn_mask=bias) + 1

    return fn


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_attention_kernels(program: Program, twin: str) -> None:
    check(program, twin)


def test_a_wrong_choice_shows() -> None:
    (x,) = tokens(0)
    y = attend(x)
    with sdpa_kernel(MATH):
        assert attend(x).stride() != y.stride() and not torch.equal(attend(x), y)


def graphs(fn: Any, *args: Any) -> int:
    """The graphs of one call; there is no graph break."""
    told = fineline.explain(fn)(*args)
    assert not told.breaks, str(told)
    return len(told.graphs)


@pytest.mark.parametrize("fn", [one_kernel, several_kernels, kernels_in_an_order, as_a_decorator, blocks_in_blocks, in_a_loop, settings_there_and_back])
def test_one_graph(fn: Any) -> None:
    assert graphs(fn, *tokens(0)) == 1


def kernels() -> list[SDPBackend]:
    return torch.nn.attention._cur_sdpa_kernel_backends(with_priority=True)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_the_kernel_at_each_call(backend: str) -> None:
    """A kernel that is not there raises: also where one had been chosen, and kept on disk, for the same graph."""
    x = tokens(0)[0]
    fn = fineline.compile(attend, backend=backend)
    for _ in range(2):
        assert fn(x).stride() == attend(x).stride()
        with sdpa_kernel(MATH):
            assert fn(x).stride() == attend(x).stride()
        with sdpa_kernel(CUDNN), pytest.raises(RuntimeError, match="No viable backend"):
            fn(x)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_breaks_inside_of_a_block(backend: str) -> None:
    """A compiler traces a graph that is cut inside of a block more than once, each time from the same state on."""
    def many(x):
        for _ in range(8):
            x = attend(x)
        return x

    def both(x):
        a = many(x)
        with sdpa_kernel(MATH):
            b = many(x)
            fineline.graph_break()
            c = many(x)
        return a, b, c, many(x)

    x, before = tokens(0)[0], kernels()
    fn = fineline.compile(both, backend=backend)
    for _ in range(2):
        assert [y.stride() for y in fn(x)] == [y.stride() for y in both(x)]
        assert kernels() == before


def test_a_pass_that_drops_what_nobody_uses() -> None:
    def backend(gm: Any, inputs: Any) -> Any:
        gm.graph.eliminate_dead_code()
        gm.recompile()
        return gm.forward

    x = tokens(0)[0]
    fn = fineline.compile(one_kernel, backend=backend)
    assert [y.stride() for y in fn(x)] == [y.stride() for y in one_kernel(x)]


@pytest.mark.parametrize("block", [torch.no_grad, lambda: torch.autocast("cpu", torch.bfloat16)], ids=["no_grad", "autocast"])
def test_a_graph_that_fails_inside_of_a_block(block: Any) -> None:
    """It leaves PyTorch's state as the user's code would have left it."""
    def fn(x, index):
        with block():
            y = F.dropout(x @ x)[index]
        return y + 1

    compiled = fineline.compile(fn, backend="eager")
    state = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.autocast_increment_nesting(), torch.autocast_decrement_nesting()
    for index in (0, 1, 9, 2, 9):
        with pytest.raises(IndexError) if index == 9 else contextlib.nullcontext():
            compiled(t(0, 4, 4), torch.tensor([index]))
        now = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.autocast_increment_nesting(), torch.autocast_decrement_nesting()
        assert now == state


def test_a_layer_that_chooses_when_it_runs() -> None:
    """Compiled, it would run in the state around the block."""
    def fn(x, w, b):
        with torch.no_grad(), sdpa_kernel(MATH):
            return torch._native_multi_head_attention(x, x, x, 8, 2, w, b, w[:8], b[:8])[0]

    given = t(0, 2, 4, 8), t(1, 24, 8), t(2, 24)
    assert graphs(fn, *given) == 1
    refused = fineline.compile(fn, backend="eager", fullgraph=True)
    with pytest.raises(FinelineError, match="_native_multi_head_attention runs in another state when compiled"):
        refused(*[x.to("meta") for x in given])
