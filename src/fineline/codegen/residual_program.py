"""Makes a program from the trace of a segment: guards, a compiled graph, and the Python code around it."""

from __future__ import annotations

import functools
import itertools
import operator
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from types import CellType
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Node

from fineline.backends.eager import as_it_is
from fineline.background.graph_job import GraphJob
from fineline.background.pending_graph import PendingGraph
from fineline.codegen.ambient_state import (
    counted,
    graphs_override_state,
    in_state,
    override_state,
    put_back_in,
    restore_lines,
)
from fineline.codegen.continuation import Continuation, with_keywords
from fineline.codegen.deoptimization import RestOfCall, costs_little, emit_guarded_graph_call
from fineline.codegen.finished_graph import Finish
from fineline.codegen.programs import GraphCall, OwnParts, ProgramText, ResidualProgram, UnboundProgram
from fineline.codegen.random_draws import does_more, draw_lines, may_fail
from fineline.codegen.reconstruct_builtins import order_of_insertion
from fineline.codegen.reconstructor import Reconstructor
from fineline.codegen.refused_graph import RefusedGraph
from fineline.errors import BackendFailed
from fineline.exception_slots import under
from fineline.fake.fake_tensors import NotFakeable, unsymbolic
from fineline.frames.frame import NULL
from fineline.frames.graph_breaks import NotReconstructible, Restart, Uncompiled
from fineline.frames.graph_limits import GraphLimits
from fineline.frames.stub_frames import Place, is_own
from fineline.fx.data_node import set_data
from fineline.fx.graph_module import CapturedGraph, graph_module
from fineline.fx.graph_traits import fatal
from fineline.fx.infallible import functions, kept_outputs
from fineline.fx.output_fixups import as_captured, disowned, plain_example, without_modes
from fineline.fx.size_facts import Kinds, has_symbols, sizes_of
from fineline.guards.facts import AmbientFacts, has_tangent, storage_of, tensor_number, without_sizes
from fineline.guards.source import Source
from fineline.identity import IdentityMap
from fineline.kinds import is_a, is_users_class
from fineline.tensor_ops.refused_writes import guard_hidden_writes, lies_on_itself
from fineline.torch_facts.function_modes import FunctionModesOff, put_on
from fineline.torch_facts.wrapper_subclasses import is_jagged, is_wrapper
from fineline.tracing.local_classes import guard_distinct_classes
from fineline.tracing.mutation_log import EMPTY, Written, contents, own_dict
from fineline.tracing.plain_values import is_value
from fineline.tracing.segment_trace import SegmentTrace
from fineline.tracing.set_identity_guards import guard_lookups
from fineline.tracing.tracebacks import ShownPlace, Variable

# The modules of classes whose subclasses nothing looks up.
UNLISTED = ("abc", "enum", "typing")
_DETACHING = frozenset(["detach", "detach_", torch.detach, torch.detach_, torch.ops.aten.detach.default])
# By function that, at a graph break, may differentiate the results of the graph before it: the position of ``create_graph``.
DIFFERENTIATING = IdentityMap(((torch.autograd.grad, 4), (torch.autograd.backward, 3), (Tensor.backward, 3)))


class ResidualWriter:
    """Writes the program of one segment. ``returns`` or ``graph_break`` writes its end; ``compile`` makes the program."""

    def __init__(self, trace: SegmentTrace, name: str) -> None:
        self.trace = trace
        self.name = name
        self.rebuild = Reconstructor(trace)
        self.tail: list[str] = []
        # The reason why no backend gets the graph; empty if one does.
        self.uncompiled = ""
        self._memory: list[tuple[Source, int, bool]] | None = None
        # What the program does with the callable for its graph, and what follows if a backend refuses the graph.
        self._finish = Finish()
        self._refused: RefusedGraph | None = None
        # The way on after the graph break at the end, if there is one.
        self.continuation: Continuation | None = None
        # How the program calls its graph, if it has one.
        self._graph_call: GraphCall | None = None

    def returns(self, value: Any) -> None:
        r = self.rebuild
        self._hooks()
        self._classes()
        text, modes = r.expr(value), self._modes_left()
        self._writes()
        self.tail = [*modes, f"return {text}"]

    def graph_break(
        self, fn: Any, args: tuple, kwargs: dict, live: list, go_on: Callable, go_on_raised: Callable | None, place: Place,
        handled: BaseException | None,
    ) -> None:  # fmt: skip
        """Ends the program at a graph break: it returns the continuation, with the live values and the arguments of the eager call.

        The driver of the segments makes the call after the program has returned, while the exception ``handled`` (or None) is handled.
        """
        r = self.rebuild
        self._hooks()
        self._classes()
        at = DIFFERENTIATING.get(fn)
        if at is not None and (kwargs.get("create_graph") or any(args[at : at + 1])):
            self.uncompiled = "what it computes is differentiated twice, which AOTAutograd does not support"
        texts = [r.expr(v) for v in live]
        call: list[str] = [r.expr(v) for v in (fn, *args)]
        through: Callable = place
        if go_on_raised is None:
            frames, shown = self._variables(IdentityMap(zip((fn, *args, *live), (*call, *texts), strict=True)))
            through = ShownPlace(place, frames).call
            call.insert(0, f"({''.join([f'{text}, ' for text in shown])})")
        if kwargs:
            call, through = [r.constant(through, "here"), f"dict({r.call((), kwargs)})", *call], with_keywords
        if handled is not None:
            call, through = [r.expr(handled), r.constant(through, "here"), *call], under
        self.continuation = Continuation(go_on, through, go_on_raised)
        continuation = r.constant(self.continuation, "continuation")
        modes = self._modes_left()
        self._writes()
        values = f"[{''.join([f'{text}, ' for text in texts])}({', '.join(call)},)]"
        if modes:
            # Not after them: they would see the reads of sizes.
            values = self.rebuild.statement("live", values, live)
        self.tail = [*modes, f"return {continuation}, {values}"]

    def _modes_left(self) -> list[str]:
        """Returns statements that turn on the function modes that are on at the end of the segment, where these are not those of its start."""
        trace, r = self.trace, self.rebuild
        before, after = trace.state.modes, trace.guards.interp.nested.modes
        if len(before) == len(after) and all(map(operator.is_, before, after)):
            return []
        modes = f"[{', '.join([r.expr(mode) for mode in after])}]"
        return [f"modes.after = {modes}"] if before else [f"{r.constant(put_on, 'enter_modes')}({modes})"]

    def _variables(self, texts: IdentityMap[str]) -> tuple[tuple[tuple[Variable, ...], ...], list[str]]:
        """Returns the variables of the user's frames whose values a program has at its end, and the texts of these values.

        In eager code these frames would hold the values during the call, too. ``texts``: the known texts of some values.
        """
        frames, shown, sources = [], dict[str, int](), self.trace.sources
        inputs = {src.reg for src in self._tensors()}
        f = self.trace.guards.interp.frame
        while f is not None:
            code = f.info.code
            if not is_own(code):
                found = []
                for name, v in zip(f.info.slots, f.local, strict=False):
                    text = texts.get(v)
                    if text is None and (src := sources.get(v)) is not None and src.reg in inputs:
                        text = self.rebuild.param(src)
                    if text is not None:
                        in_cell = type(v) is CellType and name in (*code.co_cellvars, *code.co_freevars)
                        found.append(Variable(name, shown.setdefault(text, len(shown)), None, in_cell))
                    elif v is not NULL and is_value(v):
                        found.append(Variable(name, None, v))
                frames.append(tuple(found))
            f = f.back
        return tuple(reversed(frames)), [*shown]

    def _hooks(self) -> None:
        """Writes the statements about hooks on tensors and context variables. They come first: handles and tokens may be parts of all that follows."""
        trace, hooks = self.trace, self.trace.mutations.hooks
        hooks.check(trace.mutations.writes)
        memory, written = trace.guards.interp.backing.memory, trace.recorder.writes.storages
        for made in hooks.by_handle.values():
            if made.node is None and storage_of(memory(trace.guards.interp, made.tensor)) in written:
                raise made.outside("a hook on a tensor that the graph writes into, which may have another history then")
        self.rebuild.register_hooks()
        self.rebuild.set_variables()

    def _classes(self) -> None:
        """Makes the classes whose bases existed before the segment, because those list them as their subclasses."""
        made = self.trace.classes.made
        for cls, how in made.items():
            if any([is_users_class(base) and base not in made and base.__module__ not in UNLISTED for base in how.bases]):
                self.rebuild.expr(cls)

    # -- writes --------------------------------------------------------------------------------------------------------
    def _writes(self) -> None:
        mutations, r = self.trace.mutations, self.rebuild
        late: list[str] = []
        for w in mutations.written.values():
            target = self._target(w.src)
            getattr(self, f"_write_{w.kind}")(w, target, late)
        for obj, src, descr, _ in mutations.slots.values():
            target = self._target(src)
            try:
                value = descr.__get__(obj, type(obj))
            except AttributeError:
                late.append(f"{r.member(descr)}.__delete__({target})")
                continue
            text = r.expr(value)
            name = getattr(descr, "__name__", "slot")
            if is_a(obj, Tensor):
                late.append(f"{target}.{name} = {text}")
            else:
                late.append(f"{r.member(descr)}.__set__({target}, {text})")
        late += [f"{r.expr(fn)}({r.call(args, kwargs)})" for fn, args, kwargs in mutations.calls]
        r.lines += late + r.late

    def _target(self, src: Source) -> str:
        r = self.rebuild
        return r.constant(src.value, "namespace") if src.op == "pin" else r.param(src)

    def _write_dict(self, w: Written, target: str, late: list[str]) -> None:
        r, obj = self.rebuild, w.obj
        ordered = is_a(obj, OrderedDict)
        now = dict(OrderedDict.items(obj)) if ordered else dict(dict.items(obj))
        cls = r.constant(OrderedDict, "OrderedDict") if ordered else "dict"
        # The keys that keep their places come first, in the old order; all others were added after them.
        places = {k: n for n, k in enumerate(w.before)}
        stays, last = set(), -1
        for k in now:
            if places.get(k, -1) <= last:
                break
            last = places[k]
            stays.add(k)
        if w.whole and not stays and w.before:
            pairs = [f"({self._key(w, target, k)}, {r.expr(v)})" for k, v in now.items()]
            late.append(f"{cls}.clear({target})")
            if pairs:
                late.append(f"{cls}.update({target}, [{', '.join(pairs)}])")
            return
        for k in w.before:
            if k not in stays:
                late.append(f"{cls}.__delitem__({target}, {self._key(w, target, k)})")
        # A number that varies may differ in the next call, even if the code has restored the number of this call.
        vary = self._varying(w)
        known = {c.key for c in w.src.children.values() if c.op == "key" and c.checked and is_a(c.key, (str, int))} - vary
        for k, v in now.items():
            if k in stays and w.before[k] is v and ((w.whole and k not in vary) or k in known or k not in w.keys):
                continue
            late.append(
                f"{cls}.__setitem__({target}, {self._key(w, target, k)}, {r.expr(v)})"
                if type(obj) is not dict
                else f"{target}[{r.expr(k)}] = {r.expr(v)}"
            )

    def _key(self, w: Written, target: str, key: Any) -> str:
        """Returns the expression of a key in a dict; for the number of a hook, this is the one that the hook has in the call."""
        r, trace = self.rebuild, self.trace
        if (made := trace.mutations.hooks.find(key, w.obj)) is not None:
            return f"{r.expr(made.handle)}.id"
        if key in w.before and (w.obj in trace.containers.ordered or w.obj in trace.mutations.hooks.holders):
            return f"{r.statement('numbers', f'[*{target}]', w)}[{[*w.before].index(key)}]"
        return r.expr(key)

    def _varying(self, w: Written) -> set:
        """Returns the keys or indices of the object's numbers that are symbols, or that were overwritten and are not guarded."""
        symbols = self.trace.symbols
        numbers: Any = () if symbols is None else symbols.places.numbers
        return {c.key for c in w.src.children.values() if c.reg in numbers or (c.op == "key" and not c.checked)}

    def _write_list(self, w: Written, target: str, late: list[str]) -> None:
        now = list(list.__iter__(w.obj))
        vary = self._varying(w)
        if not vary and len(now) == len(w.before) and all(a is b for a, b in zip(now, w.before, strict=True)):
            return
        n = len(w.before)
        if w.obj not in self.trace.containers.expanded:
            # Only appended to: the items that the list contains when the program runs stay.
            late.append(f"list.extend({target}, [{self.rebuild.items(now[n:])}])")
            return
        if not vary and type(w.obj) is list and len(now) > n and all(a is b for a, b in zip(now, w.before, strict=False)):
            late.append(
                f"{target} += [{self.rebuild.items(now[n:])}]"
                if not target.isidentifier()
                else f"{target}.extend([{self.rebuild.items(now[n:])}])"
            )
            return
        late.append(f"list.__setitem__({target}, slice(None), [{self.rebuild.items(now)}])")

    def _write_set(self, w: Written, target: str, late: list[str]) -> None:
        # Elements that stay are not touched, because the order of a set's elements depends on its history.
        now = set(w.obj)
        gone, new = [v for v in w.before if v not in now], [v for v in w.obj if v not in w.before]
        if gone and len(gone) == len(w.before):
            late.append(f"set.clear({target})")
        elif gone:
            late.append(f"set.difference_update({target}, ({self.rebuild.items(gone)},))")
        if new:
            new = order_of_insertion(new, w.before, gone, w.obj)
            late.append(f"set.update({target}, ({self.rebuild.items(new)},))")

    def _write_deque(self, w: Written, target: str, late: list[str]) -> None:
        now = list(w.obj)
        cls = self.rebuild.constant(deque, "deque")
        if w.obj not in self.trace.containers.expanded:
            # Only appended to, as above.
            late.append(f"{cls}.extend({target}, [{self.rebuild.items(now[len(w.before):])}])")
            return
        late.append(f"{cls}.clear({target})")
        late.append(f"{cls}.extend({target}, [{self.rebuild.items(now)}])")

    def _write_bytearray(self, w: Written, target: str, late: list[str]) -> None:
        late.append(f"{target}[:] = {bytes(w.obj)!r}")

    def _write_cell(self, w: Written, target: str, late: list[str]) -> None:
        if contents(w.obj) is not EMPTY:
            late.append(f"{target}.cell_contents = {self.rebuild.expr(w.obj.cell_contents)}")
        elif w.before is not EMPTY:
            late.append(f"del {target}.cell_contents")

    def _write_class(self, w: Written, target: str, late: list[str]) -> None:
        r, now = self.rebuild, own_dict(w.obj)
        for name in [name for name in now if name in w.keys]:
            late.append(f"type.__setattr__({target}, {name!r}, {r.expr(now[name])})")
        for name in sorted(w.keys.difference(now)):
            late.append(f"if {name!r} in {target}.__dict__: type.__delattr__({target}, {name!r})")

    # -- the whole -----------------------------------------------------------------------------------------------------
    def compile(self, compile_graph: Callable[..., Callable | GraphJob], again: RestOfCall, shown: bool = True) -> ResidualProgram:
        """Compiles the graph, and returns the program. If a backend gets the graph (``shown``), ``compile_graph`` may raise its errors.

        ``again`` runs the segment, and all code after it, in Python.
        """
        now = self.trace.state.now()
        # The classes of the tensors see none of what follows.
        with torch._C.DisableTorchFunctionSubclass(), self.trace.mutations.as_before():
            return self._compile(compile_graph, again, shown, now)

    def _compile(self, compile_graph: Callable, again: RestOfCall, shown: bool, now: AmbientFacts) -> ResidualProgram:
        trace, r = self.trace, self.rebuild
        self._check_draws()
        self._guard_aliases()
        guard_lookups(trace)
        guard_distinct_classes(trace)
        gm = None
        if trace.recorder.calls:
            checks = [f"not {r.expr(t)}" if truth else r.expr(t) for t, truth in trace.failures.assumed]
            gm = self._graph_module(shown, now)
            compiled = self._compiled_graph(compile_graph, gm, shown, now)
            lines = self._call_lines(compiled, gm, checks, again)
            self._guard_storages()
            self._guard_tangents()
        elif r.outputs.names:
            raise NotReconstructible("an output without a graph")
        else:
            lines = draw_lines(r)
        if trace.symbols is not None:
            trace.symbols.guard()
        # Also without a graph, because no operator enters or leaves a block of rules.
        lines += restore_lines(trace.state.start, now, trace.state.answers, r)
        lines = [*lines, *r.lines, *self.tail]
        if trace.state.modes:
            lines = [f"with {r.constant(FunctionModesOff, 'function_modes_off')}() as modes:", *[f"    {line}" for line in lines]]
        return self._program(lines, gm, again)

    def _graph_module(self, shown: bool, now: AmbientFacts) -> CapturedGraph:
        """Ends the graph with its outputs; returns its module."""
        recorder = self.trace.recorder
        without_modes(recorder.graph)
        put_back_in(recorder.graph, self.trace.state.start, now, self.trace.state.answers)
        outputs = tuple(self.rebuild.outputs.names)
        # A graph that no backend gets runs as captured, with all its operators.
        kept = self._kept(outputs) if shown else []
        recorder.graph.create_node("output", "output", ((*outputs, *kept),), {}, "output")
        parts, traits = recorder.nested.attributes(), recorder.traits
        beyond_aot = self.rebuild.outputs.beyond_aot
        if self.trace.mutations.data and (self._shares_what_it_writes() or self._shares_data() or _saves_data(self.trace)):
            beyond_aot = "it sets the .data of an input in a way that AOTAutograd refuses or mistakes"
        return graph_module(recorder.graph, f"Graph_{self.name}", parts, traits.reads_numbers, beyond_aot)

    def _compiled_graph(self, compile_graph: Callable, gm: CapturedGraph, shown: bool, now: AmbientFacts) -> Callable | GraphJob:
        """Returns the callable for the graph, compiled in the state in which the graph begins, or the job that makes it in the background."""
        trace = self.trace
        examples = [plain_example(src.value) for _, src in trace.recorder.inputs]
        if trace.symbols is not None:
            trace.symbols.prune()
            self._memory = None
            examples = [trace.symbols.example(src.value, src) for _, src in trace.recorder.inputs]
            if shown and self._shares_what_it_writes():
                # A backend has to see the sharing, and the examples have separate memory.
                raise Restart("FL515", "the graph writes into memory that several inputs share")
        elif shown and any(map(is_jagged, examples)):
            examples = self._static_fakes(examples)
        if shown and not self.uncompiled and self._hides_writes() and guard_hidden_writes(trace, self.written()):
            self.uncompiled = "it writes without a history into a view that autograd lets nobody write into, and AOTAutograd writes with one"
        with in_state(trace.state.start, now, trace.state.answers, trace.state.now):
            compiled = self._compiled(compile_graph, gm, examples, _transforms(trace.state.start) or _transforms(now))
        # Compiled code would access the memory of fake tensors.
        return as_it_is(gm) if self._on_fakes() else compiled

    def _static_fakes(self, examples: list) -> list:
        """Returns fakes as examples: compilers take the size of a ragged dimension as a symbol only, and make none of that of a real tensor."""
        try:
            fakes = unsymbolic()
            return [fakes.twin(t) if is_a(t, Tensor) else t for t in examples]
        except NotFakeable as e:
            self.uncompiled = f"no fake tensor stands for {e}"
            return examples

    def _call_lines(self, compiled: Callable | GraphJob, gm: CapturedGraph, checks: list[str], again: RestOfCall) -> list[str]:
        """Returns the statements that call the graph, and assign its outputs to variables."""
        r, graph, outputs = self.rebuild, self.trace.recorder.graph, self.rebuild.outputs
        # A graph from the cache may return more than this program uses.
        given: Any = graph.output_node().args[0]
        remade = [(given.index(node), change) for node, change in outputs.remade]
        finish, traits = self._finish, self.trace.recorder.traits
        state, hides = graphs_override_state(self.trace.state.start, traits), bool(traits.hides_operators)
        finish.remade = remade
        finish.several = [[given.index(node) for node in nodes] for nodes in outputs.places.values() if len(nodes) > 1]
        finish.state = state if hides else ""
        own = not is_a(compiled, GraphJob) and as_captured(compiled)
        if is_a(compiled, GraphJob):
            assert self._refused is not None
            compiled = PendingGraph(gm, compiled, finish, self._refused.with_examples(compiled.examples))
        else:
            compiled = finish(compiled, gm)
        registers = tuple([getattr(src, "reg", -1) for _, src in self.trace.recorder.inputs])
        wrappers = finish.wrapped if finish.writes and not own else None
        several = () if own else tuple(map(tuple, finish.several))
        self._graph_call = GraphCall(registers, not own, state, hides, wrappers, tuple(remade), several)
        call = r.constant(compiled, "graph")
        inputs = ", ".join([r.graph_input(src) for _, src in self.trace.recorder.inputs])
        taken = dict(outputs.names)
        names = [taken.get(node) or r.fresh("unused") for node in given]
        text = f"{call}({inputs})"
        text = f"{', '.join(names)}{',' if len(names) == 1 else ''} = {text}" if names else text
        lines = counted(emit_guarded_graph_call(self, text, inputs, checks, again, gm), graph, r)
        named = set(taken.values())
        if unused := [name for name in names if name not in named]:
            lines.append(f"del {', '.join(unused)}")
        return lines

    def _program(self, lines: list[str], gm: CapturedGraph | None, again: RestOfCall) -> ResidualProgram:
        """Returns the program with these statements, and drops the values that it was written for."""
        r, guards = self.rebuild, self.trace.guards
        params = [r.params[s.reg] for s in r.param_sources]
        source = f"def program({', '.join(params)}):\n" + "\n".join([f"    {x}" for x in lines]) + "\n"
        instance = next((src.value for src in guards.reads.sources if src.op == "instance"), None)
        for src in guards.reads.sources:
            if src.op != "pin":
                src.value = None
        outputs = tuple([s.reg for s in r.param_sources])
        text, own = ProgramText(self.name, source), OwnParts(again, self.continuation, self.trace.guards.interp.run_frame)
        steps, places = tuple(guards.steps), self.trace.recorder.places
        unbound = UnboundProgram(text, r.constants, own, steps, guards.instance_at, outputs, gm, guards.reads, self._graph_call, places)
        return unbound.bind(instance, own)

    def _kept(self, outputs: tuple[Node, ...]) -> list[Node]:
        """Returns outputs that the program does not use, but without which a compiler would drop operators that may raise."""
        recorder = self.trace.recorder
        if any(["_functorch" in (getattr(function, "__module__", None) or "") for function, _ in functions(recorder.graph)]):
            # A tensor made in a transform of torch.func does not outlive it.
            return []
        tracked = any([is_a(src.value, Tensor) and src.value.requires_grad for _, src in recorder.inputs])
        return kept_outputs(recorder.graph, outputs, recorder.results, tracked, recorder.kernels.untyped)

    def _compiled(self, compile_graph: Callable, gm: GraphModule, examples: list, transformed: bool) -> Callable | GraphJob:
        if transformed:
            self.uncompiled = "it begins or ends inside of a transform of torch.func, or a level of forward-mode gradients, whose tensors no compiler knows"
        elif self.rebuild.outputs.transformed:
            self.uncompiled = "a tensor outlives the transform of torch.func that it was made in, and no compiler knows such tensors"
        elif self.rebuild.outputs.disowned or any([disowned(src.value) for src in self._tensors()]):
            self.uncompiled = "a view made without gradients was written into, and AOTAutograd asks for its history, which PyTorch forbids"
        elif self._overlap(examples):
            # AOTAutograd would read overlapping memory as it was before the write.
            self.uncompiled = "it writes into inputs that lie on each other in memory"
        elif self._shares_with_inner():
            self.uncompiled = "it writes into memory that an inner tensor of an input shares with another input"
        if self.uncompiled:
            return as_it_is(gm)
        if self.trace.recorder.traits.fatal or any(map(fatal, examples)):
            raise Uncompiled("FL522", "compilers end the process at compressed sparse tensors with gradients", GraphLimits(dense_only=True))
        symbols, lessons = self.trace.symbols, self.trace.guards.interp.lessons
        constants = symbols.constants() if symbols is not None else 0
        refused = RefusedGraph(gm, examples, symbols, lessons, self.trace.recorder.traits.scattered)
        try:
            kinds = self._kinds(examples)
            with override_state(graphs_override_state(self.trace.state.start, self.trace.recorder.traits)):
                compiled: Callable | GraphJob = compile_graph(gm, examples, kinds)
        except BackendFailed as e:
            self.uncompiled = refused(e)
            return as_it_is(gm)
        if symbols is not None and symbols.constants() > constants:
            lessons.numbers.backend_asks = True
        self._refused = refused
        self._finish = Finish(self._sharing() is not None, any(map(is_wrapper, examples)))
        return compiled

    def written(self) -> list[Source]:
        """Returns the inputs whose memory the graph writes into."""
        if not self.trace.recorder.writes.storages and not self.trace.mutations.data:
            return []
        return [src for src, _, writes in self._lying() if writes and not is_wrapper(src.value)]

    def _hides_writes(self) -> bool:
        """Returns whether the graph may write where autograd does not see it: into ``.data``, or into a detached tensor."""
        graph = self.trace.recorder.graph
        if not self.trace.recorder.writes.storages:
            return False
        called = [fn in _DETACHING or (fn is getattr and any([n.args[1] == "data" for n in nodes])) for fn, nodes in functions(graph)]
        return any(called) or any([n.target in _DETACHING for n in graph.find_nodes(op="call_method")])

    def _check_draws(self) -> None:
        """Checks that numbers drawn before the graph may have any value, and that it can run again: eager code that fails draws fewer."""
        symbols = self.trace.symbols
        if symbols is not None:
            symbols.inlined.check(self.trace.guards.interp)
        if symbols is not None and symbols.draws.of:
            symbols.check_draws()
            if self.trace.recorder.calls and may_fail(self.trace) and (does_more(self.trace) or not costs_little(self, self.written())):
                symbols.draws.depend(symbols.draws.of)

    def _guard_aliases(self) -> None:
        """Guards that each written object differs from the other objects of its kind, with one step for each kind."""
        trace = self.trace
        mutations = trace.mutations
        written = {w.src.reg: w.src for w in mutations.written.values()} | {src.reg: src for _, src, _, _ in mutations.slots.values()}
        if not written:
            return
        kinds: dict[Any, list[Source]] = {}
        for src in trace.sources.values():
            kinds.setdefault(_kind(src), []).append(src)
        for kind in {_kind(src): None for src in written.values()}:
            alike = {src.reg: src for src in kinds.get(kind, ())}
            ones = {reg: src for reg, src in written.items() if _kind(src) == kind}
            # Two constants of the program never become one object.
            held = all([src.op == "pin" for src in ones.values()])
            others = [src for reg, src in alike.items() if reg not in ones and not (held and src.op == "pin")]
            if others or not held:
                trace.guards.distinct(ones.values(), others)

    def _kinds(self, examples: list) -> Kinds | None:
        """Returns the facts about inputs and thread state on which a compiled graph may rely; None if they are not known."""
        tensors: Mapping[int, Any] = self.trace.guards.tensors
        symbols, sizes = self.trace.symbols, None
        if any([is_wrapper(src.value) for _, src in self.trace.recorder.inputs]):
            # The facts about them do not contain their parts.
            return None
        if symbols is not None and symbols.used and any(map(has_symbols, examples)):
            sizes = sizes_of(symbols.shapes, examples)
            if sizes is None:
                return None
            # ``sizes`` contains the facts about sizes, guarded or derived.
            tensors = {reg: without_sizes(facts) for reg, facts in tensors.items()} | dict.fromkeys(symbols.places.numbers, int)
        inputs = tuple([tensors.get(src.reg) for _, src in self.trace.recorder.inputs])
        return None if None in inputs else Kinds(self.trace.state.start, inputs, self._sharing(), sizes)

    def _tensors(self) -> list[Source]:
        return [src for _, src in self.trace.recorder.inputs if is_a(src.value, Tensor)]

    def _on_fakes(self) -> bool:
        """Returns whether the program gets fake tensors from the user, or makes some."""
        mode: Any = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)
        return mode is not None or any([is_a(src.value, FakeTensor) for _, src in self.trace.recorder.inputs])

    def _lying(self) -> list[tuple[Source, int, bool]]:
        """Returns the tensors among the graph's inputs, and their inner tensors: the storage of each, and whether the graph writes into it."""
        if self._memory is None:
            interp, mutated, data = self.trace.guards.interp, self.trace.recorder.writes.storages, self.trace.mutations.data
            memory, sources = interp.backing.memory, self.trace.sources
            wrappers = self.trace.containers.wrappers
            inner = [sources[x] for s in self._tensors() if is_wrapper(s.value) for x in wrappers.first_leaves(s.value)]
            self._memory = [(s, storage_of(s.value), storage_of(memory(interp, s.value)) in mutated or s.value in data) for s in (*self._tensors(), *inner)]
        return self._memory

    def _shares_data(self) -> bool:
        """Returns whether memory that an input has had before its ``.data`` was set lives on, or it gets memory that something else writes or has."""
        interp, writes = self.trace.guards.interp, self.trace.mutations.data.values()
        before, after = {storage_of(w.before) for w in writes}, {storage_of(value) for w in writes for value in w.values}
        if not after.isdisjoint(before | self.trace.recorder.writes.storages):
            return True
        # AOTAutograd makes a result that is a view of an input anew, from another input than the code has.
        inputs = {storage_of(interp.backing.memory(interp, src.value)) for src in self._tensors()}
        return not (before | (after & inputs)).isdisjoint(self.rebuild.outputs.places)

    def _shares_with_inner(self) -> bool:
        """Returns whether the graph writes into memory that an inner tensor of an input shares with another input: compilers see no sharing."""
        firsts, pattern = len(self._tensors()), self._sharing() or ()
        written = {first for first, (_, _, writes) in zip(pattern, self._lying(), strict=True) if writes} if pattern else set()
        return any([pattern.index(first) != i or pattern.count(first) > 1 for i, first in enumerate(pattern) if i >= firsts and first in written])

    def _sharing(self) -> tuple[int, ...] | None:
        """Returns which inputs share memory: for each, the first one with its storage. None if the graph writes into no input."""
        if len(self.written()) == 0 or len(self._lying()) < 2:
            return None
        first: dict[int, int] = {}
        return tuple([first.setdefault(at, i) if at else i for i, (_, at, _) in enumerate(self._lying())])

    def _shares_what_it_writes(self) -> bool:
        """Returns whether several inputs share memory that the graph writes into."""
        pattern = self._sharing() or ()
        written = [first for first, (_, _, writes) in zip(pattern, self._lying(), strict=True) if writes] if pattern else []
        return any([pattern.count(first) > 1 for first in written])

    def _overlap(self, examples: list) -> bool:
        """Returns whether the graph writes into memory where two inputs overlap, or one overlaps with itself."""
        if any([lies_on_itself(s.value) for s in self.written()]):
            return True
        if not self._shares_what_it_writes():
            return False
        spans = sorted([(t.untyped_storage()._cdata, t.storage_offset(), _end(t)) for t in examples if is_a(t, Tensor)])
        return any([a == b and start < end for (a, _, end), (b, start, _) in itertools.pairwise(spans)])

    def _guard_storages(self) -> None:
        """Guards which inputs share memory, if the graph writes into an input's memory."""
        pattern, guards = self._sharing(), self.trace.guards
        if pattern is not None:
            guards.storages([src for src, _, _ in self._lying()], pattern)
        if self._shares_what_it_writes():
            # A compiler rebuilds them from the memory that they share.
            for src in [s for s in self._tensors() if is_a(s.value, Tensor)]:
                offset = tensor_number(src.value, "offset", 0)
                guards.check(src, "predicate", (functools.partial(_lies_at, offset), f"lies at {offset} in its memory"), ("offset", offset))

    def _guard_tangents(self) -> None:
        """Guards which inputs have a tangent: it decides which results have one, and code can read that."""
        guards = self.trace.guards
        for src in self._tensors() if self.trace.state.start.dual_level else ():
            there = has_tangent(src.value)
            guards.check(src, "predicate", (functools.partial(_has_tangent, there), f"{'a' if there else 'no'} tangent"), "tangent")


def _saves_data(trace: SegmentTrace) -> bool:
    """Returns whether an operator may have saved a tensor for its gradients before the ``.data`` of that tensor is set: autograd then reads it again."""
    inputs = {node for node, src in trace.recorder.inputs if src.value in trace.mutations.data}
    tracked = {node for node, src in trace.recorder.inputs if is_a(src.value, Tensor) and src.value.requires_grad}
    enabled = trace.state.start.grad_mode
    for node in trace.recorder.graph.nodes:
        given = node.all_input_nodes
        if node.target is torch._C._set_grad_enabled:
            enabled = node.args[0]
        elif node.target is set_data:
            inputs.discard(node.args[0])
        elif enabled and not tracked.isdisjoint(given) and not (node.target is getattr and node.args[1] == "data"):
            if not inputs.isdisjoint(given):
                return True
            # It may have written into what it got.
            tracked.update((node, *given))
    return False


def _transforms(facts: AmbientFacts) -> bool:
    return bool(facts.functorch_levels) or facts.dual_level


def _has_tangent(there: bool, t: Tensor) -> bool:
    return has_tangent(t) == there


def _end(t: Tensor) -> int:
    return int(t.storage_offset()) + sum([(n - 1) * stride for n, stride in zip(t.shape, t.stride(), strict=True)]) + 1 if t.numel() else 0


def _lies_at(offset: int, t: Tensor) -> bool:
    # Not its method, which the user's class may override.
    return tensor_number(t, "offset", 0) == offset


def _kind(src: Source) -> Any:
    """Returns the kind of a source's object. Objects of different kinds differ: their types, or those of the dicts' owners, are guarded."""
    if src.op == "dict" and src.parent is not None:
        return ("dict", type(src.parent.value))
    return type(src.value)
