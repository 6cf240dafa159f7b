"""The interpreters of captures that ``explain`` watches: they keep a tree of the calls. Other captures pay nothing for it."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, TypeVar, TypeVarTuple

from torch._library.custom_ops import CustomOpDef
from torch._ops import OpOverload, OpOverloadPacket

from fineline.bytecode.code import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from fineline.frames.frame import Frame, FramePlaces, stack
from fineline.frames.graph_breaks import Delivery, GraphBreak
from fineline.frames.stub_frames import is_own, is_stand_in
from fineline.fx.body_recorder import Part
from fineline.identity import AddressMap, AddressSet
from fineline.interp.interpreter import AroundCall, Interpreter
from fineline.interp.sub_interpreter import SubGraphTensors, SubInterpreter
from fineline.kinds import is_a
from fineline.policy.marks import wrapped
from fineline.region.descriptions import name_of, place_of, user_place
from fineline.region.disabled_frames import FrameRunner
from fineline.region.session.break_errors import deciding_rule
from fineline.region.watch import Watch
from fineline.report.clock import CallClock
from fineline.report.costs import MetBreak
from fineline.report.operator_counter import OperatorCounts
from fineline.report.recording import Recording
from fineline.report.tree import Cause, Node, merged
from fineline.stacks import PROGRAM, is_library
from fineline.tensor_ops.tensors import TensorOps
from fineline.tracing.interp import Backing, CaptureHost, Interp, InterpreterOptions
from fineline.tracing.lessons import Lessons
from fineline.tracing.subgraph_rules import SubGraphRules

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
# The namespaces of PyTorch's own operators.
_PYTORCHS = frozenset({"aten", "prim", "prims", "higher_order", "inductor", "quantized", "torch", "c10d", "_c10d_functional"})
# Python code through which calls of custom operators go: it gets no node.
_PASSED = frozenset({CustomOpDef.__call__.__code__})

# Code whose frames are left and resumed.
_RESUMED = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR

# A program that runs for ever would make a tree without end.
MOST_NODES = 100_000


class Tree:
    """The calls so far. ``under_way``: the root, and the eager calls in progress below it."""

    def __init__(self, name: str, place: tuple[str, int]) -> None:
        self.root = Node(name, *place, "captured")
        self.under_way = [self.root]
        # By place after a graph break: the nodes of the frames that were last suspended there, the innermost first.
        self.left: dict[FramePlaces, list[Node | None]] = {}
        self.recording = Recording()
        self._size = 1

    def add(self, parent: Node, name: str, place: tuple[str, int], colour: str) -> Node:
        node = Node(name, *place, colour)
        self._size += 1
        if self._size < MOST_NODES:
            parent.children.append(node)
        return node

    def innermost(self) -> Node:
        """Returns the node of the innermost eager call in progress; the root if there is none."""
        return self.under_way[-1]

    def result(self) -> Node:
        """Returns the tree of the one call; its root stands for the compiled callable, which usually calls one function."""
        found = merged(self.root.children) if not self.root.operators else None
        return found if found is not None else self.root


# The owner of a frame that runs in an eager call. fineline's frames include all that it calls itself, such as listeners and backends.
USERS, LIBRARYS, FINELINES = "user", "library", "fineline"


class EagerCall:
    """Makes the eager call of a graph break, during the capture or after it: measures it, and adds the calls of user functions in it to a tree.

    While another profiler is active, it adds no calls.
    """

    def __init__(self, tree: Tree, outermost: CodeType | None, met: MetBreak | None) -> None:
        self.tree, self.outermost = tree, outermost
        self._node, self._met = tree.innermost(), met
        # The running frames, with the owner of each, and whether it has a node.
        self.frames: list[tuple[FrameType, str, bool]] = []
        # Frames that may be resumed: the node of each, its code, and the instruction at which it was left. A frame at a dead one's address is
        # no danger: it begins at an earlier instruction.
        self._left: AddressMap[tuple[Node, CodeType, int]] = AddressMap()

    def __call__(self, call: Callable[[*Ts], T], *args: *Ts) -> T:
        under_way = self.tree.under_way
        depth = len(under_way)
        under_way.append(self._node)
        try:
            with self.tree.recording.clock.running(self.tree.innermost):
                return self._watched(call, *args)
        finally:
            del under_way[depth:]

    def _watched(self, call: Callable[[*Ts], T], *args: *Ts) -> T:
        if sys.getprofile() is None:
            sys.setprofile(self.see)
        try:
            return self._met.during(call, *args) if self._met is not None else call(*args)
        finally:
            if sys.getprofile() == self.see:
                sys.setprofile(None)
            while self.frames:
                self._leave()

    def see(self, frame: FrameType, what: str, _: object) -> None:
        """Handles an event of Python's profiler."""
        if what == "return" and self.frames and self.frames[-1][0] is frame:
            self._leave()
        elif what == "call":
            self._enter(frame)

    def _enter(self, frame: FrameType) -> None:
        code, tree = frame.f_code, self.tree
        if code is self.outermost:
            # The frame has a node already.
            whose, shown, self.outermost = USERS, False, None
        else:
            whose = self._whose(frame)
            shown = whose is USERS
        if shown:
            # A generator or coroutine that is resumed has the node of the call that started it.
            node, left, at = self._left.get(frame, (None, None, -1))
            if node is None or left is not code or frame.f_lasti < at:
                node = tree.add(tree.under_way[-1], code.co_qualname, (code.co_filename, code.co_firstlineno), "eager")
            tree.recording.clock.charge()
            tree.under_way.append(node)
        self.frames.append((frame, whose, shown))

    def _whose(self, frame: FrameType) -> str:
        code, caller = frame.f_code, frame.f_back
        by = self.frames[-1][1] if self.frames else LIBRARYS
        if is_own(code) or code.co_filename.startswith(PROGRAM):
            return LIBRARYS
        if by is FINELINES or (caller is not None and is_own(caller.f_code) and not is_stand_in(caller.f_code)):
            return FINELINES
        if code.co_filename.startswith("<"):
            # Code that is compiled from a text belongs to its caller: libraries make classes that way.
            return by
        return LIBRARYS if is_library(code.co_filename) else USERS

    def _leave(self) -> None:
        frame, _, shown = self.frames.pop()
        if shown:
            self.tree.recording.clock.charge()
            node = self.tree.under_way.pop()
            if frame.f_code.co_flags & _RESUMED:
                self._left[frame] = node, frame.f_code, frame.f_lasti


class _Counting(TensorOps):
    """Counts the operators of each frame; a custom operator is a call of its own."""

    def record(self, interp: Interp, op: str, target: Any, fx_args: tuple, fx_kwargs: dict, result: Any, untyped: bool = False) -> None:
        super().record(interp, op, target, fx_args, fx_kwargs, result, untyped)
        interp.note_operator()
        name = _custom_operator(target)
        if name:
            interp.note_call(name, None, "opaque", 1)


class WatchedSubGraphTensors(_Counting, SubGraphTensors):
    """Operators of a sub-graph, counted."""


def _custom_operator(target: Any) -> str:
    """Returns the name of an operator that is not PyTorch's own."""
    if is_a(target, OpOverload):
        target = target.overloadpacket
    name: str = target._qualified_op_name if is_a(target, OpOverloadPacket) else ""
    return "" if name.partition("::")[0] in _PYTORCHS else name


class _WatchedCalls(Interpreter):
    """An interpreter that records its calls in a tree."""

    tree: Tree
    # The nodes of the bodies of the operator that is recorded next, and of the latest one.
    bodies: list[Node]
    latest: list[Node]
    # The parts of the tree that are new since the last graph break: nodes with their parents, and operators with their nodes.
    new_nodes: list[tuple[Node, Node]]
    new_operators: list[tuple[Node, int]]
    # The running frame, and the clock that measures it; None before `watch`.
    _frame: Frame | None
    _clock: CallClock | None = None

    def watch(self, tree: Tree) -> None:
        self.tree, self._clock = tree, tree.recording.clock
        self._begin_segment()

    @property
    def frame(self) -> Frame | None:
        return self._frame

    @frame.setter
    def frame(self, f: Frame | None) -> None:
        """Makes ``f`` the running frame: the time up to now belongs to the former one."""
        if self._clock is not None:
            self._clock.charge()
        self._frame = f

    def run(self, throw: BaseException | None = None) -> Any:
        with self.tree.recording.clock.running(self.running_node):
            return super().run(throw)

    def running_node(self) -> Node:
        return self.node_of(self._frame)

    def outermost(self) -> Node:
        """Returns the node for calls that no frame of this interpreter makes."""
        return self.tree.innermost()

    def node_of(self, f: Frame | None) -> Node:
        while f is not None:
            node = f.extras.node
            if node is not None:
                return node
            f = f.back
        return self.outermost()

    def add(self, parent: Node, name: str, place: tuple[str, int], colour: str) -> Node:
        node = self.tree.add(parent, name, place, colour)
        self.new_nodes.append((parent, node))
        return node

    def note_operator(self, count: int = 1) -> None:
        """Counts an operator, which may run the bodies that have just been captured."""
        node = self.node_of(self.frame)
        self._count(node, count)
        self.new_nodes += [(node, body) for body in self.bodies]
        node.children += self.bodies
        self.latest, self.bodies = self.bodies, []

    def note_subgraph(self, inner: Any) -> None:
        # A body may be captured more than once.
        self.bodies += [node for node in inner.root.children if node not in self.bodies]

    def _count(self, node: Node, operators: int) -> None:
        node.operators += operators
        self.new_operators.append((node, operators))
        self.tree.recording.operators.append(node)

    def note_call(self, name: str, fn: Any, colour: str, operators: int = 0) -> None:
        if self.nested.opaque is not None:
            return
        f, caller = self.frame, self.node_of(self.frame)
        while f is not None and f.info.code in _PASSED:
            f = f.back
        node = self.add(caller, name, place_of(fn) if fn is not None else user_place(f, None), colour)
        if operators:
            self._count(caller, -operators)
            self._count(node, operators)
            caller.children[:] = [child for child in caller.children if not any([child is body for body in self.latest])]
            if colour == "captured":
                # Not for an opaque call: its capture may have ended at code that no graph can contain, and is not what runs.
                node.children += self.latest

    def forget_calls(self) -> None:
        for parent, node in self.new_nodes:
            parent.children[:] = [child for child in parent.children if child is not node]
        for node, operators in self.new_operators:
            node.operators -= operators
        self.tree.recording.forget_operators()
        self._begin_segment()

    def _begin_segment(self) -> None:
        self.bodies, self.latest, self.new_nodes, self.new_operators = [], [], [], []

    def push_function(self, f: Frame | None, fn: Any, args: list, kwargs: dict | None, then: Delivery | None = None) -> Frame | None:
        opaque = self.nested.opaque
        frame = super().push_function(f, fn, args, kwargs, then)
        code: CodeType = fn.__code__
        name: str = fn.__qualname__
        passed = is_own(code) or code in _PASSED
        if frame is not None and frame.function is fn and not passed and (opaque is None or opaque.frame is None):
            colour = "opaque" if opaque is not None else "captured" if self.trace.active else "eager"
            node = frame.own_extras().node = self.add(self.node_of(f), name, (code.co_filename, code.co_firstlineno), colour)
            if colour == "eager" and self.outcome.failure is not None:
                node.cause = Cause(*self.outcome.failure, "", True, *self.outcome.failed_at)
        return frame


class WatchedSubInterpreter(_WatchedCalls, SubInterpreter):
    """The interpreter of a sub-graph that is watched: its calls are those of the operator that runs the sub-graph."""

    tensors_class = WatchedSubGraphTensors

    def __init__(self, outer: _WatchedCalls, rules: SubGraphRules, recorder: Part, backing: Backing, made: AddressSet) -> None:
        super().__init__(outer, rules, recorder, backing, made)
        self.root, self._outer = Node("", "", 0, "captured"), outer
        self.watch(outer.tree)

    def outermost(self) -> Node:
        return self.root

    def running_node(self) -> Node:
        return self.node_of(self._frame) if self._frame is not None else self._outer.running_node()


class Watched(_WatchedCalls):
    """The interpreter of a capture that is watched."""

    def __init__(self, tree: Tree, options: InterpreterOptions, lessons: Lessons, host: CaptureHost[Interpreter]) -> None:
        super().__init__(options, lessons, host)
        self.nested.sub_interpreter = WatchedSubInterpreter
        self.tensors = _Counting(self.tensors)
        tree.recording.forget_operators()
        self.watch(tree)

    def note_break(self, place: FramePlaces) -> None:
        self.tree.left[place] = [f.extras.node for f in stack(self.frame)]
        self._begin_segment()

    def note_continuation(self, place: FramePlaces) -> None:
        for f, node in zip(stack(self.frame), self.tree.left.get(place, ()), strict=False):
            if node is not None:
                f.own_extras().node = node

    def beyond(self, graph_break: GraphBreak) -> Any:
        return self.around_eager_call(graph_break)(super().beyond, graph_break)

    def around_eager_call(self, graph_break: GraphBreak) -> AroundCall:
        return EagerCall(self.tree, _code_of(_called(graph_break)), graph_break.met)

    def at_graph_break(self, graph_break: GraphBreak) -> Frame:
        fn = _called(graph_break)
        code = _code_of(fn)
        if self.nested.opaque is not None or (code is not None and is_own(code)):
            return super().at_graph_break(graph_break)
        place = (code.co_filename, code.co_firstlineno) if code is not None else user_place(self.frame, None)
        name = getattr(fn, "__qualname__", None) or getattr(fn, "__name__", None) or type(fn).__qualname__
        name = str(name).replace("TensorBase.", "Tensor.")
        node, at = self.add(self.node_of(self.frame), name, place, "eager"), user_place(self.frame, None)
        self.tree.under_way.append(node)
        try:
            return super().at_graph_break(graph_break)
        finally:
            self.tree.under_way.pop()
            # Not before: the reason gets more words on the way.
            node.cause = Cause(graph_break.error, graph_break.reason, *deciding_rule(graph_break, at), *at)


def tree_of(fn: Callable, name: str | None) -> Tree:
    """Returns the tree of the calls of ``fn``, without calls."""
    return Tree(name or name_of(fn), place_of(fn))


def watch_calls(tree: Tree, tally: OperatorCounts | None, told: bool) -> Watch:
    """Returns a watch that adds the calls of captures to ``tree``, and operators to ``tally``. ``told``: listeners get the tree."""
    return Watch(functools.partial(Watched, tree), tally, tree.result if told else None, tree.recording)


def _called(graph_break: GraphBreak) -> Any:
    """Returns the callable that runs at a graph break."""
    fn, args = graph_break.fn, graph_break.args_
    return args[1].forward if fn is FrameRunner.apply else wrapped(args[0] if is_a(fn, FrameRunner) else fn)


def _code_of(fn: Any) -> CodeType | None:
    """Returns the code of a function, without the wrappers of libraries, such as PyTorch's marks; None if it has no code."""
    code: CodeType | None = getattr(fn, "__code__", None)
    while code is not None and is_library(code.co_filename) and is_a(inner := getattr(fn, "__wrapped__", None), types.FunctionType):
        fn, code = inner, inner.__code__
    return code
