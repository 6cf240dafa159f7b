"""Finds an operator of a graph that does not run on fake tensors, and that therefore no compiler accepts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.fx import GraphModule, Interpreter, Node

from fineline.bytecode.asynchronous import let_pass
from fineline.fake.fake_tensors import unsymbolic
from fineline.guards.facts import ambient_facts
from fineline.kinds import is_a
from fineline.torch_facts.thread_state import Standing


class _Finder(Interpreter):
    """Runs a graph until a node of it fails."""

    failed: Node | None = None

    def run_node(self, n: Node) -> Any:
        self.failed = n
        result = super().run_node(n)
        self.failed = None
        return result


def unfaked(gm: GraphModule, examples: Sequence[Any]) -> str:
    """Returns the name of the first operator that fails on fake tensors; "" if there is none, or if it runs graphs itself."""
    finder, standing = _Finder(gm), Standing(ambient_facts())
    try:
        # As AOTAutograd runs it: some operators run on fake tensors, but fail when their writes become results.
        run, fake = dispatch_functionalize(finder.run), next((t for t in examples if is_a(t, FakeTensor)), None)
        if fake is None:
            unsymbolic().run(run, examples, None)
        else:
            # The examples of a graph that was compiled in the background.
            with fake.fake_mode:
                run(*examples)
    except Exception as e:  # the user gets the backend's own error
        let_pass(e)
        # It may have failed inside a transform, for example.
        standing.put_back()
        node = finder.failed
        if node is None or not node.op.startswith("call_") or is_a(node.target, HigherOrderOperator):
            return ""
        return node.target if is_a(node.target, str) else getattr(node.target, "__name__", "")
    return ""
