"""Bisection of real miscompiles: Inductor with a pass that makes one operator of ATen wrong, in small transformers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._ops import OpOverload

import fineline


class Wrong(CustomGraphPass):
    """Multiplies the results of an operator by 1.01, after Inductor's own passes."""

    def __init__(self, op: OpOverload) -> None:
        self._op = op

    def __call__(self, graph: torch.fx.Graph) -> None:
        for node in graph.find_nodes(op="call_function", target=self._op):
            with graph.inserting_after(node):
                wrong = graph.call_function(torch.ops.aten.mul.Tensor, (node, 1.01))
            node.replace_all_uses_with(wrong, delete_user_cb=lambda user, wrong=wrong: user is not wrong)

    def uuid(self) -> str:
        return f"wrong {self._op}"


@contextlib.contextmanager
def miscompiling(op: OpOverload) -> Iterator[None]:
    with config.patch({"post_grad_custom_post_pass": Wrong(op), "cpp.threads": 1, "compile_threads": 1}):
        yield


def gpt2() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=2, n_embd=16, n_head=2, vocab_size=20, n_positions=16, eos_token_id=1, bos_token_id=1))


def bert() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    return transformers.BertModel(
        transformers.BertConfig(num_hidden_layers=2, hidden_size=16, num_attention_heads=2, intermediate_size=32, vocab_size=20)
    )


IDS = torch.arange(12).view(2, 6)


def far(a: Any, b: Any) -> float:
    return float((a - b).abs().max())


def test_dropout_is_no_fault() -> None:
    """Inductor draws eager code's random numbers for a bisection."""
    net = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.GELU())
    assert fineline.bisect(net, [torch.randn(4, 8)], backend="inductor").status == "right"


@pytest.mark.later
def test_inference() -> None:
    """Of 105 operators tanh is found in 21 runs, and the policy mends the model."""
    net = gpt2().eval()
    with torch.no_grad(), miscompiling(torch.ops.aten.tanh.default):
        found = fineline.bisect(net, [IDS], backend="inductor")
        [culprit] = found.culprits
        [graph] = found.runs[1].graphs
        assert found.status == "mended" and found.policy_text == 'disallow = ["torch.tanh"]\n', found
        assert (culprit.function, culprit.module) == ("NewGELUActivation.forward", "transformer.h.0.mlp.act (NewGELUActivation)")
        assert len(graph.operators) > 90 and found.captures <= 22
        for policy, right in ((None, False), (found.policy, True)):
            fast = fineline.compile(net, backend="inductor", policy=policy)
            fast(IDS)
            assert (far(fast(IDS).logits, net(IDS).logits) < 1e-5) == right


@pytest.mark.later
def test_training() -> None:
    """Only gradients are wrong: an exponential is in the backward pass of gelu alone. With dropout and Adam, in a training step."""
    net = bert().train()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)

    def step(ids: Tensor) -> Tensor:
        opt.zero_grad()
        loss: Tensor = net(ids).last_hidden_state.sin().mean()
        loss.backward()
        opt.step()
        return loss.detach()

    with miscompiling(torch.ops.aten.exp.default):
        found = fineline.bisect(step, [IDS], backend="inductor")
    [culprit] = found.culprits
    assert found.status == "mended" and found.policy_text == 'disallow = ["torch.nn.functional.gelu"]\n', found
    assert culprit.function == "GELUActivation.forward" and found.captures <= 22 and not opt.state
