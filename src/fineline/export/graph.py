"""Makes a standalone graph of a captured call: with the user function's parameters and results, and the module's own names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._ops import OperatorBase
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from fineline.background.graph_job import GraphJob
from fineline.bytecode.asynchronous import let_pass
from fineline.codegen.deoptimization import RestOfCall
from fineline.codegen.program_text import short_name
from fineline.codegen.programs import ResidualProgram
from fineline.codegen.residual_program import ResidualWriter
from fineline.errors import NotExported
from fineline.exception_slots import TRACEBACK
from fineline.export.argument_checks import asked_module
from fineline.export.outcome import Held, Out, Outcome, Part, written
from fineline.export.paths import Paths
from fineline.export.signature import Parameter
from fineline.fx.standalone_module import Portable, portable, put
from fineline.guards.ambient_table import AMBIENT
from fineline.guards.evaluate import same_constant
from fineline.guards.source import Source, root_of
from fineline.identity import IdentityMap
from fineline.kinds import is_a
from fineline.torch_facts.callables import classify_torch
from fineline.torch_facts.thread_state import KERNELS, differing
from fineline.tracing.mutation_log import Written, contents
from fineline.tracing.segment_trace import SegmentTrace

GUARDS = "_guards"


class Aten(NamedTuple):
    """The options of tracing down to ATen operators: the decompositions, and whether tracing stops above autograd, autocast and the like."""

    table: Mapping[OperatorBase, Callable] | None = None
    pre_dispatch: bool = False


class ExportWriter(ResidualWriter):
    """Makes an exported graph (``graph``) instead of a residual program."""

    def __init__(self, trace: SegmentTrace, name: str, parameters: list[Parameter], module: nn.Module | None, aten: Aten | None) -> None:
        super().__init__(trace, name)
        self._parameters, self._module, self._aten = parameters, module, aten
        self._flat: GraphModule | None = None
        # The graph's inputs, in order: each source with its value.
        self._taken: list[tuple[Source, object]] = []
        # Buffers that the call replaces: their names, with the graph's results that they get.
        self._buffers: list[tuple[str, Out]] = []

    def returns(self, value: object) -> None:
        if any([set_ in KERNELS for _, set_ in differing(self.trace.state.start, AMBIENT.now())]):
            raise NotExported("the call changes which kernels of attention may be chosen", id="FL604")
        outcome = Outcome(self.rebuild)
        self._outcome = outcome.expr(value)
        for w in self.trace.mutations.written.values():
            self._wrote(w, outcome)
        for made, _ in self.trace.mutations.hooks.events:
            raise NotExported(f"the call registers a hook on {self.trace.sources[made.tensor].text()}", id="FL604")
        for setting in self.trace.mutations.settings.events:
            raise NotExported(f"the call sets the context variable {setting.var.name}", id="FL604")
        for t, _ in self.trace.mutations.data.items():
            raise NotExported(f"the call sets {self.trace.sources[t].text()}.data", id="FL604")
        # A traceback is not a result of a graph.
        for src, descr in [(src, descr) for _, src, descr, _ in self.trace.mutations.slots.values() if descr is not TRACEBACK]:
            raise NotExported(f"the call sets {src.text()}.{getattr(descr, '__name__', 'a slot')}", id="FL604")
        self._roots = {src.reg: i for i, src in enumerate(self.trace.guards.roots())}
        self.tail = ["return None"]

    def _wrote(self, w: Written, outcome: Outcome) -> None:
        """Handles a write to an object that existed before: ignores it if nothing changed, records a new buffer, refuses others."""
        if w.kind == "class":
            raise NotExported(f"the call sets attributes of {w.src.text()}", id="FL604")
        now = _contents(w.obj, w.kind)
        before = _listed(w.before, w.kind)
        if len(now) == len(before) and all([a is b or same_constant(a, b) for a, b in zip(now, before, strict=True)]):
            return
        holder = next((path for path, m in self._modules() if m.__dict__["_buffers"] is w.obj), None)
        changed = [k for k in {**w.before, **w.obj} if w.before.get(k) is not w.obj.get(k)] if holder is not None else []
        if not changed:
            raise NotExported(f"the call changes {w.src.text()}", id="FL604")
        for name in changed:
            old, new = w.before.get(name), w.obj.get(name)
            path = f"{holder}.{name}" if holder else name
            if not _fits(old, new, outcome):
                raise NotExported(f"the call gives the buffer {path} another size or type, or a tensor that lives on elsewhere", id="FL604")
            made = outcome.expr(new)
            if type(made) is not Out:
                raise NotExported(f"the call makes a tensor that was there before the buffer {path}", id="FL604")
            self._buffers.append((path, made))

    def _modules(self) -> list[tuple[str, nn.Module]]:
        return list(self._module.named_modules(remove_duplicate=False)) if self._module is not None else []

    # -- the graph -------------------------------------------------------------------------------------------------------
    def compile(self, compile_graph: Callable[..., Callable | GraphJob], again: RestOfCall, shown: bool = True) -> ResidualProgram:
        segment = super().compile(self._take, again)
        self.segment = segment
        return segment

    def _kept(self, outputs: tuple[Node, ...]) -> list[Node]:
        """Returns an empty list: an exported graph returns only the results of the call."""
        return []

    def _take(self, gm: GraphModule, examples: list, kinds: object) -> Callable:
        self._taken = [(src, src.value) for _, src in self.trace.recorder.inputs]
        self._flat = self._as_aten(gm, examples, self._aten) if self._aten is not None else gm
        return gm.forward

    def _as_aten(self, gm: GraphModule, examples: list, how: Aten) -> GraphModule:
        if how.pre_dispatch:
            # PyTorch's tracer would drop them. (For autocast, it handles another function than the context manager calls.)
            states = [n.target for n in gm.graph.nodes if classify_torch(n.target) == "state" and n.target is not torch._C._set_grad_enabled]
            if states:
                step = "Export without pre_dispatch=True: what autocast and transforms do is in the graph then."
                raise NotExported(f"with pre_dispatch=True it can't have {states[0].__name__}()", id="FL606", next_step=step)
        symbols = self.trace.symbols
        if symbols is None:
            # This runs again on the real tensors; its writes are undone together with those of the call.
            examples = [x if x.requires_grad else x.detach() for x in examples]
        mode = nullcontext() if symbols is None else symbols.fakes.mode
        try:
            with mode:
                table: dict = dict(how.table or {})
                return make_fx(gm, decomposition_table=table, _allow_non_fake_inputs=True, pre_dispatch=how.pre_dispatch)(*examples)
        except Exception as e:
            let_pass(e)
            raise NotExported(f"tracing the ATen graph raised {type(e).__name__}: {e}", id="FL606") from e

    def graph(self, describe: Callable[[int], str]) -> Portable:
        """Returns the exported graph; ``describe`` returns the text of a guard of the segment."""
        root = nn.Module()
        names = self._own(root)
        graph = Graph()
        paths = Paths(graph, self._parameters, self._roots)
        changes = self._flat is not None and bool(self._flat.graph.find_nodes(op="call_function", target=torch._C._set_grad_enabled))
        grad_mode = self.trace.state.start.grad_mode if changes else None
        guards = asked_module(self._parameters, self._roots, self.segment, describe, grad_mode)
        if guards is not None:
            put(root, GUARDS, guards)
            graph.call_module(GUARDS, tuple(paths.parameters))
        given = {src.reg: self._reach(src, value, paths, root, names) for src, value in self._taken}
        results = self._inline(graph, root, list(given.values()))

        def find(part: Part) -> Node:
            if type(part) is Out:
                return results[part.number]
            if type(part) is Held:
                return graph.get_attr(_named(root, part.value, part.name))
            if part.source.reg not in given:
                given[part.source.reg] = self._reach(part.source, part.value, paths, root, names)
            return given[part.source.reg]

        for path, out in self._buffers:
            buffer = next((n for n in graph.nodes if n.op == "get_attr" and n.target == path), None) or graph.get_attr(path)
            if self._aten is not None:
                graph.call_function(torch.ops.aten.copy_.default, (buffer, find(out)))
            else:
                graph.call_method("copy_", (buffer, find(out)))
        graph.output(written(self._outcome, graph, find))
        if self._module is not None:
            for path, m in root.named_modules():
                m.training = _submodule(self._module, path).training
        gm = portable(root, graph, "Exported")
        gm.graph.lint()
        return gm

    def _own(self, root: nn.Module) -> IdentityMap[str]:
        """Adds the module's parameters and buffers to ``root`` under their names; returns these names by identity."""
        names: IdentityMap[str] = IdentityMap()
        for path, m in self._modules():
            for name, t in [*m._parameters.items(), *m._buffers.items()]:
                if t is not None:
                    full = f"{path}.{name}" if path else name
                    put(root, full, t, name not in m._non_persistent_buffers_set)
                    names.setdefault(t, full)
        return names

    def _reach(self, src: Source, value: object, paths: Paths, root: nn.Module, names: IdentityMap[str]) -> Node:
        node = paths.node(src)
        if node is not None:
            return node
        if root_of(src).op == "root" or not is_a(value, Tensor):
            raise NotExported(f"how the call comes to {src.text()} is nothing that a graph can do", id="FL603")
        if value not in names:
            names[value] = _named(root, value, short_name(src) or "constant")
        return paths.graph.get_attr(names[value])

    def _inline(self, graph: Graph, root: nn.Module, given: list[Node]) -> list[Node]:
        """Copies the captured nodes into ``graph``; returns their results."""
        if self._flat is None:
            return []
        flat = self._flat
        copies: dict[Node, Node] = {}
        inputs = iter(given)
        for node in flat.graph.nodes:
            if node.op == "placeholder":
                copies[node] = next(inputs)
            elif node.op == "output":
                return list(torch.fx.node.map_arg(node.args[0], copies.__getitem__))
            else:
                if node.op == "get_attr":
                    self._bring(flat, root, str(node.target))
                elif str(getattr(node.target, "__module__", "")).startswith("fineline."):
                    name = getattr(node.target, "__name__", str(node.target))
                    raise NotExported(f"{name} is an autograd.Function, whose backward runs in this process", id="FL605")
                copies[node] = graph.node_copy(node, copies.__getitem__)
        return []

    def _bring(self, flat: GraphModule, root: nn.Module, target: str) -> None:
        value: object = flat
        for part in target.split("."):
            value = getattr(value, part)
        if is_a(value, FakeTensor):
            raise NotExported(f"the constant {target} has no numbers in fake mode", id="FL606")
        put(root, target, value, False)


def _named(root: nn.Module, value: object, stem: str) -> str:
    """Makes ``value`` an attribute of ``root`` under a free name; returns the name."""
    name, n = stem, 0
    while hasattr(GraphModule, name) or getattr(root, name, value) is not value:
        n += 1
        name = f"{stem}_{n}"
    if is_a(value, Tensor):
        put(root, name, value, False)
    else:
        setattr(root, name, value)
    return name


def _submodule(m: Any, path: str) -> Any:
    for part in path.split(".") if path else ():
        m = m._modules.get(part, m)
    return m


def _contents(obj: Any, kind: str) -> list:
    return [contents(obj)] if kind == "cell" else _listed(obj, kind)


def _listed(value: Any, kind: str) -> list:
    if kind == "dict":
        return [x for pair in dict.items(value) for x in pair]
    return [value] if kind in ("cell", "bytearray") else list(value)


def _fits(old: object, new: object, outcome: Outcome) -> bool:
    """Returns whether a copy of ``new`` into ``old`` has the same effect as the replacement of ``old``."""
    if not (is_a(old, Tensor) and is_a(new, Tensor)) or new.requires_grad:
        return False
    if (old.shape, old.dtype, old.device, old.layout) != (new.shape, new.dtype, new.device, new.layout):
        return False
    # A result that shares memory with one of them would see the copy, or miss later writes to the buffer.
    memory = {t.untyped_storage()._cdata for t in outcome.tensors if t is not new and t.layout is torch.strided}
    return memory.isdisjoint([old.untyped_storage()._cdata, new.untyped_storage()._cdata])
