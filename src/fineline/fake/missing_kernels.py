"""Which operator of a graph does not run on fake tensors: no compiler takes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch._ops import HigherOrderOperator
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
    """Returns the name of the first such operator; "" if there is none, or it runs graphs itself."""
    finder, standing = _Finder(gm), Standing(ambient_facts())
    try:
        # As AOTAutograd runs it: some operators run on fake tensors as they are, and not when what they write is a result.
        unsymbolic().run(dispatch_functionalize(finder.run), examples, None)
    except Exception as e:  # the backend's own error is what is told
        let_pass(e)
        # It may have failed inside of a transform, say.
        standing.put_back()
        node = finder.failed
        if node is None or not node.op.startswith("call_") or is_a(node.target, HigherOrderOperator):
            return ""
        return node.target if is_a(node.target, str) else getattr(node.target, "__name__", "")
    return ""
