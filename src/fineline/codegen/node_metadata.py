"""Writes the origin and the example value of each node into a graph, under PyTorch's names ``stack_trace``, ``nn_module_stack`` and
``example_value``; names the inputs. Captures keep references only: texts and fake tensors, which may take as long as the rest of the
capture, are made when the graph is first accessed."""

from __future__ import annotations

import contextlib
import logging
import operator
import os
import re
import traceback
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._python_dispatch import _disable_current_modes

from fineline.backends.lock import TRACERS
from fineline.bytecode.asynchronous import let_pass
from fineline.bytecode.code import CodeInfo
from fineline.bytecode.handlers import Deferral, handled_signals, standing_in
from fineline.frames.stub_frames import is_own
from fineline.frames.trail import ModuleCall, Origin, Trail
from fineline.fx.graph_module import CapturedGraph
from fineline.fx.layout import LAYOUTS, fake_of, layout_of
from fineline.fx.recorder import LAYOUT, ORIGIN, SOURCE
from fineline.guards.source import MODULE_TABLES, Source
from fineline.import_thread import shapes_imported
from fineline.kinds import is_a
from fineline.torch_facts.thread_state import CallState

log = logging.getLogger("fineline")

GraphPlace = tuple[tuple[CodeInfo, int], ...]

_TORCH = os.path.dirname(torch.__file__) + os.sep
# The modules of operators on numbers; methods whose results follow from the layout of a tensor.
_PLAIN, _SIZES = frozenset({"_operator", "math", "builtins"}), frozenset({"size", "stride", "storage_offset"})
_SYMBOLIC = frozenset({torch.sym_int, torch.sym_float, torch.sym_max, torch.sym_min, torch.sym_not, torch.sym_ite})
_NUMBERS = frozenset({int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool})
# The prefix of `Source.key` for a module's globals. The values of sources have been dropped when the graph is accessed.
_GLOBALS = "globals of "
_SPECIAL = re.compile(r"[^a-zA-Z0-9]+")
_CAPITAL = re.compile(r"(?<=[a-z])([A-Z])")


class Description:
    """The metadata of the nodes of a graph, and of the graphs that it runs.

    ``values``: also the example values of their results. ``runs``: whether a run on fakes gives these; a capture has noted the layouts of its results.
    """

    def __init__(self, gm: CapturedGraph, examples: Sequence[Any], values: bool, runs: bool = False) -> None:
        # The graph refers to this object: a strong reference would be a cycle.
        self._graph = weakref.ref(gm)
        self._examples = _without_tensors(examples) if values else None
        self._mode = next((example.fake_mode for example in examples if is_a(example, FakeTensor)), None)
        self._begun, self._runs = False, runs
        self._on_demand(gm, self.write)

    def write(self) -> None:
        """Writes the metadata. Code that accesses the graph meanwhile, as this does, gets it unfinished."""
        # Code that formats tracebacks, and C++ that evaluates symbols, would catch the exceptions of signal handlers.
        standing_in(Deferral, handled_signals(), TRACERS.holding, self._write)

    def _write(self) -> None:
        gm = self._graph()
        if self._begun or gm is None:
            return
        self._begun = True
        try:
            self._write_origins(gm)
            if self._examples is not None:
                _add_example_values(gm, self._examples, self._mode, self._runs)
        except BaseException:
            self._begun = False
            raise
        self._on_demand(gm, None)

    def _on_demand(self, gm: CapturedGraph, describe: Callable[[], None] | None) -> None:
        for part in gm.modules():
            if is_a(part, CapturedGraph):
                part.describe_with(describe)

    def _write_origins(self, gm: CapturedGraph) -> None:
        texts = _Texts()
        parts = [part for part in gm.modules() if is_a(part, GraphModule)]
        origin = next((node.meta[ORIGIN] for part in parts for node in part._graph.nodes if ORIGIN in node.meta), None)
        root = _root_module(origin)
        for part in parts:
            _name_inputs(part, root)
            _describe(part, texts, root)


def place_of_graph(graph: Graph) -> GraphPlace:
    """Returns the code and the instruction of each frame where the graph's first operator is called, the innermost first."""
    found = []
    origin = next((node.meta[ORIGIN] for node in graph.nodes if ORIGIN in node.meta), None)
    while origin is not None:
        info, ip, trail = origin
        found.append((info, ip))
        origin = trail.called_at
    return tuple(found)


def _root_module(origin: Origin | None) -> ModuleCall | None:
    """Returns the compiled module, whose call the outermost user frame runs; None if no module is compiled."""
    found = None
    while origin is not None:
        info, _, trail = origin
        found, origin = trail.module if not is_own(info.code) else found, trail.called_at
    return found


def _name_inputs(gm: GraphModule, root: ModuleCall | None) -> None:
    renamed = False
    for node in reversed(gm._graph.nodes):
        source = node.meta.pop(SOURCE, None)
        if node.op == "placeholder" and is_a(source, Source):
            # FX makes the name unique in its graph.
            node._rename(input_name(source, root))
            node.target = node.name
            renamed = True
    if renamed:
        gm.recompile()


def _describe(gm: GraphModule, texts: _Texts, root: ModuleCall | None) -> None:
    # Backwards, because a node without a line of its own, such as an input or a size, gets the line of its user.
    for node in reversed(gm._graph.nodes):
        if ORIGIN not in node.meta and node.op != "output":
            of = [node.args[0]] if node.target is operator.getitem and is_a(node.args[0], Node) else []
            found = next((n.meta[ORIGIN] for n in (*of, *node.users) if ORIGIN in n.meta), None)
            if found is not None:
                node.meta[ORIGIN] = found
    for node in gm._graph.nodes:
        origin = node.meta.pop(ORIGIN, None)
        if origin is not None:
            node.meta["stack_trace"] = texts.stack_trace(origin)
            modules = texts.modules(origin[2], root)
            if modules:
                node.meta["nn_module_stack"] = dict(modules)


class _Texts:
    """The texts of frames, each made once."""

    def __init__(self) -> None:
        self._frames: dict[tuple[CodeInfo, int], str] = {}
        self._modules: dict[Trail, dict[str, tuple[str, type]]] = {}

    def stack_trace(self, origin: Origin) -> str:
        """Returns the user's frames that led to a node, in the format of a traceback, the innermost last."""
        frames: list[tuple[CodeInfo, int]] = []
        found: Origin | None = origin
        while found is not None:
            info, ip, trail = found
            if not is_own(info.code):
                frames.append((info, max(ip - 1, 0)))
            found = trail.called_at
        users = [(info, at) for info, at in frames if not info.code.co_filename.startswith(_TORCH)]
        return "".join([self._frame(info, at) for info, at in reversed(users or frames)])

    def _frame(self, info: CodeInfo, at: int) -> str:
        text = self._frames.get((info, at))
        if text is None:
            code, line = info.code, info.lines[at]
            _, last, begin, end = next(islice(code.co_positions(), info.offsets[at] // 2, None), (None,) * 4)
            summary = traceback.FrameSummary(code.co_filename, line, code.co_name, end_lineno=last, colno=begin, end_colno=end)
            text = self._frames[info, at] = "".join(traceback.StackSummary.from_list([summary]).format())
        return text

    def modules(self, trail: Trail, root: ModuleCall | None) -> dict[str, tuple[str, type]]:
        """Returns path and class of the modules whose calls led to a frame, by identity, the outermost first, without the compiled one."""
        found = self._modules.get(trail)
        if found is None:
            calls: list[ModuleCall | None] = []
            at: Trail | None = trail
            while at is not None:
                calls.append(at.module)
                at = at.called_at[2] if at.called_at is not None else None
            inner = [m for m in reversed(calls) if m is not None and (root is None or m.key != root.key)]
            found = self._modules[trail] = {str(m.key): (_module_path(m, root), m.cls) for m in inner}
        return found


def _module_path(module: ModuleCall, root: ModuleCall | None) -> str:
    return module.cls.__qualname__ if module.source is None else _expression(module.source, root, False)


def input_name(source: Source, root: ModuleCall | None) -> str:
    """Returns the input's name, which PyTorch would make from the user's expression: ``l_self_modules_a_parameters_weight_``."""
    name = _SPECIAL.sub("_", _expression(source, root, True))
    return _CAPITAL.sub(r"_\1", name).lower()


def _expression(src: Source, root: ModuleCall | None, tables: bool) -> str:
    """Returns the path of ``src`` as PyTorch writes it: ``L['self'].a.weight``, or ``L['self']._modules['a']._parameters['weight']`` with ``tables``.

    ``root``: the compiled module, which is ``self``.
    """
    parts: list[str] = []
    at = src
    while True:
        op, key, parent = at.op, at.key, at.parent
        if op in ("root", "cell") and is_a(key, str):
            base = f"L[{key!r}]"
        elif root is not None and at is root.source:
            base = "L['self']"
        elif op == "key" and parent is not None and parent.op == "pin" and str(parent.key).startswith(_GLOBALS):
            base = f"G[{key!r}]"
        elif parent is None:
            base = f"G[{at.text()!r}]"
        else:
            text, at = _step(at, parent, tables)
            parts.append(text)
            continue
        return base + "".join(reversed(parts))


def _step(src: Source, parent: Source, tables: bool) -> tuple[str, Source]:
    """Returns the last part of a path, and the source for the rest of the path."""
    op, key = src.op, src.key
    table = op == "key" and parent.op == "key" and parent.key in MODULE_TABLES and parent.parent is not None and parent.parent.parent is not None
    if table and not tables and parent.parent is not None:
        return f".{key}", parent.parent.parent  # type: ignore[return-value]
    if op == "key" and parent.op == "dict" and parent.parent is not None:
        return f".{key}", parent.parent
    return "" if op == "dict" else f"[{key!r}]" if op in ("key", "index") else f".{getattr(key, '__name__', key)}", parent


# -- values --------------------------------------------------------------------------------------------------------------
class _Examples(NamedTuple):
    """The inputs of a graph."""

    # Layouts instead of real tensors, which the graph would keep alive.
    values: Sequence[Any]
    parameters: Sequence[bool]


def _without_tensors(examples: Sequence[Any]) -> _Examples:
    values = [layout_of(e) if is_a(e, Tensor) and not is_a(e, FakeTensor) else e for e in examples]
    return _Examples(values, [type(e) is torch.nn.Parameter for e in examples])


def _add_example_values(gm: GraphModule, examples: _Examples, mode: FakeTensorMode | None, runs: bool) -> None:
    """Writes a fake tensor into each node, with the layout that the capture has noted for its result, if any, or that a run gives."""
    shapes_imported()
    mode = mode or FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    shapes = mode.shape_env
    # Independent of the modes that are active where the graph is accessed.
    ordinary = torch._C.DisableTorchFunction(), torch.inference_mode(False), _disable_current_modes()
    with contextlib.ExitStack() as stack:
        for context in (*ordinary, mode, shapes.suppress_guards() if shapes is not None else nullcontext()):
            stack.enter_context(context)
        for node, value, parameter in zip(gm._graph.find_nodes(op="placeholder"), *examples, strict=True):
            if type(value) in LAYOUTS:
                # Not by ``from_tensor``: the mode would keep the real tensor as long as the fake one lives, which is as long as the graph.
                fake = fake_of(value, mode)
                value = torch.nn.Parameter(fake, value.requires_grad) if parameter else fake
            if value is not None:
                node.meta["example_value"] = value
        if runs:
            _run_on_fakes(gm)
        for part in gm.modules():
            for node in part._graph.nodes if is_a(part, GraphModule) else ():
                _add_value(node, mode)


def _run_on_fakes(gm: GraphModule) -> None:
    """Writes the results of a run into the nodes; those that come after an operator which does not run on fakes stay without."""
    values = [node.meta.get("example_value") for node in gm._graph.find_nodes(op="placeholder")]
    before = CallState()
    try:
        # A run may change the sizes of its inputs.
        _Noting(gm, graph=gm._graph).run(*[t.detach() if is_a(t, Tensor) else t for t in values])
    except Exception as e:
        let_pass(e)
        log.debug("fineline: a saved graph has no example values", exc_info=True)
    finally:
        before.put_back()


class _Noting(Interpreter):
    """Runs a graph and notes the results of its nodes."""

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        if n.op in ("call_function", "call_method") and result is not None:
            n.meta["example_value"] = result
        return result


def _add_value(node: Node, mode: FakeTensorMode) -> None:
    layout = node.meta.pop(LAYOUT, None)
    value = fake_of(layout, mode) if layout is not None else _number(node)
    if value is not None:
        node.meta["example_value"] = value


def _number(node: Node) -> Any:
    """Returns the result of a node that reads an item of another's result, or computes with numbers; None if it is not known."""
    named = node.target in _SIZES if node.op == "call_method" else getattr(node.target, "__module__", None) in _PLAIN or node.target in _SYMBOLIC
    if "example_value" in node.meta or node.op not in ("call_method", "call_function") or not named or node.kwargs:
        return None
    if not all([not is_a(a, Node) or "example_value" in a.meta for a in node.args]):
        return None
    args: list[Any] = [a.meta["example_value"] if is_a(a, Node) else a for a in node.args]
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:])
    part = node.target is operator.getitem and type(args[0]) is tuple and type(args[1]) is int
    if part or all([type(a) in _NUMBERS for a in args]):
        return node.target(*args)  # type: ignore[operator]
    return None
