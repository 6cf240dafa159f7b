"""The option ``shadow``: the gradients of a compiled graph are compared with those of eager code when its backward pass comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from fineline.bytecode.asynchronous import let_pass
from fineline.fx.tensor_copies import copied_inputs
from fineline.guards.ambient_table import AMBIENT
from fineline.kinds import is_a
from fineline.report.differences import Difference, Noise, Precisions, first_difference
from fineline.torch_facts.random_state import RandomStates, put_back, random_states
from fineline.torch_facts.thread_state import CallState, restore

# Where a gradient goes: a node of autograd, and the number of one of its inputs.
Edge = tuple[Any, int]


class WrongGradient(NamedTuple):
    """The first gradient that differs, of the graph's input ``number``."""

    difference: Difference
    number: int


class Backward:
    """The backward pass of one call of a compiled graph, from the state before the call.

    Only what the graph writes is copied before the call. When the backward pass comes, the graph runs eagerly on copies of its inputs, unless
    one of them has been written since.
    """

    def __init__(self, inputs: Sequence[Any], written: Sequence[bool], random: RandomStates) -> None:
        """``written``: for each input, whether the graph writes it."""
        self._inputs = list(inputs)
        for i in [i for i, w in enumerate(written) if w]:
            self._inputs[i] = inputs[i].detach().clone().requires_grad_(inputs[i].requires_grad)
        self._random, self._facts = random, AMBIENT.now()
        self._versions: list[int] = []
        shared = _memories([t for t, w in zip(inputs, written, strict=True) if w])
        apart = len(shared) == sum(written) and not shared & _memories([t for t, w in zip(inputs, written, strict=True) if not w])
        # None if its copies would not share what the inputs do.
        self._edges = {} if not apart else {i: _edge(t) for i, t in enumerate(inputs) if is_a(t, Tensor) and t.requires_grad}
        # By the number of an output of the compiled graph's node of autograd: the number of the graph's result.
        self._results: dict[int, int] = {}
        self._came = False

    def follow(self, results: Sequence[Any], plain: Callable, tell: Callable[[WrongGradient], None]) -> bool:
        """Has the gradients compared with those of ``plain`` when they come; returns whether that is possible.

        It is where autograd sees the compiled graph as one node between its inputs and its results, as it does with AOTAutograd.
        """
        made = {i: r for i, r in enumerate(results) if is_a(r, Tensor) and r.requires_grad and not any([r is t for t in self._inputs])}
        nodes = [r.grad_fn for r in made.values()]
        if not nodes or not self._edges:
            return True
        node = nodes[0]
        if node is None or any([other is not node for other in nodes]):
            return False
        known = list(self._edges.values())
        if not all([edge[0] is None or edge in known for edge in node.next_functions]):
            return False
        self._results = {r.output_nr: i for i, r in made.items()}
        # After the call: a batch norm has written statistics that it does not read, which eager code does without a new version.
        self._versions = versions(self._inputs)

        def came(received: Sequence[Tensor | None], given: Sequence[Tensor | None]) -> None:
            found = None
            if not self._came:
                self._came = True
                try:
                    found = self._compare(plain, dict(enumerate(node.next_functions)), received, given)
                except Exception as e:
                    # A graph that writes into a leaf, for one, has no gradients that eager code can compute on copies.
                    let_pass(e)
            if found is not None:
                tell(found)

        node.register_hook(came)
        return True

    def _compare(
        self, plain: Callable, edges: Mapping[int, Edge], received: Sequence[Tensor | None], given: Sequence[Tensor | None]
    ) -> WrongGradient | None:  # fmt: skip
        """Returns the first difference; None if there is none, or the gradients can't be compared."""
        given_to = {self._results.get(nr, -1): gradient.detach() for nr, gradient in enumerate(given) if gradient is not None}
        if versions(self._inputs) != self._versions or -1 in given_to or not given_to:
            return None
        expected, tolerance = self._eager_gradients(plain, given_to)
        finite = [g.abs().amax().item() for g in expected if g is not None and g.numel() and bool(g.isfinite().all())]
        noise = Noise(scale=max(finite, default=0.0), tolerance=tolerance)
        for number, edge in self._edges.items():
            # An edge gets the sum for all inputs that are one tensor.
            one = _sum([g for other, g in zip(self._edges.values(), expected, strict=True) if other == edge])
            two = _sum([received[k] for k, other in edges.items() if other == edge])
            if one is None and two is None:
                continue
            one, two = [torch.zeros_like(self._inputs[number]) if g is None else g for g in (one, two)]
            found = first_difference(one, two, noise, "the gradient of an input")
            if found is not None:
                return WrongGradient(found, number)
        return None

    def _eager_gradients(self, plain: Callable, given: Mapping[int, Tensor]) -> tuple[Sequence[Tensor | None], float]:
        """Returns the gradients of the inputs that require some, and the tolerance of their numbers."""
        state, before, precisions = CallState(), random_states(), Precisions()
        try:
            restore(self._facts)
            put_back(self._random)
            torch.set_grad_enabled(True)
            # It would keep the copies.
            torch.set_autocast_cache_enabled(False)
            own = copied_inputs(self._inputs)
            with precisions:
                results = plain(*own)
                wanted = [own[i] for i in self._edges]
                gradients = torch.autograd.grad([results[i] for i in given], wanted, list(given.values()), allow_unused=True)
        finally:
            state.put_back()
            put_back(before)
        return gradients, precisions.tolerance


def versions(inputs: Sequence[Any]) -> list[int]:
    """Returns the versions of tensors, by which writes show; 0 for other inputs."""
    return [t._version if is_a(t, Tensor) else 0 for t in inputs]


def _memories(inputs: Sequence[Any]) -> set[int]:
    return {t.untyped_storage()._cdata for t in inputs if is_a(t, Tensor)}


def _edge(t: Tensor) -> Edge:
    edge = get_gradient_edge(t)
    return edge.node, edge.output_nr


def _sum(gradients: Sequence[Tensor | None]) -> Tensor | None:
    known = [g.detach() for g in gradients if g is not None]
    return torch.stack(known).sum(0) if len(known) > 1 else known[0] if known else None
