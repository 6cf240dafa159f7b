"""The bodies of control-flow operators: Python callables captured as graphs, without running them for real.

A body runs on fakes, on an interpreter that stops before any effect. Tensors and symbolic numbers that it uses from around it are lifted:
the operator takes them as further operands. Only when all bodies of an operator have become graphs does the graph around them change.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import TransformType
from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters, temporarily_clear_interpreter_stack
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from fineline.bytecode.asynchronous import let_pass
from fineline.cpython import protocols
from fineline.fake.fake_tensors import Fakes
from fineline.frames.graph_breaks import GraphBreak
from fineline.fx.body_recorder import BodyRecorder
from fineline.fx.graph_module import CapturedGraph
from fineline.identity import IdentityMap, IdentitySet
from fineline.kinds import is_a
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.tensor_ops.backing import computing
from fineline.tracing.interp import BodyInterp, Interp
from fineline.tracing.mutation_log import EMPTY, MutationLog, contents
from fineline.tracing.plain_values import PLAIN_TENSORS, is_value
from fineline.tracing.segment_trace import SegmentTrace

_CONTAINERS = (list, dict, set, deque, bytearray, types.CellType)
# Nobody keeps count of those of these that the captured code makes.
_FLEETING = (types.FunctionType, types.MethodType, tuple, frozenset, functools.partial)
_FIXED = (types.FunctionType, types.MethodType, tuple, frozenset, type, types.ModuleType, Tensor)


class NoBody(Exception):
    """A body that no graph can hold; the text says why. ``error``: another one than that, if it is asked for something else.

    ``rule``: the user's that has it break the graph; ``raised``: what the call has raised, if it has been made already.
    """

    def __init__(self, text: str, error: str = "FL520", rule: str = "", raised: Exception | None = None) -> None:
        super().__init__(text)
        self.error, self.rule, self.raised = error, rule, raised

    def graph_break(self, fn: Any, args: tuple, kwargs: dict | None, text: str) -> GraphBreak:
        """Returns where the operator runs instead, as it does in eager code."""
        graph_break = GraphBreak(fn, args, kwargs, self.error, f"{text}: {self}")
        graph_break.rule, graph_break.raised, self.raised = self.rule, self.raised, None
        return graph_break


def computed(interp: Interp, op: Any, args: tuple) -> Any:
    """Returns what an operator gives that runs graphs. Where it has to run eagerly, the user's call does, with the user's functions."""
    try:
        return interp.backing.run(interp, op, args, None)
    except GraphBreak as b:
        raise NoBody(b.reason, b.error, b.rule, b.raised) from None


class Body:
    """One that has become a graph."""

    def __init__(self, recorder: BodyRecorder, leaves: list[Any], given: dict[int, Any], spec: TreeSpec) -> None:
        self.recorder = recorder
        # All that it gives, flat, and how it is put together; of the tensors, by their places, the nodes.
        self.flat, self.spec = leaves, spec
        self._given = given

    def give(self, place: int, node: Any) -> None:
        """Makes the graph return a number."""
        self._given[place] = node

    def hold(self, place: int, n: Any, fakes: Fakes) -> None:
        """Makes the graph return a number in a tensor."""
        self._given[place] = self.recorder.quietly("call_function", torch.full, ((), self._given.get(place, n)), "full")
        with fakes.mode:
            self.flat[place] = torch.full((), 0)

    def keep(self, place: int) -> None:
        """Notes that a number is known outside the graph, which need not return it."""
        self._given.pop(place, None)

    @property
    def nodes(self) -> list[Any]:
        return [self._given[i] for i in sorted(self._given)]

    @property
    def outputs(self) -> list[Any]:
        return [self.flat[i] for i in sorted(self._given)]

    @property
    def leaves(self) -> list[Any]:
        """Returns all that it gives, with a mark for what its graph does."""
        return [EMPTY if i in self._given else leaf for i, leaf in enumerate(self.flat)]

    def rebuilt(self, tensors: Iterable[Any]) -> Any:
        """Returns what the body gives, made of these tensors."""
        rest = iter(tensors)
        return tree_unflatten([next(rest) if leaf is EMPTY else leaf for leaf in self.leaves], self.spec)

    def same_structure(self, other: Body) -> bool:
        return (
            self.spec == other.spec
            and len(self.leaves) == len(other.leaves)
            and all([a is b or (type(a) is type(b) and a == b) for a, b in zip(self.leaves, other.leaves, strict=True)])
        )


class Bodies:
    """Those of one call of an operator."""

    def __init__(self, interp: Interp, rows: bool = False) -> None:
        """Sets up the bodies. ``rows``: the operator has a rule for ``vmap``, inside which a body works on one row."""
        levels = retrieve_all_functorch_interpreters()
        if levels and (not rows or any([level.key() != TransformType.Vmap for level in levels])):
            raise NoBody("the call stands inside of a transform of torch.func")
        self.interp = interp
        self.fakes = interp.backing.body_fakes(rows=bool(levels))
        self.bodies: list[Body] = []

    # -- operands ------------------------------------------------------------------------------------------------------
    def like(self, t: Tensor) -> Tensor:
        """Stands for an operand of which only the shape is known."""
        twin = self.twin(t)
        return self._empty(twin.shape, twin.stride(), twin)

    def row(self, t: Tensor) -> Tensor:
        """Stands for any ``t[i]``."""
        twin = self.twin(t)
        return self._empty(twin.shape[1:], twin.stride()[1:], twin)

    def carried(self, v: Any) -> Any:
        """Stands for what goes from step to step, a tensor or an integer."""
        return self.like(v) if is_a(v, Tensor) else self.interp.trace.symbols.handed()

    def scalar(self, dtype: torch.dtype, like: Tensor, grad: bool = False) -> Tensor:
        """Stands for any number, on the device of ``like``."""
        with computing(self.interp), self.fakes.mode:
            return torch.empty((), dtype=dtype, device=like.device, requires_grad=grad)

    def _empty(self, shape: Any, strides: Any, twin: Tensor) -> Tensor:
        with computing(self.interp), temporarily_clear_interpreter_stack(), self.fakes.mode, torch.no_grad():
            return torch.empty_strided(shape, strides, dtype=twin.dtype, device=twin.device).requires_grad_(twin.requires_grad)

    def alike(self, a: Tensor, b: Tensor, strides: bool = True) -> bool:
        """Returns whether two tensors look the same from outside."""
        a, b = self.twin(a), self.twin(b)
        facts = [[t.dtype, t.device, *[str(n) for n in (*t.shape, *(t.stride() if strides else ()))]] for t in (a, b)]
        return facts[0] == facts[1]

    def twin(self, t: Any) -> Tensor:
        if type(t) not in PLAIN_TENSORS or t.layout is not torch.strided:
            raise NoBody(f"an operand is a {type(t).__name__}")
        with computing(self.interp):
            return self.fakes.twin(t)

    # -- bodies --------------------------------------------------------------------------------------------------------
    def capture(
        self,
        fn: Any,
        args: Iterable[Any],
        kwargs: dict | None = None,
        holes: Iterable[Any] = (),
        aliases: bool = False,
        indices: bool = False,
        numbers: bool = False,
    ) -> Body:
        """Captures ``fn(*args, **kwargs)`` as a graph; ``holes`` are those of its arguments that the operator passes.

        ``aliases``: it may return its arguments, or views of them. ``indices``: single numbers in tensors may be indices.
        ``numbers``: it may return symbolic numbers.
        """
        interp, args = self.interp, tuple(args)
        assert interp.nested.make_body is not None
        inner = interp.nested.make_body(interp, self.fakes, indices)
        for t in holes:
            node = inner.recorder.hole(t)
            if type(t) is torch.SymInt:
                inner.recorder.own[t.node.expr] = node
        watch = _watched(interp.trace, [fn, *args, *(kwargs or {}).values()])
        given = {**(kwargs or {})}
        inner.made.update((given, args))
        try:
            with computing(interp), temporarily_clear_interpreter_stack():
                value = inner.settled(protocols.call_spread, [fn, args, given])
        except NoBody:
            raise
        except Exception as e:
            let_pass(e)
            raise NoBody(f"it raises {type(e).__name__}: {e}{inner.reached()}") from None
        finally:
            changed = any([not _unchanged(w.before, w.obj) for w in watch.written.values()])
            if changed:
                watch.undo()
        if changed:
            raise NoBody("it changes what the code around it has made")
        body = self._body(inner, value, aliases, numbers)
        self.bodies.append(body)
        return body

    def _body(self, inner: BodyInterp, value: Any, aliases: bool, numbers: bool) -> Body:
        recorder: BodyRecorder = inner.recorder
        leaves, spec = tree_flatten(value, is_leaf=lambda v: type(v) not in (tuple, list, dict))
        given: dict[int, Any] = {}
        for i, leaf in enumerate(leaves):
            if is_a(leaf, Tensor):
                self.twin(leaf)
                given[i] = self._node(recorder, leaf)
            elif type(leaf) in SYMBOLIC and numbers:
                given[i] = inner.number(leaf)
            elif not is_value(leaf):
                raise NoBody(f"it gives a {type(leaf).__name__}")
        if not aliases:
            self.apart(
                [*[leaves[i] for i in given if is_a(leaves[i], Tensor)], *recorder.given()], "it uses and gives tensors that share memory"
            )
        return Body(recorder, leaves, given, spec)

    def _node(self, recorder: BodyRecorder, t: Tensor) -> Any:
        node = recorder.find(t)
        if node is None:
            src = self.interp.trace.sources.get(t)
            if src is None:
                raise NoBody("it gives a tensor of unknown origin")
            node = recorder.placeholder(t, "arg", src)
        return node

    def apart(self, tensors: Iterable[Tensor], text: str) -> None:
        """Raises `NoBody` if two of these share memory."""
        storages = [self.twin(t).untyped_storage()._cdata for t in tensors]
        if len(set(storages)) < len(storages):
            raise NoBody(text)

    # -- in the end ----------------------------------------------------------------------------------------------------
    def lifted(self) -> tuple[list[Any], list[Any]]:
        """Returns what all bodies take as further operands: the values, and their nodes in the graph around them."""
        tensors, numbers = self._tensors(), self._numbers()
        nodes = [body.recorder.node_outside(t, read) for body, t, read in tensors]
        return [t for _, t, _ in tensors] + numbers, nodes + [self.interp.trace.to_fx(n) for n in numbers]

    def module(self, body: Body, name: str, single: bool = False) -> CapturedGraph:
        """Returns the graph of a body, which takes its holes and all that is lifted; ``single``: it gives a tensor, and not a tuple."""
        outputs = body.nodes[0] if single else tuple(body.nodes)
        self.interp.trace.recorder.traits.fatal |= body.recorder.traits.fatal
        return body.recorder.graph_of(outputs, [t for _, t, _ in self._tensors()], self._numbers(), name)

    def _tensors(self) -> list[tuple[Body, Tensor, Any]]:
        found: IdentityMap[tuple[Body, Tensor, Any]] = IdentityMap()
        for body in self.bodies:
            for _, t, read in body.recorder.lifted:
                if t not in found or found[t][2] is None:
                    found[t] = body, t, read
        return found.values()

    def _numbers(self) -> list[Any]:
        return list({key: n for body in self.bodies for key, (_, n) in body.recorder.numbers.items()}.values())


# -- what the code around a body has made --------------------------------------------------------------------------------------
def _watched(trace: SegmentTrace, roots: list) -> MutationLog:
    """Copies of the containers made in the captured code that a body can reach: no mutation log hears of writes to these."""
    watch = MutationLog()
    roots = [*roots, *[w.obj for w in trace.mutations.written.values()], *[obj for obj, _, _, _ in trace.mutations.slots.values()]]
    seen, todo = IdentitySet((trace,)), deque(roots)
    while todo:
        obj = todo.popleft()
        if obj in seen or is_value(obj) or is_a(obj, (Tensor, type, types.ModuleType)):
            continue
        seen.add(obj)
        made = obj in trace.made
        if made and is_a(obj, _CONTAINERS):
            watch.note(obj, None)  # type: ignore[arg-type]
        elif made and not is_a(obj, _FIXED) and not _frozen(obj):
            held = _space(obj)
            if type(held) is not dict or any([k.__dict__.get("__slots__") for k in type(obj).__mro__]):
                raise NoBody(f"it can reach a {type(obj).__name__} that the captured code has made")
            watch.note(held, None)  # type: ignore[arg-type]
        # What was there before the call, and was not written to, holds nothing that was made since.
        if made or obj in trace.mutations.written or (obj not in trace.sources and is_a(obj, _FLEETING)):
            todo.extend(_held(obj))
    return watch


def _held(obj: Any) -> Iterator[Any]:
    if is_a(obj, types.FunctionType):
        yield from obj.__closure__ or ()
        yield from obj.__defaults__ or ()
        yield from (obj.__kwdefaults__ or {}).values()
    elif is_a(obj, types.MethodType):
        yield from (obj.__self__, obj.__func__)
    elif is_a(obj, types.CellType):
        if (content := contents(obj)) is not EMPTY:
            yield content
    elif is_a(obj, dict):
        yield from dict.values(obj)
    elif is_a(obj, (tuple, list, set, frozenset, deque)):
        yield from obj
    elif is_a(obj, functools.partial):
        yield from (obj.func, *obj.args, *obj.keywords.values())
    elif _frozen(obj):
        yield from [object.__getattribute__(obj, field.name) for field in dataclasses.fields(obj)]
    elif type(space := _space(obj)) is dict:
        yield from space.values()


def _space(obj: Any) -> Any:
    return object.__getattribute__(obj, "__dict__") if type(obj).__dictoffset__ else None


def _frozen(obj: Any) -> bool:
    return getattr(getattr(type(obj), "__dataclass_params__", None), "frozen", False)


def _unchanged(before: Any, obj: Any) -> bool:
    if is_a(obj, types.CellType):
        return contents(obj) is before
    if is_a(obj, bytearray):
        return bytes(obj) == before
    if len(before) != len(obj):
        return False
    if is_a(obj, dict):
        return all([a is b for a, b in zip(before, obj, strict=True)]) and all([obj[k] is v for k, v in before.items()])
    return all([a is b for a, b in zip(before, obj, strict=True)])
