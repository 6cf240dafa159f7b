"""The option ``shadow``: on a share of calls, compiled graphs run eagerly as well, on copies, and the results are compared."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, FunctionType
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from fineline.backends.eager import as_it_is
from fineline.bytecode.asynchronous import let_pass
from fineline.exception_slots import error_text
from fineline.fx.graph_module import CapturedGraph
from fineline.fx.recorder import computes
from fineline.fx.shadow_backward import Backward, WrongGradient, versions
from fineline.fx.tensor_copies import copied_inputs, is_plain
from fineline.kinds import is_a
from fineline.report.differences import Difference, Noise, Precisions, first_difference
from fineline.report.events import Event
from fineline.torch_facts.callables import classify_torch
from fineline.torch_facts.random_state import RandomStates, put_back, random_states, unmoved
from fineline.torch_facts.thread_state import CallState

log = logging.getLogger("fineline")

DIFFERS, NOT_COMPARED = "FL010", "FL011"
# PyTorch's spelling of the first name in the path of a module.
_ROOT = re.compile(r"^L\['(\w+)'\]")


class Reports(Protocol):
    """What gets the events. ``place``: that of the compiled function."""

    @property
    def place(self) -> tuple[str, int]: ...
    def note(self, event: Event) -> object: ...


class _Eager(NamedTuple):
    """An eager run: its results, or what it has raised, the inputs that it has had, and the random states that it has left.

    ``written``: for each input, whether it has been written. ``noise``: how exact the results are.
    """

    results: Sequence[Any]
    error: Exception | None
    inputs: list[Any]
    written: list[bool]
    random: RandomStates
    noise: Noise


class Shadow:
    """Calls a compiled graph, and on a share of calls the graph as it was captured, before that.

    The eager run gets copies of the graph's inputs, without their history; random states are put back after it. So the call has the
    results and the effects of the compiled graph alone. All code between graphs runs once. If the call is gone backward through, the eager
    backward pass runs before that of the compiled graph is left, and the gradients are compared.
    """

    def __init__(self, gm: CapturedGraph, compiled: Callable, share: float, reports: Reports) -> None:
        self._gm, self._compiled, self._share, self._reports = gm, compiled, share, reports
        self._plain = as_it_is(gm)
        self._calls = 0
        self._told = False
        self._obstacle = _obstacle(gm)
        # Whether autograd sees the nodes of the graph themselves, as they have been captured or as the backend has changed them.
        self._has_nodes = is_a(getattr(compiled, "__self__", None), GraphModule)

    def __call__(self, *inputs: Any) -> Any:
        # The first call, and then one each time that another whole number of shares is reached. No random number decides.
        n, self._calls = self._calls, self._calls + 1
        if (n and int(n * self._share) == int((n - 1) * self._share)) or self._told:
            return self._compiled(*inputs)
        obstacle = self._obstacle or _obstacle_of_inputs(inputs)
        if obstacle:
            self._skip(obstacle)
            return self._compiled(*inputs)
        before = random_states()
        eager = self._run_eagerly(inputs)
        put_back(before)
        backward = Backward(inputs, eager.written, before) if torch.is_grad_enabled() and not self._has_nodes else None
        results = self._compiled(*inputs)
        if not unmoved(before) and not unmoved(eager.random):
            self._skip("it draws random numbers, and the backend draws them in another way")
        else:
            self._compare(eager, results, inputs)
            if backward is not None and not self._told and not backward.follow(results, self._plain, self._tell_gradient):
                self._has_nodes = True
                self._note_obstacle("the gradients of a graph are not compared with eager code, only its results: to autograd it is not one operator")
        return results

    def _run_eagerly(self, inputs: Sequence[Any]) -> _Eager:
        own = copied_inputs(inputs)
        fresh = versions(own)
        state, results, error, precisions = CallState(), (), None, Precisions()
        try:
            # It would keep the copies.
            torch.set_autocast_cache_enabled(False)
            with torch.no_grad(), precisions:
                results = self._plain(*own)
        except Exception as e:
            let_pass(e)
            error = e.with_traceback(None)
        finally:
            state.put_back()
        noise = Noise(tolerance=precisions.tolerance)
        return _Eager(results, error, own, [a != b for a, b in zip(fresh, versions(own), strict=True)], random_states(), noise)

    def _compare(self, eager: _Eager, results: Any, inputs: Sequence[Any]) -> None:
        if eager.error is not None:
            self._tell(Difference("the graph", 0.0, 0.0, f"eager code raises {error_text(eager.error)[:200]}"), None)
            return
        made = self._gm._graph.output_node().args[0]
        nodes: Sequence[Any] = made if is_a(made, (tuple, list)) else ()
        for i, (one, other) in enumerate(zip(eager.results, results, strict=False)):
            found = first_difference(one, other, eager.noise, f"result {i}")
            if found is not None:
                self._tell(found, nodes[i] if i < len(nodes) and is_a(nodes[i], Node) else None)
                return
        # Not only those that the graph is known to write: batch norms write into buffers without an increment of their version.
        for own, given, node in zip(eager.inputs, inputs, self._gm._graph.find_nodes(op="placeholder"), strict=True):
            found = first_difference(own, given, eager.noise, "what the graph writes into an input") if is_a(given, Tensor) else None
            if found is not None:
                self._tell(found, node)
                return

    def _tell(self, found: Difference, node: Node | None) -> None:
        """Reports the first difference of this graph, with its size, module and line."""
        self._told = True
        file, line, module = self._reports.place + ("",)
        if node is not None:
            # Describes the nodes.
            _ = self._gm.graph
            place = re.findall(r'File "(.*)", line (\d+), in ', node.meta.get("stack_trace") or "")
            file, line = (place[-1][0], int(place[-1][1])) if place else (file, line)
            path, cls = list((node.meta.get("nn_module_stack") or {"": ("", None)}).values())[-1]
            named = _ROOT.sub(r"\1", path)
            module = f"{named} ({cls.__qualname__})" if cls is not None else ""
        reason = f"{found}" + (f", in module {module}" if module else "")
        self._reports.note(Event("shadow", DIFFERS, reason, file, line))
        log.warning("fineline: %s:%s: the compiled graph differs from eager code: %s", file, line, reason)

    def _tell_gradient(self, found: WrongGradient) -> None:
        if not self._told:
            node = list(self._gm._graph.find_nodes(op="placeholder"))[found.number]
            self._tell(found.difference._replace(path=f"the gradient of {node.name}"), node)

    def _skip(self, why: str) -> None:
        # For good: what is in the way is a property of the graph, or of the kind of its inputs.
        self._told = True
        self._note_obstacle(f"a graph is not compared with eager code: {why}")

    def _note_obstacle(self, text: str) -> None:
        self._reports.note(Event("shadow", NOT_COMPARED, text, *self._reports.place))


def _obstacle(gm: CapturedGraph) -> str:
    """Returns why a graph can't run twice; "" if it can."""
    for part in gm.modules():
        for node in part._graph.nodes if is_a(part, CapturedGraph) else ():
            repeatable = node.op != "call_function" or computes(node) or classify_torch(node.target) == "state"
            if node.op in ("call_function", "call_method", "call_module") and not repeatable:
                target: Any = node.target
                name = target.__name__ if is_a(target, (FunctionType, BuiltinFunctionType)) else target
                return f"{name} may have effects on other objects, which would happen twice"
    return ""


def _obstacle_of_inputs(inputs: Sequence[Any]) -> str:
    if torch._C._len_torch_dispatch_stack() or torch._C._functorch.get_dynamic_layer_stack_depth():
        return "a mode or a transform is on around the call"
    for value in inputs:
        if is_a(value, torch.Generator):
            return "it draws from a random generator of the user's"
        if is_a(value, Tensor) and not is_plain(value):
            return f"an input is a {type(value).__name__} of layout {value.layout}, which is not copied"
    return ""
