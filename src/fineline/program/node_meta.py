"""Tells for the nodes of a graph where they come from and what they give, under PyTorch's names: ``stack_trace``, ``nn_module_stack``,
``example_value``. Captures keep references only; texts and fake tensors, which take as long as the rest of a capture, are made when somebody
reads the ``meta`` of a node."""

from __future__ import annotations

import functools
import operator
import os
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from itertools import islice, takewhile
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._python_dispatch import _disable_current_modes

from fineline.apart import shapes_imported
from fineline.backends.lock import TRACERS
from fineline.bytecode.code import CodeInfo
from fineline.bytecode.handlers import Deferral, handled_signals, standing_in
from fineline.capture.origin import ModuleCall, Origin, Trail
from fineline.capture.places import is_own
from fineline.graph.layout import fake_of, layout_of
from fineline.graph.recorder import LAYOUT, ORIGIN, SOURCE
from fineline.guards.source import Source
from fineline.kinds import is_a

GraphPlace = tuple[tuple[CodeInfo, int], ...]

_TORCH = os.path.dirname(torch.__file__) + os.sep
# Where a module keeps what it has under a name.
_TABLES = ("_modules", "_parameters", "_buffers")
# Operators on numbers; methods that give numbers which the layout of a tensor tells.
_PLAIN, _SIZES = frozenset({"_operator", "math", "builtins"}), frozenset({"size", "stride", "storage_offset"})
_SYMBOLIC = frozenset({torch.sym_int, torch.sym_float, torch.sym_max, torch.sym_min, torch.sym_not, torch.sym_ite})
_NUMBERS = frozenset({int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool})
_SPECIAL = re.compile(r"[^a-zA-Z0-9]+")
_CAPITAL = re.compile(r"(?<=[a-z])([A-Z])")


class NodeMeta(dict[str, Any]):
    """A node's ``meta``. The first look into one has the description of all nodes of the graph written."""

    __slots__ = ("_description",)

    def __init__(self, known: Mapping[str, Any], description: Description) -> None:
        super().__init__(known)
        self._description = description

    def __copy__(self) -> dict[str, Any]:
        return dict(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return dict, (dict(self),)

    def written(self) -> None:
        """Has the description been written."""
        self._description.write()


def _written_first(name: str) -> Callable:
    method: Callable = getattr(dict, name)

    @functools.wraps(method)
    def call(self: NodeMeta, /, *args: Any, **kwargs: Any) -> Any:
        self.written()
        return method(self, *args, **kwargs)

    return call


_READING = (
    "__contains__ __delitem__ __eq__ __getitem__ __ior__ __iter__ __len__ __ne__ __or__ __repr__ __reversed__ __ror__ __setitem__ clear copy get items "
    "keys pop popitem setdefault update values"
)
for _name in _READING.split():
    setattr(NodeMeta, _name, _written_first(_name))


class _Way(NamedTuple):
    """What led to a frame: the instruction that called it, what led to that one's frame, and the modules that were called on the way."""

    caller: tuple[CodeInfo, int, _Way] | None
    # By identity, the outermost first: the path and the class. The one that is compiled is not named.
    modules: dict[str, tuple[str, type]]


class Description:
    """What the nodes of a graph, and of those that it runs, say of themselves.

    ``values``: also what they give, in fake tensors of ``mode``; None: of a mode of their own.
    """

    def __init__(self, values: bool, mode: FakeTensorMode | None) -> None:
        self._values, self._mode = values, mode
        # A node has its entry in each of these lists: tuples of entries would cost Python's garbage collector as much as the rest of the capture's
        # objects do. A backend may have changed or erased a node by the time that it is written.
        self._nodes: list[Node] = []
        self._metas: list[NodeMeta] = []
        # The arguments of those without a layout.
        self._args: list[tuple[Any, ...]] = []
        self._layouts: list[Any] = []
        # Their instructions: the code, the index, what led to the frame.
        self._infos: list[CodeInfo | None] = []
        self._ips: list[int] = []
        self._ways: list[_Way | None] = []

    def add(self, node: Node, known: dict[str, Any], info: CodeInfo | None, ip: int, way: _Way | None) -> None:
        """Takes a node in; those before it in the graph come later."""
        layout = known.pop(LAYOUT, None)
        meta = NodeMeta(known, self)
        # A node's own way to set an attribute is one in Python.
        object.__setattr__(node, "meta", meta)
        self._nodes.append(node)
        self._metas.append(meta)
        self._args.append(node.args if layout is None else ())
        self._layouts.append(layout)
        self._infos.append(info)
        self._ips.append(ip)
        self._ways.append(way)

    def write(self) -> None:
        if self._nodes:
            # What formats tracebacks takes exceptions for its own, and so does C++ that asks symbols.
            standing_in(Deferral, handled_signals(), TRACERS.holding, self._write)

    def _write(self) -> None:
        texts = _Texts()
        for meta, info, ip, way in zip(self._metas, self._infos, self._ips, self._ways, strict=True):
            if info is not None and way is not None:
                dict.__setitem__(meta, "stack_trace", texts.stack_trace(info, ip, way))
                if way.modules:
                    dict.__setitem__(meta, "nn_module_stack", dict(way.modules))
        if self._values:
            shapes_imported()
            self._write_values(self._mode or FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True))
        for entries in (self._nodes, self._metas, self._args, self._layouts, self._infos, self._ips, self._ways):
            entries.clear()

    def _write_values(self, mode: FakeTensorMode) -> None:
        """Writes a fake tensor like what each node gives, as far as the capture has noted its layout."""
        shapes = mode.shape_env
        values: dict[Node, Any] = {}
        with (
            torch._C.DisableTorchFunction(), torch.inference_mode(False), _disable_current_modes(), mode,
            shapes.suppress_guards() if shapes is not None else nullcontext(),
        ):  # fmt: skip
            for meta, node, args, layout in reversed([*zip(self._metas, self._nodes, self._args, self._layouts, strict=True)]):
                known = dict.get(meta, "example_value")
                value = known if known is not None else _value_of(layout, mode) if layout is not None else _number(node, args, values)
                if value is not None:
                    values[node] = value
                    dict.__setitem__(meta, "example_value", value)


def describe_nodes(gm: GraphModule, examples: Sequence[Any], values: bool) -> None:
    """Has the nodes of ``gm`` and of the graphs that it runs tell of themselves; names the inputs. ``values``: also what they give."""
    parts = [part for part in gm.modules() if is_a(part, GraphModule)]
    origin = next((node.meta[ORIGIN] for part in parts for node in part.graph.nodes if ORIGIN in node.meta), None)
    root = _root_module(origin)
    mode = None
    if values:
        mode = next((example.fake_mode for example in examples if is_a(example, FakeTensor)), None)
        for node, example in zip(takewhile(lambda node: node.op == "placeholder", gm.graph.nodes), examples, strict=True):
            node.meta[LAYOUT] = _example_layout(example)
    description, trails, paths = Description(values, mode), _Trails(root), _Paths(root, tables=True)
    for part in parts:
        _name_inputs(part, paths)
        _describe(part, description, trails)


def place_of_graph(graph: Graph) -> GraphPlace:
    """Returns the code and the instruction of each frame where the graph's first operator is called, the innermost first."""
    found = []
    origin = next((node.meta[ORIGIN] for node in graph.nodes if ORIGIN in node.meta), None)
    while origin is not None:
        info, ip, trail = origin
        found.append((info, ip))
        origin = trail.called_at
    return tuple(found)


def _root_module(origin: Origin | None) -> int | None:
    """Returns the identity of the module that is compiled, if it is one: what the outermost frame of the user's runs."""
    found = None
    while origin is not None:
        info, _, trail = origin
        found, origin = trail.module if not is_own(info.code) else found, trail.called_at
    return found.key if found is not None else None


def _name_inputs(gm: GraphModule, paths: _Paths) -> None:
    renamed = False
    for node in reversed(gm.graph.nodes):
        source = node.meta.pop(SOURCE, None)
        if node.op == "placeholder" and is_a(source, Source):
            # Unique in its graph, as FX sees to.
            node._rename(_input_name(paths.of(source)))
            node.target = node.name
            renamed = True
    if renamed:
        gm.recompile()


def _describe(gm: GraphModule, description: Description, trails: _Trails) -> None:
    # Backwards: what has no line of its own, as an input or a size, is there for whoever uses it.
    origins: dict[Node, Origin] = {}
    for node in reversed(gm.graph.nodes):
        known = node.meta
        origin = known.pop(ORIGIN, None)
        if origin is None and node.op != "output":
            of = [node.args[0].meta.get(ORIGIN)] if node.target is operator.getitem and is_a(node.args[0], Node) else []
            origin = next((found for found in (*of, *map(origins.get, node.users)) if found is not None), None)
        if origin is None:
            description.add(node, known, None, 0, None)
        else:
            origins[node] = origin
            info, ip, trail = origin
            description.add(node, known, info, ip, trails.way(trail))


class _Trails:
    """What led to frames, without the values that were there: found once for all nodes that a frame makes."""

    def __init__(self, root: int | None) -> None:
        self._root = root
        self._sources = _Paths(root, tables=False)
        self._ways: dict[Trail, _Way] = {}
        self._paths: dict[int, str] = {}

    def way(self, trail: Trail) -> _Way:
        if (found := self._ways.get(trail)) is not None:
            return found
        # Not by recursion: the user's code may be as deep as Python allows.
        trails = [trail]
        while (at := trails[-1].called_at) is not None and at[2] not in self._ways:
            trails.append(at[2])
        for each in reversed(trails):
            called_at = each.called_at
            caller = None if called_at is None else (called_at[0], called_at[1], self._ways[called_at[2]])
            modules = {} if caller is None else caller[2].modules
            if each.module is not None and each.module.key != self._root:
                modules = {**modules, str(each.module.key): (self._path(each.module), each.module.cls)}
            self._ways[each] = _Way(caller, modules)
        return self._ways[trail]

    def _path(self, module: ModuleCall) -> str:
        # Most modules are on the way to many frames.
        found = self._paths.get(module.key)
        if found is None:
            found = module.cls.__qualname__ if module.source is None else self._sources.of(module.source)
            self._paths[module.key] = found
        return found


class _Texts:
    """The texts of frames, each made once."""

    def __init__(self) -> None:
        self._frames: dict[tuple[Any, int], str] = {}

    def stack_trace(self, info: CodeInfo, ip: int, way: _Way) -> str:
        """Returns the frames that led to an instruction as a traceback has them: the user's, the innermost last."""
        frames, at = list[tuple[CodeInfo, int]](), cast("tuple[CodeInfo, int, _Way] | None", (info, ip, way))
        while at is not None:
            info, ip, way = at
            if not is_own(info.code):
                frames.append((info, max(ip - 1, 0)))
            at = way.caller
        users = [frame for frame in frames if not frame[0].code.co_filename.startswith(_TORCH)]
        return "".join([self._frame(*frame) for frame in reversed(users or frames)])

    def _frame(self, info: Any, at: int) -> str:
        text = self._frames.get((info, at))
        if text is None:
            code, line = info.code, info.lines[at]
            _, last, begin, end = next(islice(code.co_positions(), info.offsets[at] // 2, None), (None,) * 4)
            summary = traceback.FrameSummary(code.co_filename, line, code.co_name, end_lineno=last, colno=begin, end_colno=end)
            text = self._frames[info, at] = "".join(traceback.StackSummary.from_list([summary]).format())
        return text


class _Paths:
    """Paths of sources as PyTorch writes them: ``L['self'].a.weight``, or ``L['self']._modules['a']._parameters['weight']`` with ``tables``.

    ``root``: the identity of the module that is compiled, which is ``self``.
    """

    def __init__(self, root: int | None, tables: bool) -> None:
        self._root, self._tables = root, tables
        # By identity of the source, which the capture holds: most inputs' paths are alike but for the end.
        self._known: dict[int, str] = {}

    def of(self, source: Source) -> str:
        parts: list[tuple[Source, str]] = []
        at = source
        while (path := self._known.get(id(at)) or self._base(at)) is None:
            assert at.parent is not None
            text, above = _step(at, at.parent, self._tables)
            parts.append((at, text))
            at = above
        self._known[id(at)] = path
        for at, text in reversed(parts):
            path = self._known[id(at)] = path + text
        return path

    def _base(self, at: Source) -> str | None:
        """Returns the path of a source where that does not go on from another one's."""
        op, key, parent = at.op, at.key, at.parent
        if op in ("root", "cell") and is_a(key, str):
            return f"L[{key!r}]"
        if self._root is not None and id(at.value) == self._root:
            return "L['self']"
        if op == "key" and parent is not None and parent.op == "pin" and is_a(parent.value, dict):
            return f"G[{key!r}]"
        return f"G[{at.text()!r}]" if parent is None else None


def _input_name(path: str) -> str:
    """Returns the name of the input that is read there, as PyTorch makes it: ``l_self_modules_a_parameters_weight_``."""
    return _CAPITAL.sub(r"_\1", _SPECIAL.sub("_", path)).lower()


def _step(src: Source, parent: Source, tables: bool) -> tuple[str, Source]:
    """Returns the last part of a path, and the source that it is a part of."""
    op, key = src.op, src.key
    table = op == "key" and parent.op == "key" and parent.key in _TABLES and parent.parent is not None and parent.parent.parent is not None
    if table and not tables and parent.parent is not None:
        return f".{key}", parent.parent.parent  # type: ignore[return-value]
    if op == "key" and parent.op == "dict" and parent.parent is not None:
        return f".{key}", parent.parent
    return "" if op == "dict" else f"[{key!r}]" if op in ("key", "index") else f".{getattr(key, '__name__', key)}", parent


# -- values --------------------------------------------------------------------------------------------------------------
class _Given(NamedTuple):
    """An input as the backend is shown it, where a fake tensor stands for it."""

    layout: Any
    parameter: bool
    requires_grad: bool


class _Known(NamedTuple):
    """A value that is there already."""

    value: Any


def _example_layout(example: Any) -> Any:
    """Returns what tells an input's value later, without the tensor, which the graph would keep alive."""
    if not is_a(example, Tensor) or is_a(example, FakeTensor):
        return _Known(example)
    return _Given(layout_of(example), type(example) is torch.nn.Parameter, example.requires_grad)


def _value_of(layout: Any, mode: FakeTensorMode) -> Any:
    if type(layout) is _Known:
        return layout.value
    if type(layout) is not _Given:
        return fake_of(layout, mode)
    # Not by ``from_tensor``: the mode would remember the real tensor as long as the fake one lives, which is as long as the graph.
    fake = fake_of(layout.layout, mode)
    return torch.nn.Parameter(fake, layout.requires_grad) if layout.parameter and fake is not None else fake


def _number(node: Node, args: tuple[Any, ...], values: Mapping[Node, Any]) -> Any:
    """Returns what a node gives that takes apart what another one gives, or computes with numbers; None if that is not known."""
    named = node.target in _SIZES if node.op == "call_method" else getattr(node.target, "__module__", None) in _PLAIN or node.target in _SYMBOLIC
    if node.op not in ("call_method", "call_function") or not named or node.kwargs:
        return None
    if not all([not is_a(a, Node) or a in values for a in args]):
        return None
    given: list[Any] = [values[a] if is_a(a, Node) else a for a in args]
    if node.op == "call_method":
        return getattr(given[0], str(node.target))(*given[1:])
    part = node.target is operator.getitem and type(given[0]) is tuple and type(given[1]) is int
    if part or all([type(a) in _NUMBERS for a in given]):
        return node.target(*given)  # type: ignore[operator]
    return None
