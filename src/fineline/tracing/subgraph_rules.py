"""The rules for the code of sub-graphs, by kind: `capture_subgraph` captures a function by them."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

import torch


class Timing(enum.Enum):
    """When the code of a sub-graph runs: where it stands; there and once more in the backward pass; in the backward pass alone."""

    NOW = enum.auto()
    AGAIN = enum.auto()
    LATER = enum.auto()


@dataclasses.dataclass(frozen=True)
class SubGraphRules:
    """The rules of one kind of sub-graph."""

    kind: str
    # Outer tensors and symbolic numbers become inputs, and the code may use objects created in the segment; if not, it has only its operands.
    lifts: bool = True
    # The code runs on fakes, even if the capture around it runs on the real values.
    on_fakes: bool = True
    # The code may write into its operands.
    writes_operands: bool = False
    # The functions that change PyTorch's state and that the code may call; None: all. At its end the state must be the one at its start.
    states: frozenset[Any] | None = None
    # The code may call operators from outside PyTorch and functions under allow_in_graph, whose side effects are unknown.
    custom_operators: bool = True
    # The code may create unbacked symbols; it may use those from around it.
    makes_unbacked: bool = True
    takes_unbacked: bool = True
    # Tensors of one number may be indices.
    number_indices: bool = False
    # The code may return its operands and views of them; it may return symbolic numbers.
    gives_operands: bool = False
    gives_numbers: bool = False
    # Code that runs later than its capture must not read state, or objects created in the segment, that may have changed by then.
    # ``opposite``: for state that it may read although it can change, the capture uses the other answer.
    timing: Timing = Timing.NOW
    opposite: bool = False
    # The sub-graph itself may be differentiated.
    differentiable: bool = False
    # The kinds of sub-graphs that it may contain; None: all.
    contains: frozenset[str] | None = None

    @property
    def later(self) -> bool:
        return self.timing is Timing.LATER

    @property
    def shown_to_modes(self) -> bool:
        """Returns whether function modes see the operators inside, as in eager code. If not, they have seen the operator that runs the code."""
        return self.kind in ("forward", "checkpoint")

    @property
    def holds_wrappers(self) -> bool:
        """Returns whether the operator that runs the code takes and gives tensors of wrapper subclasses."""
        return self.kind == "checkpoint"

    def but(self, **changes: Any) -> SubGraphRules:
        """Returns a copy of the rules with these changes, for one capture."""
        return dataclasses.replace(self, **changes)


# An autograd function: its forward, on the values of the capture around it, and its backward, on stand-ins for the future gradients.
FORWARD = SubGraphRules(
    "forward", lifts=False, on_fakes=False, states=frozenset({torch._C._set_grad_enabled}), custom_operators=False, makes_unbacked=False,
    contains=frozenset(),
)  # fmt: skip
BACKWARD = FORWARD.but(kind="backward", timing=Timing.LATER)
# The functions that control-flow operators run: as a branch or loop body, once for each row, or inside attention.
BRANCH = SubGraphRules("branch", gives_numbers=True)
ROW = SubGraphRules("row")
MODIFIER = SubGraphRules("modifier", number_indices=True, gives_operands=True)
# The function that checkpoint runs again in the backward pass.
CHECKPOINT = SubGraphRules("checkpoint", gives_operands=True, timing=Timing.AGAIN)
# A hook on a tensor, which runs in the backward pass.
HOOK = SubGraphRules(
    "hook", states=frozenset(), makes_unbacked=False, takes_unbacked=False, gives_operands=True, timing=Timing.LATER, contains=frozenset(),
)  # fmt: skip
# A function under nested_compile_region, on the values of the capture around it: equal calls share one graph.
REGION = SubGraphRules("region", on_fakes=False, makes_unbacked=False, takes_unbacked=False)

KINDS = (FORWARD, BACKWARD, BRANCH, ROW, MODIFIER, CHECKPOINT, HOOK, REGION)
