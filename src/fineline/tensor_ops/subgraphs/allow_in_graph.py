"""Opaque calls: each is one node of the graph. The interpreter runs the function once, without recording it, to check that it keeps the contract."""

from __future__ import annotations

import dataclasses
import enum
import functools
import threading
from collections.abc import Iterator
from operator import attrgetter
from types import CellType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from fineline.cpython import protocols
from fineline.cpython.impure_callables import called, reaches_out
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import Delivery, GraphBreak, Restart
from fineline.fx.function_node import FunctionCall
from fineline.fx.recorder import FX_CONSTANTS, NotForGraph
from fineline.identity import IdentitySet
from fineline.kinds import is_a, is_users_class
from fineline.objects.c_access import may_compare
from fineline.objects.c_calls import describe as describe_native
from fineline.objects.deferred_texts import make_first
from fineline.objects.lru_caches import LRU_TYPE
from fineline.policy.rule import BUILT_IN, MARK, Rule
from fineline.policy.selector import describe
from fineline.stacks import is_library
from fineline.symbolic.arithmetic import SYMBOLIC, settle_all, settled
from fineline.tensor_ops.speculation import settle_first
from fineline.tensor_ops.subgraphs.autograd_function import see_methods
from fineline.torch_facts.releases import APPLY
from fineline.torch_facts.unguarded_sizes import Foresight
from fineline.tracing.identity_guards import BOUND, identify, known_code
from fineline.tracing.interp import Call, Interp
from fineline.tracing.mutation_log import EMPTY, Met, contents, is_plain_class
from fineline.tracing.plain_values import PINNED, SINGLETONS, VALUES, is_value
from fineline.tracing.segment_trace import SegmentTrace

# A function with only PyTorch's mark may change something this many times, for example fill a table at its first call. After that, it
# always breaks the graph.
MOST_CHANGES = 3
# The most objects among which a tensor is looked for.
MOST_SEARCHED = 10_000
_WITHOUT_TENSORS = frozenset({ModuleType, type})


class OpaqueCall:
    """One opaque call while it runs: the tensors that it may use, the contents of its arguments before it, and what it has done."""

    def __init__(self, interp: Interp, fn: Any, rule: Rule, given: list) -> None:
        trace = interp.trace
        self.fn = fn
        self.rule = rule
        self.given = given
        # Whether the function has PyTorch's mark, which promises less than a rule.
        self.lenient = rule.scope == BUILT_IN or _marked_by_torch(interp, fn)
        self.before = list(parts(given))
        inputs = list(tensors(given))
        self.known = IdentitySet(inputs)
        self.versions = [(t, interp.backing.memory(interp, t)._version) for t in inputs if not t.is_inference()]
        # Each read of the function must go through the mutation log again, which notes it in ``met``.
        self.expanded = trace.read_again()
        self.met: list[Met] = []
        trace.mutations.met = self.met
        # The frame of the function, if it is a Python function.
        self.frame: Frame | None = None
        # Whether it has run an operator, and whether it may have read the numbers in a tensor: then results that are not tensors depend on them.
        self.ran = self.read = False
        # Whether the sizes of its result cannot be known before it runs.
        self.unmeasured = False
        # The results of C calls that capture does not know.
        self.own: list[Any] = []
        # Whether it has changed something, which counts toward `MOST_CHANGES`.
        self.changed = False

    def leave(self, interp: Interp) -> None:
        """Ends the opaque call."""
        trace = interp.trace
        interp.nested.opaque = trace.mutations.met = None
        trace.containers.expanded.update(self.expanded)

    def raised(self, interp: Interp) -> None:
        """Ends the opaque call with an exception; if operators have run, the capture fails, because no node represents them."""
        self.leave(interp)
        if self.ran and interp.trace.active and interp.outcome.abandoned is None:
            interp.fail("FL408", f"{describe(self.fn)}, which is one call in graphs, raised after its first operator", False)

    def fault(self) -> str | None:
        """Returns a text about what the function did and a single node cannot represent; None if there is nothing."""
        containers = IdentitySet(self.before)
        # Writes come first, because "changes" sorts before "reads".
        for met in sorted(self.met, key=attrgetter("verb")):
            # A library's function may replace a table by a copy of it at each call (einx). The node finds the same contents then, and
            # the program replaces the table too.
            if self.lenient and met.is_renewal:
                continue
            if met.verb == "changes":
                self.changed = True
                return f"it changes {met.text}"
            if met.src.value not in containers:
                return f"it reads {met.text}, which the captured code has changed before"
        after = list(parts(self.given))
        if len(after) != len(self.before) or not all([a is b for a, b in zip(after, self.before, strict=True)]):
            return "it changes a container that it is given"
        return None

    def run(self, interp: Interp, fn: Any, args: Any, kwargs: Any, kind: str | None) -> Any:
        """Runs an operator inside the opaque call; it is not a node."""
        if kind == "effect" and (text := reaches_out(fn, args, lambda obj: False)) is not None:
            self.breaks(interp, f"it calls {describe_native(fn)}, which {text}", unchecked=True)
        self.ran = True
        for t in tensors([*args, *(kwargs or {}).values()]):
            self.check(interp, t)
        sizes = interp.tensors.foreseen(interp, fn, args, kwargs) if kind == "op" else Foresight.FORESEEN
        if kind == "data" or sizes is Foresight.BY_DATA:
            self.reads_numbers()
        self.unmeasured = self.unmeasured or sizes in (Foresight.UNFORESEEN, Foresight.WATCHED)
        if not interp.backing.real and kind == "data":
            raise Restart("FL515", f"{describe(self.fn)} reads the numbers in a tensor")
        return self.made(interp, interp.backing.run(interp, fn, args, kwargs))

    def meet(self, interp: Interp, graph_break: GraphBreak) -> None:
        """Checks the eager call of ``graph_break`` before it runs: C code may compute from its arguments, but have no other effect."""
        fn, args = (graph_break.args_[0], graph_break.args_[1]) if graph_break.fn is protocols.spread_call else (graph_break.fn, graph_break.args_)
        if (text := reaches_out(fn, args, lambda obj: obj in interp.trace.made or any([obj is o for o in self.own]))) is not None:
            self.breaks(interp, f"it calls {describe_native(called(fn, args)[0])}, which {text}", unchecked=True)

    def reads_numbers(self) -> None:
        """Notes that the function reads the numbers in a tensor."""
        self.read = self.unmeasured = True

    def check(self, interp: Interp, t: Tensor) -> None:
        if t not in self.known:
            src = interp.trace.sources.get(t)
            name = src.text() if src is not None else f"of shape {tuple(t.shape)} that the captured code made"
            self.breaks(interp, f"it uses the tensor {name}, which is not one of its arguments")

    def breaks(self, interp: Interp, text: str, unchecked: bool = False) -> None:
        """Raises an error about a broken contract; if the mark is PyTorch's only, or a library's, which promise less, the function will break the graph.

        ``unchecked``: do so also if the function has both PyTorch's mark and fineline's, as under `install`.
        """
        if not _is_of_library(interp, self.fn, self.rule) and not (unchecked and _marked_by_torch(interp, self.fn)):
            raise broken(interp, self.fn, self.rule, text)
        fills = False
        if is_a(self.fn, FunctionType):
            counts, code = interp.lessons.functions.broken_contracts, self.fn.__code__
            # In the capture after a call that has run eagerly, the function only reads what it has filled in the call.
            fills = self.changed and not (interp.backing.real and interp.backing.undone and counts[code])
            # On fake tensors the change has had no effect; it is counted when it happens on the real tensors.
            counts[code] += interp.backing.real if fills else MOST_CHANGES
        interp.fail("FL454" if fills else "FL107", _but(self.fn, text), False)

    def given_by(self, interp: Interp, graph_break: GraphBreak, value: Any) -> None:
        """Notes the result ``value`` of a C call that capture does not know."""
        fn = graph_break.fn
        self.read = True
        # No size comes from a tensor's numbers by a call that is given no tensor, such as one that looks up a cache.
        self.unmeasured = self.unmeasured or _may_reach_tensor([fn, graph_break.args_, graph_break.kwargs])
        self.own.append(value)
        if is_a(fn, type) and type(value) is fn:
            interp.trace.made.add(value)
            interp.trace.kept.append(value)
        self.made(interp, value)

    def made(self, interp: Interp, value: Any) -> Any:
        for t in tensors(value):
            self.known.add(t)
            interp.trace.made.add(t)
        return value


def _may_reach_tensor(values: list) -> bool:
    """Returns whether C may find a tensor, or what C made from one, in ``values``, their contents and their attributes."""
    seen, ahead = IdentitySet(), values
    while ahead:
        value = ahead.pop()
        t = type(value)
        if value in seen or t in _WITHOUT_TENSORS or t in SINGLETONS or t in VALUES:
            continue
        if len(seen) > MOST_SEARCHED or is_a(value, Tensor):
            return True
        seen.add(value)
        if is_a(value, (tuple, list, set, frozenset)):
            ahead += value
        elif is_a(value, dict):
            ahead += [*dict.keys(value), *dict.values(value)]
        elif t in BOUND:
            ahead += [value.__self__, getattr(value, "__func__", None)]
        elif t is FunctionType:
            ahead += [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
            ahead += [cell.cell_contents for cell in value.__closure__ or () if contents(cell) is not EMPTY]
        elif t is LRU_TYPE:
            ahead.append(getattr(value, "__wrapped__", None))
        elif t is functools.partial:
            ahead += [value.func, value.args, value.keywords]
        elif not is_a(value, (SimpleNamespace, threading.local, *PINNED)) and not is_plain_class(t):
            return True
        if is_a(value, threading.local):
            ahead.append(threading.local.__getattribute__(value, "__dict__"))
        elif t is SimpleNamespace or (is_users_class(t) and t.__dictoffset__):
            ahead.append(object.__getattribute__(value, "__dict__"))
    return False


def tensors(value: Any) -> Iterator[Tensor]:
    """Yields the tensors in ``value``, at any depth of containers, dataclasses and slices."""
    for leaf in leaves(value):
        if is_a(leaf, Tensor):
            yield leaf


def parts(value: Any) -> Iterator[Any]:
    """Yields ``value`` and, in order and at any depth, the contents of containers and dataclasses in it."""
    yield value
    if is_a(value, (tuple, list)):
        held: Any = value
    elif is_a(value, dict):
        held = dict.values(value)
    else:
        held = vars(value).values() if dataclasses.is_dataclass(value) and hasattr(value, "__dict__") else ()
    for item in held:
        yield from parts(item)


def leaves(value: Any) -> Iterator[Any]:
    if is_a(value, (tuple, list)):
        for item in value:
            yield from leaves(item)
    elif is_a(value, dict):
        for item in dict.values(value):
            yield from leaves(item)
    elif dataclasses.is_dataclass(value) and not is_a(value, type):
        for field in dataclasses.fields(value):
            yield from leaves(getattr(value, field.name))
    elif is_a(value, slice):
        yield from (value.start, value.stop, value.step)
    else:
        yield value


def call_allowed(call: Call, rule: Rule) -> Frame | None:
    """Handles a call of a function that a rule allows in graphs: runs it unrecorded, with guards on its reads, and records one node."""
    interp, fn = call.interp, call.fn
    # A function mode has to see the operators inside. PyTorch's mark of an autograd.Function does not promise enough for one node.
    if interp.nested.opaque is not None or interp.nested.modes or (fn is APPLY and rule.scope == BUILT_IN and not see_methods(interp, call.args[0])):
        return interp.call_plainly(call.frame, fn, call.args, call.kwargs, call.then)
    if (rule.scope == BUILT_IN or _marked_by_torch(interp, fn)) and interp.lessons.functions.broken_contracts[getattr(fn, "__code__", None)] >= MOST_CHANGES:
        known_code(call.trace, fn)
        raise call.graph_break("FL107", _but(fn, "it has not kept the contract before"))
    if interp.trace.deferred.texts:
        make_first(call, leaves(call.values()))
    settle_first(call, str(rule), checked=True)
    try:
        return _run_once(call, rule)
    except Unfit as e:
        if not _is_of_library(interp, fn, rule):
            raise broken(interp, e.fn, rule, str(e)) from None
        raise call.graph_break("FL107", _but(e.fn, str(e))) from None


def _marked_by_torch(interp: Interp, fn: Any) -> bool:
    """Returns whether a function carries the mark of PyTorch's ``allow_in_graph``, which checks nothing."""
    return interp.rules is not None and id(fn) in interp.rules.allowed_by_torch


def _is_of_library(interp: Interp, fn: Any, rule: Rule) -> bool:
    """Returns whether the mark of a function is PyTorch's only, or a library has set it by PyTorch's name (under `install`, a rule as the user's).

    The user cannot mend what a library marks.
    """
    return rule.scope == BUILT_IN or (rule.scope == MARK and is_library(rule.place.rpartition(":")[0]) and _marked_by_torch(interp, fn))


class Unfit(Exception):
    """Raised before ``fn`` runs if ``fn``, or one of its arguments, cannot be part of a node."""

    def __init__(self, fn: Any, text: str) -> None:
        super().__init__(text)
        self.fn = fn


def _run_once(call: Call, rule: Rule) -> Frame | None:
    interp, fn, args, kwargs = call.interp, call.fn, call.args, call.kwargs or {}
    target = _target(interp, fn, args)
    if fn is APPLY:
        # The target contains the class, which is not an argument of the node.
        fn, args = target, args[1:]
    given = [*args, *kwargs.values()]
    try:
        fx = tuple([_carried(interp, a) for a in args]), {k: _carried(interp, v) for k, v in kwargs.items()}
        for value in given:
            call.trace.expand(value, deep=True)
    except NotForGraph as e:
        raise Unfit(fn, f"it is called with {e}") from None
    twin = _copies(args, call.kwargs) if interp.options.verify and interp.backing.real else None
    opaque = interp.nested.opaque = OpaqueCall(interp, fn, rule, given)
    done = Delivery(_done, call.then, opaque, target, fx, twin)
    try:
        opaque.frame = interp.call_plainly(call.frame, call.fn, list(call.args), call.kwargs, done)
    except BaseException:
        if interp.nested.opaque is opaque:
            opaque.leave(interp)
        raise
    return opaque.frame


def _target(interp: Interp, fn: Any, args: list) -> Any:
    """Returns the node's target: the function itself or, if the captured code made it, a copy with the present values of its closure variables."""
    trace = interp.trace
    if fn is APPLY:
        target = FunctionCall(args[0])
        if args[0] in trace.made or not see_methods(interp, args[0]):
            raise Unfit(target, "its methods read what may change from call to call: pass that as an argument")
        return target
    if fn not in trace.made or fn in trace.sources:
        # Guards the identity, because another function of the same ``def`` has other closure variables.
        identify(trace, fn)
        return fn
    if not is_a(fn, FunctionType):
        raise Unfit(fn, f"it is a {type(fn).__name__} that the captured code made")
    for cell in fn.__closure__ or ():
        if type(contents(cell)) in SYMBOLIC:
            cell.cell_contents = settled(cell.cell_contents)
    held = [contents(cell) for cell in fn.__closure__ or () if contents(cell) is not EMPTY]
    for value in (*held, *(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values()):
        if value in trace.sources:
            identify(trace, value)
        elif value is not fn and type(value) not in SYMBOLIC and not (is_value(value) and may_compare(trace, value)):
            raise Unfit(fn, f"it was made in the captured code, around a {type(value).__name__}: pass that as an argument")
    cells = tuple([CellType() if contents(cell) is EMPTY else CellType(cell.cell_contents) for cell in fn.__closure__ or ()])
    defaults = fn.__defaults__ and settle_all(fn.__defaults__)
    copy = FunctionType(fn.__code__, fn.__globals__, fn.__name__, defaults, cells if fn.__closure__ else None)
    copy.__kwdefaults__ = fn.__kwdefaults__ and {name: settle_all(v) for name, v in fn.__kwdefaults__.items()}
    for cell in cells:
        if contents(cell) is not EMPTY and cell.cell_contents is fn:
            cell.cell_contents = copy
    return copy


def _carried(interp: Interp, a: Any) -> Any:
    """Returns an argument of the node for ``a``; the graph makes named tuples and frozen dataclasses again as objects of their classes."""
    trace, t = interp.trace, type(a)
    if t is list or t is dict:
        trace.expand(a)
    if t is dict:
        return {k: _carried(interp, v) for k, v in a.items()}
    if t is list or t is tuple:
        return t([_carried(interp, v) for v in a])
    if is_a(a, tuple) and hasattr(t, "_fields"):
        return trace.recorder.instance(t, {name: _carried(interp, v) for name, v in zip(t._fields, a, strict=True)})
    if not dataclasses.is_dataclass(a) or is_a(a, type) or not t.__dataclass_params__.frozen:
        return trace.to_fx(a)
    fields = dataclasses.fields(a)
    if not all(field.init for field in fields) or not hasattr(a, "__dict__"):
        return trace.to_fx(a)
    held = object.__getattribute__(a, "__dict__")
    src = trace.dict_source(a, held)
    for field in fields:
        trace.read_key(held, src, field.name, held[field.name])
    return trace.recorder.instance(t, {field.name: _carried(interp, held[field.name]) for field in fields})


def _copies(args: list, kwargs: dict | None) -> tuple:
    """Returns copies of the arguments for a second run, and the random state to run it in."""
    def copy(value: Any) -> Any:
        return value.detach().clone().requires_grad_(value.requires_grad) if is_a(value, Tensor) else value

    return tree_map(copy, (list(args), kwargs or {})), torch.get_rng_state()


def _verify(interp: Interp, opaque: OpaqueCall, result: Any, twin: tuple) -> None:
    """Runs the function again on the same inputs, and reports a broken contract if the result differs (option ``verify``)."""
    ((args, kwargs), state), now = twin, torch.get_rng_state()
    torch.set_rng_state(state)
    with torch._C.DisableTorchFunction(), interp.trace.mutations.unchanged():
        other = opaque.fn(*args, **kwargs)
    torch.set_rng_state(now)
    ours, theirs = list(leaves(result)), list(leaves(other))
    same = len(ours) == len(theirs) and all(
        torch.equal(a.nan_to_num(), b.nan_to_num()) if is_a(a, Tensor) and is_a(b, Tensor) and a.shape == b.shape else bool(a is b or a == b)
        for a, b in zip(ours, theirs, strict=True)
    )
    if not same:
        opaque.breaks(interp, "two runs on the same arguments give different results")


def _done(interp: Interp, f: Frame, result: Any, then: Delivery | None, opaque: OpaqueCall, target: Any, fx: tuple[tuple, dict], twin: Any) -> Frame | None:
    trace, fn = interp.trace, opaque.fn
    opaque.leave(interp)
    if not trace.active:
        return interp.finish(f, result, then)
    fault = opaque.fault() or _rebound(fn, target)
    if fault is None:
        # C code may have written into tensors without an operator.
        interp.tensors.wrote(interp, [t for t, version in opaque.versions if interp.backing.memory(interp, t)._version != version])
        fault = next(filter(None, [_misfit(opaque, leaf) for leaf in leaves(result)]), None)
    if fault is not None:
        opaque.breaks(interp, fault)
        return interp.finish(f, result, then)
    if twin is not None:
        _verify(interp, opaque, result, twin)
        if not trace.active:
            return interp.finish(f, result, then)
    _fresh(trace, result)
    interp.tensors.record(interp, "call_function", named(target), *fx, result)
    if opaque.unmeasured:
        trace.recorder.unmeasure(result)
    return interp.finish(f, result, then)


def _misfit(opaque: OpaqueCall, leaf: Any) -> str | None:
    """Returns a text about why ``leaf``, a part of the result, breaks the contract; None if it does not."""
    if is_a(leaf, Tensor):
        return None if leaf in opaque.known else "it gives a tensor that it has not computed from its arguments"
    if type(leaf) not in FX_CONSTANTS and not is_a(leaf, enum.Enum):
        return f"it gives a {type(leaf).__name__}"
    if opaque.read and type(leaf) not in SINGLETONS:
        return f"it gives the number {leaf!r}, and has read the values of a tensor"
    return None


def _rebound(fn: Any, target: Any) -> str | None:
    """Returns a text about a closure variable that ``fn`` has set, and whose old value its copy ``target`` keeps; None if there is none."""
    for name, ours, kept in zip(fn.__code__.co_freevars, fn.__closure__, target.__closure__, strict=True) if target is not fn and fn.__closure__ else ():
        if contents(ours) is not (fn if contents(kept) is target else contents(kept)):
            return f"it changes the variable {name}"
    return None


def _fresh(trace: SegmentTrace, value: Any) -> None:
    if is_a(value, (list, dict)) or dataclasses.is_dataclass(value):
        trace.made.add(value)
    if is_a(value, (list, tuple)):
        for item in value:
            _fresh(trace, item)
    elif is_a(value, dict):
        for item in value.values():
            _fresh(trace, item)


def named(fn: Any) -> Any:
    """Returns ``fn``, or a wrapper of it if FX cannot write ``fn`` by a name."""
    if getattr(fn, "__name__", "").isidentifier() and is_a(getattr(fn, "__module__", None), str):
        return fn

    def opaque(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return opaque


def broken(interp: Interp, fn: Any, rule: Rule, text: str) -> BaseException:
    """Ends the capture with an error, because the contract is broken; returns the exception to raise."""
    if interp.nested.opaque is not None:
        interp.nested.opaque.leave(interp)
    return interp.outcome.abandon(interp.refusal("FL107", _but(fn, text), interp.frame, str(rule)))


def _but(fn: Any, text: str) -> str:
    return f"{describe(fn)} was allowed in graphs, but {text}"
