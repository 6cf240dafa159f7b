"""The mutation log alone: what it keeps of each kind of write, what it answers while the segment runs, and what undoing puts back."""

from __future__ import annotations

from collections import Counter, OrderedDict, UserDict, defaultdict, deque
from collections.abc import Callable
from contextvars import ContextVar
from types import CellType, TracebackType
from typing import Any

import pytest
import torch
from torch.distributed.tensor._ops._mask_buffer import MaskBuffer
from torch.utils.hooks import RemovableHandle

from fineline.exception_slots import CAUSE, TRACEBACK
from fineline.guards.source import Source
from fineline.tracing.mutation_log import EMPTY, MutationLog, Registration, Setting, contents, has_history, is_copy


def source(name: str = "x") -> Source:
    return Source(0, None, "root", name, None)


def attributes_of(name: str = "x") -> Source:
    """The source of the dict of an object."""
    return Source(1, source(name), "dict", None, None)


class Slotted:
    __slots__ = ("a",)
    a: Any


SLOT: Any = Slotted.__dict__["a"]


class Odd(dict):
    """Its special methods in Python give wrong answers: the log must not call them."""

    def __iter__(self) -> Any:
        return iter(())

    def items(self) -> Any:
        return ()

    def __setitem__(self, key: Any, value: Any) -> None:
        raise AssertionError(f"{key} was set by the class of the user")

    __delitem__ = keys = None  # type: ignore[assignment]


class OddList(list):
    def __iter__(self) -> Any:
        return iter(())

    def __setitem__(self, key: Any, value: Any) -> None:
        raise AssertionError(f"{key} was set by the class of the user")


class NoTruth:
    """A value that must be compared by identity alone."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError("== was asked")

    __hash__ = None  # type: ignore[assignment]


# -- containers: what is kept, and what comes back ---------------------------------------------------------------------------
def cell(*held: Any) -> CellType:
    return CellType(*held)


def moved(d: OrderedDict) -> None:
    d.move_to_end("a")
    d["c"] = 3


def renewed(d: dict) -> None:
    """1 and True are one key, and the dict holds the first of them that came."""
    del d[1]
    d[True] = "new"


def emptied(c: CellType) -> None:
    del c.cell_contents


CONTAINERS: dict[str, tuple[str, Callable[[], Any], Callable[[Any], Any]]] = {
    "dict, a key added": ("dict", lambda: {"a": 1}, lambda d: d.update(b=2)),
    "dict, a key removed": ("dict", lambda: {"a": 1, "b": 2, "c": 3}, lambda d: d.pop("b")),
    "dict, a value replaced": ("dict", lambda: {"a": 1, "b": 2}, lambda d: d.update(a=9)),
    "dict, a key moved to the end": ("dict", lambda: {"a": 1, "b": 2}, lambda d: d.update(a=d.pop("a"))),
    "dict, an equal key of another type": ("dict", lambda: {1: "old", 2: 2}, renewed),
    "dict, cleared": ("dict", lambda: {"a": 1, "b": 2}, lambda d: d.clear()),
    "defaultdict": ("dict", lambda: defaultdict(list, a=[1]), lambda d: d["new"]),
    "Counter": ("dict", lambda: Counter("aab"), lambda d: d.update("bcc")),
    "OrderedDict": ("dict", lambda: OrderedDict(a=1, b=2), moved),
    "list, appended to": ("list", lambda: [1, 2], lambda v: v.append(3)),
    "list, cut": ("list", lambda: [1, 2, 3], lambda v: v.__delitem__(slice(1))),
    "list, sorted": ("list", lambda: [3, 1, 2], lambda v: v.sort()),
    "set": ("set", lambda: {1, 2}, lambda s: s.symmetric_difference_update({2, 3})),
    "deque": ("deque", lambda: deque([1, 2], maxlen=2), lambda q: q.append(3)),
    "bytearray": ("bytearray", lambda: bytearray(b"ab"), lambda b: b.extend(b"c")),
    "cell, replaced": ("cell", lambda: cell(1), lambda c: setattr(c, "cell_contents", 2)),
    "cell, emptied": ("cell", lambda: cell(1), emptied),
    "cell, filled": ("cell", lambda: cell(), lambda c: setattr(c, "cell_contents", 2)),
    "cell, filled and emptied": ("cell", lambda: cell(), lambda c: (setattr(c, "cell_contents", 2), emptied(c))),
}


def facts(obj: Any) -> Any:
    """Returns the contents of a container, in order, with types."""
    if type(obj) is CellType:
        return contents(obj)
    items = list(obj.items()) if isinstance(obj, dict) else sorted(obj) if isinstance(obj, set) else list(obj)
    return type(obj), repr(items), getattr(obj, "maxlen", None)


@pytest.mark.parametrize("name", CONTAINERS)
def test_undo_puts_back_a_container(name: str) -> None:
    kind, make, write = CONTAINERS[name]
    log, obj = MutationLog(), make()
    log.note(obj, source())
    write(obj)
    assert log.written[obj].kind == kind
    assert facts(obj) != facts(make()) or name == "cell, filled and emptied"
    log.undo()
    assert facts(obj) == facts(make())


def test_undo_puts_back_a_class() -> None:
    class Base:
        a, b = 1, 2

    class Own(Base):
        c = 3

    log, before = MutationLog(), [list(vars(cls).items()) for cls in (Base, Own)]
    for cls, name, value in ((Base, "a", 5), (Own, "b", 6), (Own, "c", 7), (Own, "c", 8)):
        assert not log.class_written(cls, name) or name == "c"
        log.note_class(cls, source(), name)
        setattr(cls, name, value)
        assert log.class_written(cls, name) and not log.class_written(Base, "c")
    assert [w.kind for w in log.written.values()] == ["class", "class"] and (Own.a, Own.b, Base.b) == (5, 6, 2)
    log.undo()
    assert [list(vars(cls).items()) for cls in (Base, Own)] == before and (Own.a, Own.b) == (1, 2)


@pytest.mark.parametrize(
    ("obj", "write", "read"),
    [
        (Odd(a=1), lambda d: dict.update(d, a=2, b=3), lambda d: list(dict.items(d))),
        (OddList([1]), lambda v: list.append(v, 2), lambda v: list(list.__iter__(v))),
    ],
    ids=["dict", "list"],
)
def test_undo_goes_past_the_methods_of_a_subclass(obj: Any, write: Callable, read: Callable) -> None:
    log, before = MutationLog(), read(obj)
    log.note(obj, source())
    write(obj)
    log.undo()
    assert read(obj) == before


def test_undo_compares_values_by_identity() -> None:
    log, one, other = MutationLog(), NoTruth(), NoTruth()
    d = {"a": one}
    log.note(d, source(), "a")
    d["a"] = other
    log.undo()
    assert d["a"] is one


def test_undo_leaves_alone_what_holds_the_same() -> None:
    """The dict may be the globals of a module, which must not be empty for a moment."""
    log, d = MutationLog(), {"a": 1, "b": 2}
    keys = iter(d)
    next(keys)
    log.note(d, source(), "a")
    d["a"] = 3
    log.undo()
    assert d == {"a": 1, "b": 2} and list(keys) == ["b"]  # had the keys been put in anew, this would give both once more


@pytest.mark.parametrize("obj", [(1,), UserDict(), object()], ids=lambda obj: type(obj).__name__)
def test_what_cannot_be_copied_is_refused(obj: Any) -> None:
    log = MutationLog()
    with pytest.raises(TypeError, match=f"writes to {type(obj).__name__}"):
        log.note(obj, source())
    assert not log.written


# -- what it answers ----------------------------------------------------------------------------------------------------------
def test_before_is_the_state_at_the_first_write() -> None:
    log, held = MutationLog(), [1]
    assert log.before(held) is held and not log.wrote(held)
    for value in (2, 3):
        log.note(held, source())
        held.append(value)
    assert log.before(held) == [1] and log.wrote(held) and [w.obj for w in log.written.values()] == [held]


def test_single_keys_are_dirty_one_by_one() -> None:
    log, d = MutationLog(), {"a": 1, "b": 2}
    log.note(d, source(), "a")
    assert log.is_dirty(d, "a") and not log.is_dirty(d, "b")
    log.note(d, source())
    assert log.is_dirty(d, "b")


def test_keys_are_told_apart_as_a_dict_does_it() -> None:
    log, d = MutationLog(), {1: "a"}
    log.note(d, source(), True)
    assert log.is_dirty(d, 1) and log.is_dirty(d, 1.0) and not log.is_dirty(d, 2)


def test_the_source_is_that_of_the_first_write() -> None:
    log, d, first = MutationLog(), {}, source("first")
    log.note(d, first, "a")
    log.note(d, source("second"), "b")
    w = log.written[d]
    assert w.src is first and w.keys == {"a", "b"} and not w.whole


def test_what_one_call_meets_is_heard_while_it_runs() -> None:
    log, d, held, thing = MutationLog(), {"a": 1}, [1], Slotted()
    log.note(held, source("before"))
    log.met = met = []
    log.note(d, source("d"), "a")
    log.note(d, attributes_of("thing"), "b")
    log.note_slot(thing, source("slotted"), SLOT, EMPTY)
    log.is_dirty(d, "a"), log.is_dirty(d, "unwritten")
    log.wrote(held), log.before(held), log.wrote([]), log.slot_written(thing, SLOT), log.slot_written(Slotted(), SLOT)
    log.met = None
    log.note(held, source("held"))
    assert [(one.verb, one.text) for one in met] == [
        ("changes", "d['a']"), ("changes", "thing.b"), ("changes", "slotted.a"),
        ("reads", "d['a']"), ("reads", "before"), ("reads", "before"), ("reads", "slotted.a"),
    ]  # fmt: skip


class Plain:
    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)


ITEM = [1]
COPIES = {
    "itself": (ITEM, ITEM, True),
    "a list": ([ITEM, 2], [ITEM, 2], True),
    "a list in a list": ([[ITEM]], [[ITEM]], True),
    "a longer list": ([ITEM], [ITEM, ITEM], False),
    "a set": ({"a", "b"}, {"b", "a"}, True),
    "another set": ({"a"}, {"a", "b"}, False),
    "a dict": ({"a": ITEM, "b": {"c": 1}}, {"a": ITEM, "b": {"c": 1}}, True),
    "a dict in another order": ({"a": 1, "b": 2}, {"b": 2, "a": 1}, False),
    "another value": ({"a": 1}, {"a": 2}, False),
    "an object": (Plain(a=ITEM, b={1}), Plain(a=ITEM, b={1}), True),
    "another attribute": (Plain(a=1), Plain(a=2), False),
    "one more attribute": (Plain(a=1), Plain(a=1, b=2), False),
    "a list and a tuple": ([1], (1,), False),
    "a dict with more": (Plain(a=1), {"a": 1}, False),
    "an object with slots": (Slotted(), Slotted(), False),
    "tensors": (torch.ones(1), torch.ones(1), False),
    "equal numbers": (1000.5, float("1000.5"), False),
    "gone": (EMPTY, None, False),
}


@pytest.mark.parametrize("name", COPIES)
def test_what_is_a_copy(name: str) -> None:
    before, now, expected = COPIES[name]
    assert is_copy(before, now) is expected


def test_copies_that_contain_themselves() -> None:
    one, other = Plain(), Plain()
    one.own, other.own = one, other
    assert not is_copy(one, other)


def test_what_leaves_things_as_they_were_is_a_renewal() -> None:
    log, held, holder = MutationLog(), [1, 2], {"state": Plain(names={"a"}), "n": 1}
    log.met = met = []
    log.note(holder, source("holder"), "state")
    holder["state"] = Plain(names={"a"})
    log.note(holder, source("holder"), "n")
    holder["n"] = 2
    log.note(held, source("held"))
    held.append(3)
    log.is_dirty(holder, "state"), log.is_dirty(holder, "n"), log.wrote(held)
    held.pop()
    assert [(one.verb, one.is_renewal) for one in met] == [
        ("changes", True), ("changes", False), ("changes", True), ("reads", True), ("reads", False), ("reads", False),
    ]  # fmt: skip


def test_what_is_written_unobserved_is_put_back() -> None:
    log, held, holder = MutationLog(), [1], {"a": 1}
    log.note(held, source("held"))
    log.note(holder, source("holder"), "a")
    held.append(2)
    now = holder["a"] = Plain()
    with log.unchanged():
        held.clear()
        holder.clear()
    assert held == [1, 2] and holder == {"a": now}


# -- slots ----------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("old", [EMPTY, "old"], ids=["unset", "set"])
def test_undo_puts_back_a_slot(old: Any) -> None:
    log, thing = MutationLog(), Slotted()
    if old is not EMPTY:
        thing.a = old
    for value in (1, 2):
        log.set_slot(thing, source(), SLOT, getattr(thing, "a", EMPTY), value)
    assert thing.a == 2 and log.slot_written(thing, SLOT)
    assert [entry[3] for entry in log.slots.values()] == [old]
    log.undo()
    assert getattr(thing, "a", "unset") == ("unset" if old is EMPTY else old)


def test_a_slot_of_another_object_or_another_descriptor_is_not_written() -> None:
    log, error = MutationLog(), ValueError()
    log.set_slot(error, source(), CAUSE, None, KeyError())
    assert log.slot_written(error, CAUSE) and not log.slot_written(error, TRACEBACK) and not log.slot_written(KeyError(), CAUSE)


def test_what_a_descriptor_refuses_is_no_write() -> None:
    log, error = MutationLog(), ValueError()
    with pytest.raises(TypeError):
        log.set_slot(error, source(), CAUSE, None, 3)
    assert log.slots == {}
    log.set_slot(error, source(), CAUSE, None, cause := KeyError())
    with pytest.raises(TypeError):
        log.set_slot(error, source(), CAUSE, cause, 3)
    assert [entry[3] for entry in log.slots.values()] == [None]


def test_undo_puts_back_a_gradient() -> None:
    log, t, old = MutationLog(), torch.ones(2, requires_grad=True), torch.zeros(2)
    t.grad = old
    log.set_slot(t, source(), torch.Tensor.grad, old, torch.ones(2))
    log.undo()
    assert t.grad is old


def traceback() -> TracebackType:
    try:
        raise KeyError
    except KeyError as e:
        assert e.__traceback__ is not None
        return e.__traceback__


def test_a_traceback_is_kept_with_the_first_entry_in_front_of_it() -> None:
    log, error, old, first, second = MutationLog(), ValueError(), traceback(), traceback(), traceback()
    src = source("e")
    for entry in (first, second):
        log.note_trace(error, src, old, entry)
        error.__traceback__ = entry
    assert log.seams.items() == [(first, src)]
    log.undo()
    assert error.__traceback__ is old


# -- numbers that symbols stand for ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("obj", "key", "value", "answer"),
    [
        ({"a": 1}, "a", 1, True),
        ([1.5], 0, 1.5, True),
        (deque([(1, 2)]), 0, (1, 2), True),
        ({"a": True}, "a", True, False),
        ({"a": "b"}, "a", "b", False),
        ((1,), 0, 1, False),
        (Odd(a=1), "a", 1, False),
    ],
    ids=["int in a dict", "float in a list", "tuple in a deque", "bool", "text", "in a tuple", "in a class of the user"],
)
def test_which_numbers_a_symbol_may_stand_for(obj: Any, key: Any, value: Any, answer: bool) -> None:
    assert MutationLog().replaceable(obj, key, value) is answer


def test_no_symbol_stands_for_what_was_written() -> None:
    log, d, held = MutationLog(), {"a": 1, "b": 2}, [1]
    log.note(d, source(), "a")
    log.note(held, source())
    assert not log.replaceable(d, "a", 1) and log.replaceable(d, "b", 2) and not log.replaceable(held, 0, 1)


@pytest.mark.parametrize("written", ["never", "before", "after"])
def test_undo_puts_back_the_numbers_themselves(written: str) -> None:
    log, d, symbol, number = MutationLog(), {"a": 1000, "b": 2}, object(), 1000
    d["a"] = number
    if written == "before":
        log.note(d, source(), "b")
        d["b"] = 3
    log.replace(d, "a", symbol)
    if written == "after":
        log.note(d, source(), "a")
        d["a"] = 7
    assert d["a"] == (7 if written == "after" else symbol)
    assert log.before(d)["a"] is symbol
    log.undo()
    assert d == {"a": 1000, "b": 2} and d["a"] is number


def test_original_gives_the_numbers_in_place_of_the_symbols() -> None:
    log, held, symbol = MutationLog(), [1000], object()
    assert log.original(symbol) is symbol
    log.replace(held, 0, symbol)
    assert log.original(symbol) == 1000 and log.original("other") == "other"
    assert log.original((symbol, 2)) == (1000, 2)
    untouched = (1, 2)
    assert log.original(untouched) is untouched


# -- tensors ----------------------------------------------------------------------------------------------------------------------
def test_undo_puts_back_memory_and_version() -> None:
    log, t = MutationLog(), torch.ones(3)
    version = t._version
    for value in (2.0, 3.0):
        log.note_storage(t)
        t.fill_(value)
    assert len(log.storages) == len(log.versions) == 1
    log.undo()
    assert t.tolist() == [1, 1, 1] and t._version == version


def test_memory_is_kept_once_for_all_views_and_each_gets_its_version_back() -> None:
    log, t = MutationLog(), torch.arange(4.0)
    view = t[1:]
    log.note_storage(view)
    view.add_(1)
    log.note_storage(t)
    t.add_(1)
    assert len(log.storages) == 1 and len(log.versions) == 2
    log.undo()
    assert t.tolist() == [0, 1, 2, 3] and (t._version, view._version) == (0, 0)


def test_undo_shortens_memory_that_an_operator_made_longer() -> None:
    log, t = MutationLog(), torch.ones(2)
    log.note_storage(t)
    t.detach().resize_(50)
    assert t.untyped_storage().nbytes() == 200
    log.undo()
    assert t.untyped_storage().nbytes() == 8 and t.tolist() == [1, 1]


def test_a_tensor_of_inference_mode_has_no_version() -> None:
    log = MutationLog()
    with torch.inference_mode():
        t = torch.ones(2)
        log.note_storage(t)
        t.zero_()
        log.undo()
    assert not log.versions and t.tolist() == [1, 1]


@pytest.mark.parametrize("grad", [False, True], ids=["plain", "leaf"])
def test_undo_takes_away_the_history_of_what_had_none(grad: bool) -> None:
    log, t = MutationLog(), torch.ones(2, requires_grad=grad)
    log.note_storage(t)
    if grad:
        with torch.no_grad():
            t.mul_(2)
    else:
        t.mul_(torch.ones(2, requires_grad=True))
    log.undo()
    assert t.requires_grad is grad and not has_history(t) and t.tolist() == [1, 1]


def test_undo_takes_the_history_of_a_view_away_with_that_of_its_base() -> None:
    log, t = MutationLog(), torch.ones(2)
    view = t[:1]
    log.note_storage(view)
    log.note_version(t)
    view.mul_(torch.ones(1, requires_grad=True))
    assert [x for x, version in log.versions.items() if version.plain] == [t] and t.requires_grad
    log.undo()  # a view can't be detached in place
    assert not t.requires_grad


def test_undo_takes_back_the_masks_that_operators_have_left() -> None:
    log, buffer, held = MutationLog(), MaskBuffer(), MaskBuffer()
    held.materialize_mask(torch.ones(1))
    for x in (buffer, held, held):
        x.materialize_mask(torch.ones(1))
        log.note_mask(x)
    buffer.release_mask()
    log.undo()
    assert (buffer.refcount, buffer.data, held.refcount) == (0, None, 1) and held.data is not None


def test_take_over_keeps_the_older_copy() -> None:
    t, u = torch.ones(1), torch.ones(1)
    earlier, later = MutationLog(), MutationLog()
    earlier.note_storage(t)
    t.fill_(2)
    for x in (t, u):
        later.note_storage(x)
        x.fill_(3)
    earlier.take_over(later)
    earlier.undo_storages()
    assert (t.item(), u.item()) == (1, 1) and [x for x in earlier.versions] == [t, u]


@pytest.mark.parametrize(
    ("make", "answer"),
    [
        (lambda t: t, False),
        (lambda t: t * 2, True),
        (lambda t: t.detach(), False),
        (lambda t: torch.ones(1), False),
    ],
    ids=["leaf", "computed", "detached", "plain"],
)
def test_has_history(make: Callable, answer: bool) -> None:
    assert has_history(make(torch.ones(1, requires_grad=True))) is answer


# -- in the end -------------------------------------------------------------------------------------------------------------------
def full() -> tuple[MutationLog, list]:
    """A log with an entry in each table, and what it was made of."""
    log, d, held, thing, t, error = MutationLog(), {"a": 1}, [1], Slotted(), torch.ones(1), ValueError()
    log.note(d, source())
    log.replace(held, 0, object())
    log.note_slot(thing, source(), SLOT, EMPTY)
    log.note_trace(error, source(), None, traceback())
    log.note_class(type("Made", (), {}), source(), "a")
    log.note_call(len, [held], {})
    log.note_storage(t)
    log.cached.append((len, 1))
    log.ahead.append((len, 2))
    log.hooks.add(Registration(t, "register_hook", print, RemovableHandle(OrderedDict()), None))
    variable: ContextVar[int] = ContextVar("variable")
    log.settings.add(Setting(variable, 1, variable.set(1), None))
    log.set_data(t, t, torch.zeros(1))
    buffer = MaskBuffer()
    buffer.materialize_mask(t)
    log.note_mask(buffer)
    return log, [d, held, thing, t, error]


def test_forget_lets_go_of_all() -> None:
    log, _ = full()
    assert all([held for name, held in vars(log).items() if name != "met"])
    log.forget()
    assert not any(vars(log).values())


def test_hits_of_a_cache_are_kept_in_order_and_are_no_writes() -> None:
    log = MutationLog()
    log.note_call(len, ["a"], {})
    log.note_call(max, [1], {"key": None})
    assert log.calls == [(len, ["a"], {}), (max, [1], {"key": None})] and not log.written


@pytest.mark.parametrize(("held", "found"), [((), EMPTY), ((None,), None), ((3,), 3)], ids=["empty", "none", "value"])
def test_contents_of_a_cell(held: tuple, found: Any) -> None:
    assert contents(cell(*held)) is found
