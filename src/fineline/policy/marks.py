"""Marks: rules that calls like `disable` set on a function, class, module or operator, stored outside of the objects."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

from fineline.guards.policy_epoch import RULEBOOK
from fineline.kinds import is_a
from fineline.policy.rule import Rule
from fineline.policy.selector import is_c

K = TypeVar("K")
V = TypeVar("V")


def _held(obj: object, gone: Callable[[weakref.ref], object] | None = None) -> Callable[[], object]:
    """Returns a function that returns ``obj`` while it is alive. It keeps objects without weak references, such as C methods, alive."""
    try:
        return weakref.ref(obj, gone)
    except TypeError:
        return lambda: obj


def _move(source: dict[K, V], target: dict[K, V], moves: Callable[[V], bool]) -> None:
    """Moves some of the entries of a table to another, unless that has others there."""
    for key in [key for key, value in source.items() if moves(value)]:
        target.setdefault(key, source.pop(key))


class MarkTable:
    """Marks by object identity; an object's mark dies with the object. Marks of operators are stored by the operator's name."""

    def __init__(self) -> None:
        # The key also contains a function, if the mark is on this method of one object.
        self.objects: dict[int | tuple[int, int], tuple[Callable[[], object], Rule]] = {}
        self.operators: dict[tuple[str, str], Rule] = {}
        # Whether a class or an object with methods is marked: then a call's first argument matters.
        self.holders = False
        # For the audit: the key of a rule or mark to leave out, and the objects that have lost their mark by that.
        self.without = ""
        self._left_out: dict[int | tuple[int, int], tuple[Callable[[], object], Rule]] = {}
        self._operators_left_out: dict[tuple[str, str], Rule] = {}
        # The blocks that have been entered, for the audit, by their places.
        self.blocks: dict[str, Rule] = {}

    def __bool__(self) -> bool:
        return bool(self.objects or self.operators)

    def __iter__(self) -> Iterator[Rule]:
        yield from [rule for _, rule in list(self.objects.values())]
        yield from list(self.operators.values())

    def get(self, obj: object, method: object = None) -> Rule | None:
        entry = self.objects.get(id(obj) if method is None else (id(method), id(obj)))
        return entry[1] if entry is not None and entry[0]() is obj else None

    def set(self, obj: object, rule: Rule, new: bool = False, method: object = None) -> None:
        """Marks an object. ``new``: no capture can have seen the object before, so that no program is out of date."""
        key = id(obj) if method is None else (id(method), id(obj))
        marks = self._left_out if self.is_without(rule) else self.objects
        # The table keeps no object alive: of the selector, the rule keeps only the text.
        rule = rule._replace(selector=rule.selector._replace(key=None))
        marks[key] = (_held(obj, lambda dead: self._forget_dead(key, dead)), rule)
        if not new:
            RULEBOOK.changed()

    @contextmanager
    def leaving_out(self, key: str) -> Iterator[None]:
        """Leaves out the rule or mark with this key in the block, in all threads."""
        before, self.without = self.without, key
        _move(self.objects, self._left_out, lambda mark: mark[1].key == key)
        _move(self.operators, self._operators_left_out, lambda rule: rule.key == key)
        RULEBOOK.changed()
        try:
            yield
        finally:
            self.without = before
            # Also the marks that code has set in the block.
            _move(self._left_out, self.objects, lambda mark: mark[1].key == key)
            _move(self._operators_left_out, self.operators, lambda rule: rule.key == key)
            RULEBOOK.changed()

    def note_holder(self) -> None:
        """Records that a class or an object with methods is marked."""
        self.holders = True

    def is_without(self, rule: Rule) -> bool:
        """Returns whether the rule of a block or call in user code is the one to leave out."""
        return bool(self.without) and rule.key == self.without

    def entered(self, rule: Rule) -> bool:
        """Records a block; returns whether to leave it out."""
        self.blocks[rule.place] = rule
        return self.is_without(rule)

    def left_out(self, obj: object) -> bool:
        found = self._left_out.get(id(obj))
        return found is not None and found[0]() is obj

    def _forget_dead(self, key: int | tuple[int, int], dead: Callable[[], object]) -> None:
        """Drops the mark of an object that has died, unless another one at its address has got one."""
        for marks in (self.objects, self._left_out):
            if key in marks and marks[key][0] is dead:
                del marks[key]

    def set_operator(self, rule: Rule) -> None:
        operators = self._operators_left_out if self.is_without(rule) else self.operators
        operators[rule.selector.kind, rule.selector.key] = rule
        RULEBOOK.changed()

    def drop(self, obj: object) -> Rule | None:
        """Removes an object's mark and returns it."""
        entry = self.objects.pop(id(obj), None)
        if entry is not None:
            RULEBOOK.changed()
        return entry[1] if entry is not None else None

    def forget(self) -> None:
        """Drops the marks that would last as long as the process: of operators, of C code, and of objects without weak references."""
        lasting = [key for key, (held, _) in self.objects.items() if not is_a(held, weakref.ref) or is_c(held())]
        if self.operators or lasting:
            self.operators.clear()
            for key in lasting:
                del self.objects[key]
            RULEBOOK.changed()


MARKS = MarkTable()


def wrapped(fn: object) -> object:
    """Returns the function that a function made by ``disable`` wraps; any other object as it is."""
    mark = MARKS.get(fn)
    return fn if mark is None or mark.verb not in ("disable", "disable_frame") or mark.replacement is None else mark.replacement


def graph_break(msg: str | None = None) -> None:
    """Breaks the graph here, at any depth of a captured call; outside of one it does nothing."""


def is_compiling() -> bool:
    """Returns True in code that fineline or ``torch.export`` captures, and in code that replays a capture."""
    return torch.compiler.is_exporting()


def is_dynamo_compiling() -> bool:
    """Returns True in code that fineline captures, and in code that replays a capture."""
    return False


# The reasons with which PyTorch's compiler disables optimizers when it is loaded; no user has asked for that.
_UNASKED = ("optimizer <class", "don't trace into fused optimizer")
# PyTorch's wrapper of the constructors of some tensor classes, which matters to its export only: it disables them for no other reason.
_CONSTRUCTOR = "mark_subclass_constructor_exportable_experimental.<locals>.wrapper"


def torch_mark(fn: object) -> str | None:
    """Returns PyTorch's own mark of a function: "disable", "disable_frame", "wrapped" (compiled: trace the original), or None."""
    d = getattr(fn, "__dict__", None)
    if not d:
        return None
    if fn.__module__ != "torch._compile" and getattr(getattr(fn, "__code__", None), "co_qualname", "") == "_disable_dynamo.<locals>.inner":
        return "wrapped" if getattr(getattr(d.get("__wrapped__"), "__code__", None), "co_qualname", "") == _CONSTRUCTOR else "disable"
    if d.get("_torchdynamo_disable") and str(d.get("_torchdynamo_disable_msg")).startswith(_UNASKED):
        return "wrapped"
    if d.get("_torchdynamo_disable"):
        # PyTorch's old `skip`, which is also about one frame, does not set this attribute.
        return "disable" if d.get("_torchdynamo_disable_recursive") else "disable_frame"
    if "_torchdynamo_orig_callable" in d:
        return "wrapped"
    return None


# Functions of torch._dynamo that captured code calls, by name: fineline never imports that package.
DYNAMO_NAMES: dict[str, str] = {
    "graph_break": "graph_break",
    "skip_frame": "graph_break",
    "step_unsupported": "graph_break",
    "is_compiling": "true",
    "is_dynamo_compiling": "true",
    "mark_dynamic": "marks_size",
    "maybe_mark_dynamic": "marks_size",
    "mark_static": "settles_size",
    "mark_unbacked": "marks_size",
    "mark_static_address": "nothing",
    "assume_constant_result": "identity",
    "_disallow_in_graph_helper": "identity",
    "patched_init": "patched_init",
    "wrap_dunder_call_ctx_manager.<locals>.inner": "in_block",
}


def dynamo_kind(fn: Callable) -> str:
    """Returns how a capture treats a function of torch._dynamo: a value of `DYNAMO_NAMES`, or "opaque"."""
    return DYNAMO_NAMES.get(fn.__qualname__) or DYNAMO_NAMES.get(fn.__name__, "opaque")


Handler = Callable
