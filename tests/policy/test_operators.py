"""Operators by identity: for each operator of PyTorch's own database, a rule meets every spelling."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db

import fineline
from fineline import Policy
from fineline.torch_facts.callables import classify_torch
from fineline.torch_facts.spellings import operator_name

# Entries whose callables are made for the tests, or give numbers and not tensors.
LISTED = [
    op
    for op in op_db
    if operator_name(op.op) is not None
    and classify_torch(op.op) == "op"
    and torch.float32 in op.supported_dtypes("cpu")
    and not op.variant_test_name
    and (op.method_variant is not None or op.operator_variant is not None)
]


class Probe:
    def __init__(self) -> None:
        self.operators: list[Any] = []

    def __call__(self, gm: Any, inputs: Any) -> Any:
        self.operators += [n.target for n in gm.graph.nodes if n.op.startswith("call_") and n.target is not operator.getitem]
        return gm.forward


def spelled(op: Any) -> Iterator[tuple[str, Callable]]:
    for kind in ("op", "method_variant", "operator_variant", "inplace_variant", "inplace_operator_variant"):
        fn = getattr(op, kind)
        if callable(fn):
            yield kind, fn
    for alias in op.aliases:
        if alias.op is not None and operator_name(alias.op) == operator_name(op.op):
            yield f"alias {alias.name}", alias.op


@pytest.mark.parametrize("op", LISTED, ids=lambda op: op.formatted_name)
def test_every_spelling_meets_the_rule(op: Any) -> None:
    sample = next(iter(op.sample_inputs_func(op, "cpu", torch.float32, False)), None)
    if sample is None or not isinstance(sample.input, Tensor):
        pytest.skip("no samples")
    checked = 0
    for kind, fn in spelled(op):
        inplace = kind.startswith("inplace")
        rule = Policy(disallow=fn if inplace else op.op)
        outcome = []
        for policy in (None, rule):  # noqa: B023
            probe = Probe()
            x = sample.input.clone()

            def call(x, *args, **kwargs):
                return fn(x, *args, **kwargs)

            torch.manual_seed(0)
            try:
                result = fineline.compile(call, backend=probe, policy=policy)(x, *sample.args, **sample.kwargs)
            except (RuntimeError, TypeError, IndexError) as e:
                outcome.append((type(e), [], None))
                continue
            outcome.append((result, probe.operators, x))
        (plain, operators, _), (ruled, left, _) = outcome
        if not operators:
            continue  # this spelling can't be called on the sample, or never is in a graph
        assert left == [], f"{kind} {fn}: the graph still has {left}"
        torch.testing.assert_close(ruled, plain, equal_nan=True)
        checked += 1
    if not checked:
        pytest.skip("no spelling is in a graph on this sample")
