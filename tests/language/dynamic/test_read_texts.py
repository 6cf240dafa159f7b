"""Texts of tensors that somebody reads: a graph break in front of that."""

from __future__ import annotations

import bisect
import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import itertools
import json
import operator
import pickle
import re
import string
import sys
import types
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import fineline
from tests.language.dynamic.texts import Held, Pair, mask
from tests.oracle import Program, Table, check, t

table = Table()
# What a text is read for is guarded: each call may be another program.
READ = frozenset({1, 2})


def read(**marks: Any) -> Any:
    return table.snippet(args=mask, breaks=True, recompiles=READ, **marks)


    pass


class Fails(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text + "!")
        self.text = text


def _swallowed(fn: Any) -> Any:
    try:
        return fn()
    except Exception as e:
        return type(e).__name__, str(e), e.args


READERS: dict[str, Any] = {
    "length": lambda s: len(s),
    "equal": lambda s: s == "n 2",
    "equal_turned": lambda s: "n 2" == s,
    "less": lambda s: s < "n 2",
    "inside": lambda s: "2" in s,
    "in_a_list": lambda s: s in ["n 2", "n 3"],
    "in_a_dict": lambda s: s in {"n 2": 1},
    "in_a_set": lambda s: s in {"n 2", "n 3"},
    "in_itself": lambda s: s in [s],
    "item": lambda s: s[2],
    "part": lambda s: s[:3],
    "as_index": lambda s: {"n 2": 1, "n 3": 2}.get(s, 7),
    "as_key": lambda s: {s: 1},
    "as_key_of_a_tuple": lambda s: {(s, 1): 1}.get(("n 2", 1)),
    "as_keys": lambda s: dict.fromkeys([s]),
    "set_default": lambda s: {}.setdefault("k", s),
    "set_key": lambda s: operator.setitem(d := {}, s, 1) or d,
    "as_keyword": lambda s: dict(**{s: 1}),
    "as_element": lambda s: {s},
    "set_of": lambda s: sorted({s, "a"}),
    "frozen": lambda s: frozenset([s]),
    "counted": lambda s: collections.Counter([s, "n 2"])["n 2"],
    "iterated": lambda s: [c for c in s],
    "listed": lambda s: list(s),
    "starred": lambda s: [*s],
    "spread": lambda s: (lambda *a: a)(*s),
    "extended": lambda s: operator.iadd([], s),
    "zipped": lambda s: list(zip(s, "abc")),
    "truth": lambda s: 1 if s else 2,
    "not_true": lambda s: not s,
    "either": lambda s: s or "none",
    "both": lambda s: s and "some",
    "bool": lambda s: bool(s),
    "upper": lambda s: s.upper(),
    "split": lambda s: s.split(),
    "replaced": lambda s: s.replace("n", "m"),
    "joined": lambda s: ", ".join([s, s]),
    "joined_by": lambda s: s.join(["a", "b"]),
    "joined_lazily": lambda s: ", ".join(x for x in (s, "b")),
    "formatted": lambda s: s.format(1),
    "filled": lambda s: s % (),
    "fills": lambda s: "<%s>" % s,
    "fills_with_more": lambda s: "<%s %s %r>" % (s, 1, s),
    "fills_by_name": lambda s: "<%(a)s>" % {"a": s},
    "format_map": lambda s: "{a}".format(a=s),
    "format_of": lambda s: "{} {!r:>9}".format(s, s),
    "wide": lambda s: f"{s:>12}|{s!r}|{s!a}",
    "as_spec": lambda s: _swallowed(lambda: f"{3:{s}}"),
    "plus": lambda s: s + "a" + s,
    "plus_wrong": lambda s: _swallowed(lambda: s + 1),
    "times": lambda s: s * 2,
    "grown": lambda s: functools.reduce(operator.add, [s, "b", s]),
    "negative": lambda s: _swallowed(lambda: -s),
    "number": lambda s: int(s[2:]),
    "number_of": lambda s: _swallowed(lambda: int(s)),
    "hashed": lambda s: hash(s) == hash("n 2"),
    "ordered": lambda s: sorted([s, "n 2"]),
    "largest": lambda s: max(s, "n 2"),
    "in_a_text": lambda s: f"{[s]} {(s, 1)} {({'a': s})}",
    "repr": lambda s: repr(s),
    "ascii": lambda s: ascii(s),
    "str_twice": lambda s: str(str(s)),
    "encoded": lambda s: bytes(s, "ascii"),
    "a_subclass": lambda s: Shouting(s),
    "raised": lambda s: _swallowed(lambda: (_ for _ in ()).throw(ValueError(s))),
    "raised_by_class": lambda s: _swallowed(lambda: _raise(Fails(s))),
    "key_error": lambda s: _swallowed(lambda: {}[s]),
    "attribute": lambda s: getattr(Held("a"), s, "none"),
    "attribute_set": lambda s: (h := Held("a"), setattr(h, s, 1), vars(h))[2],
    "attribute_asked": lambda s: hasattr(Held("a"), s),
    "type_made": lambda s: type("T", (), {"a": s}).a,
    "pattern": lambda s: bool(re.match(r"n \d", s)),
    "json": lambda s: json.dumps({"a": [s]}),
    "copied": lambda s: copy.deepcopy([s, {"a": s}]),
    "namedtuple": lambda s: Pair(s, 1),
    "replaced_in_it": lambda s: dataclasses.replace(Held(s), number=2),
    "as_dict": lambda s: dataclasses.asdict(Held(s)),
    "equal_in_it": lambda s: Held(s) == Held("n 2"),
    "partial": lambda s: functools.partial(lambda a, b: (a, b), s)(1),
    "queue": lambda s: collections.deque([s, "b"], maxlen=1),
    "mapped": lambda s: list(map(len, [s, "abcdef"])),
    "filtered": lambda s: list(filter(None, [s, ""])),
    "chained": lambda s: [*dict(a=s).values(), *dict(b=s).items()],
    "compared_in_lists": lambda s: [s] == ["n 2"],
    "counted_in": lambda s: ["n 2", "n 3"].count(s),
    "identical": lambda s: s is s,
    "identical_to_another": lambda s: s is "".join(["n", " 2"]),
    "unbound": lambda s: str.upper(s),
    "length_asked": lambda s: s.__len__(),
    "added_by_method": lambda s: s.__add__("b"),
    "cased": lambda s: _cased(s),
    "closed_over": lambda s: (lambda: len(s))(),
    "default": lambda s: (lambda a=s: a == "n 2")(),
    "tried": lambda s: _tried(s),
    "given_by_a_generator": lambda s: [len(x) for x in (y for y in [s])],
    "sent": lambda s: _sent(s),
    "excluded": lambda s: [x for x in [s] if x != "n 2"],
    "printed_to": lambda s: print(s, [s]),
    "arguments_of_an_error": lambda s: _arguments(s),
    "slot": lambda s: (o := Slots(), setattr(o, "a", s), o.a == "n 2")[2],
    "note": lambda s: (e := ValueError("a"), e.add_note(s), e.__notes__)[2],
    "in_a_context": lambda s: _within(s),
    "deleted_key": lambda s: (d := {"n 1": 1, "n 2": 2, "n 3": 3}, operator.delitem(d, s), d)[2],
    "called_by_name": lambda s: operator.methodcaller("upper")(s),
    "counts_it": lambda s: operator.methodcaller("count", s)(["n 2"]),
    "item_of": lambda s: operator.itemgetter(0)(s),
    "looked_up": lambda s: operator.itemgetter(s)({"n 1": 1, "n 2": 2, "n 3": 3}),
    "attribute_of": lambda s: operator.attrgetter("__len__")(s)(),
    "mapped_by_method": lambda s: list(map(str.upper, [s])),
    "sorted_by": lambda s: sorted([s, "a"], key=len),
    "sorted_in_place": lambda s: (found := ["z", s, "a"], found.sort(), found)[2],
    "any": lambda s: any([s]),
    "pairs": lambda s: dict([(s, 1)]),  # noqa: C406
    "zipped_pairs": lambda s: dict(zip([s], [1], strict=True)),
    "ordered_dict": lambda s: collections.OrderedDict([(s, 1)]),
    "popped": lambda s: {"n 2": 3}.pop(s, None),
    "removed": lambda s: _swallowed(lambda: ["n 2", "b"].remove(s)),
    "bisected": lambda s: bisect.bisect(["n 1", "n 2"], s),
    "grouped": lambda s: [(k, list(g)) for k, g in itertools.groupby([s, s, "n 2"])],
    "accumulated": lambda s: list(itertools.accumulate([s, "b"])),
    "chained_letters": lambda s: list(itertools.chain(s, "b")),
    "evaluated": lambda s: eval("len(a)", {"a": s}),
    "interned": lambda s: sys.intern(s),
    "template": lambda s: string.Template("$a").substitute(a=s),
    "member": lambda s: _swallowed(lambda: Number(s).name),
    "own_text": lambda s: f"{Own(s)!r} {Own(s)} {str(Own(s))}",
    "own_equal": lambda s: Own(s) == Own("n 2"),
    "own_hash": lambda s: {Own(s): 1}[Own(s)],
    "own_length": lambda s: (len(Own(s)), bool(Own(s)), "n 2" in Own(s), Own(s)[s], f"{Own('a'):{s}}"),
    "own_attribute": lambda s: getattr(Own("a"), s),
    "namespace": lambda s: types.SimpleNamespace(a=s),
    "pickled": lambda s: pickle.loads(pickle.dumps([s])),
    "proxy": lambda s: types.MappingProxyType({"a": s})["a"] == "n 2",
    "user_string": lambda s: collections.UserString(s).upper(),
    "lists_multiplied": lambda s: [s] * 2 == ["n 2"] * 2,
    "operators": lambda s: (operator.mod("%s!", s), operator.add(s, "b"), operator.eq([s], ["n 2"]), operator.contains([s], "n 2")),
    "set_algebra": lambda s: {"n 2"} & {s},
    "values": lambda s: ("n 2" in {"a": s}.values(), ("a", "n 2") in {"a": s}.items(), list({"a": s}.values()) == ["n 2"]),
    "device": lambda s: _swallowed(lambda: torch.device(s)),
    "mode_of_an_operator": lambda s: _swallowed(lambda: torch.nn.functional.mse_loss(torch.ones(1), torch.ones(1), reduction=s)),
    "children": lambda s: [name for name, _ in torch.nn.ModuleDict({s: torch.nn.Identity()}).named_children()],
}


class Slots:
    __slots__ = ("a",)


class Number(enum.Enum):
    ONE = "n 1"
    TWO = "n 2"


class Own:
    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __len__(self) -> int:
        return len(self.text)

    def __contains__(self, text: str) -> bool:
        return text == self.text

    def __getitem__(self, text: str) -> int:
        return len(text)

    def __format__(self, spec: str) -> str:
        return f"{self.text} {spec}"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


def _arguments(s: Any) -> Any:
    e = ValueError("a")
    e.args = (s,)
    return str(e), repr(e), e.args[0] == "n 2"


def _within(s: Any) -> Any:
    @contextlib.contextmanager
    def held():
        yield s

    with held() as text:
        return text == "n 2"


def _raise(error: Exception) -> None:
    raise error


def _cased(s: Any) -> Any:
    match s:
        case "n 2":
            return 1
        case str():
            return 2
    return 3


def _tried(s: Any) -> Any:
    try:
        if s == "n 3":
            raise Fails(s)
        return s
    except Fails as e:
        return e.text, str(e)
    finally:
        print("end")


def _sent(s: Any) -> Any:
    def receiver():
        got = yield
        yield len(got)

    g = receiver()
    next(g)
    return g.send(s)


def register(names: tuple[str, ...]) -> None:
    """A program that makes a text for each of some readers."""

    def make() -> Any:
        uses = [READERS[name] for name in names]

        def fn(x, m):
            y = x.sin()
            found = [use(f"n {m.sum()}") for use in uses]
            return y + 1, found

        return fn

    make.__name__ = "_".join(names)
    table.program(args=mask, breaks=True, recompiles=READ)(make)


for k in range(0, len(READERS), 5):
    register(tuple(READERS)[k : k + 5])


@read()
def decides(x, m):
    msg = f"{m.sum()}"
    if msg == "2":
        x = x * 3
    return x + 1, msg


@read()
def names_an_equation(x, m):
    letters = f"{m.sum() * 0:>1}".replace("0", "i")
    return torch.einsum(f"{letters}j,kj->ik", x, x)


@read()
def is_given_to_an_operator(x, m):
    try:
        return torch.einsum(f"ij,kj->ik {m.sum()}", x, x)
    except RuntimeError as e:
        return "refused", x + 1


@read()
def raised(x, m):
    n = m.sum()
    y = x + 1
    if x.shape[0] == 3:
        raise ValueError(f"bad: {n}")
    return y


@read()
def a_check_that_fails(x, m):
    n = m.sum()
    y = x + 1
    _must(x.numel() == 13, f"bad: {n}")
    return y


@read()
def an_assertion_that_fails(x, m):
    msg = f"bad: {m.sum()}"
    if x.numel() != 13:
        raise AssertionError(msg)
    return x


@read()
def in_a_branch_of_a_graph(x, m):
    msg = f"n {m.sum()}"
    return torch.cond(x.sum() > 0, lambda a: a + len(msg), lambda a: a - 1, (x,))


@table.snippet(args=lambda k: (t(k, grad=True), torch.arange(4) < k + 1), breaks=True, recompiles=READ)
def in_a_checkpoint(x, m):
    msg = f"n {m.sum()}"

    def inner(a):
        text = f"{a.sum()}"
        return a.sin() * len(msg)

    return checkpoint(inner, x, use_reentrant=False)


@fineline.allow_in_graph
def _one_call(x: torch.Tensor, text: str) -> torch.Tensor:
    return x + len(text)


@read()
def given_to_one_call(x, m):
    return _one_call(x, f"n {m.sum()}") + _one_call(x, text=f"{m.sum() * 10}")


@table.snippet(args=mask, calls=4, breaks=True, recompiles={1, 2, 3})
def held_by_one_call(x, m):
    msg = f"n {m.sum()}"

    @fineline.allow_in_graph
    def inner(y):
        return y + (10 if msg == "n 2" else 1)

    return inner(x * 2), msg


@functools.lru_cache
def _cached(text: str) -> int:
    return len(text)


@read(min_graphs=0)
def by_a_cache(x, m):
    return x + _cached(f"n {m.sum()}")


TWO, TWICE = "%s %s", "{} {}"


@read(repeats=True)
def errors_of_its_own(x, m):
    found = []
    for make in (
        lambda: f"{x.sum():d}", lambda: f"{x:.2f}", lambda: "%d" % x, lambda: TWO % (x,), lambda: TWICE.format(m.sum()), lambda: f"{m.sum():z}",
    ):  # fmt: skip
        try:
            make()
            found.append("made")
        except Exception as e:
            found.append(f"{type(e).__name__}: {e}")
    return x + 1, found


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_read_texts(program: Program, twin: str) -> None:
    if twin == "counted" and program.name.endswith("_partial_queue"):
        pytest.skip("an eager detach() that prints a tensor runs once less where the text is read behind its break")
    check(program, twin)
