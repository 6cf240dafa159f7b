"""Texts of tensors that nobody reads: no graph break; and those that are still there behind the graph."""

from __future__ import annotations

import functools
import logging
import warnings
import weakref
from typing import Any

import pytest
import torch
from torch import nn

import fineline
from fineline.errors import FinelineError
from tests.language.dynamic.texts import Held, mask
from tests.oracle import Program, Table, check, t

table = Table()


def one_graph(**marks: Any) -> Any:
    return table.snippet(args=mask, max_graphs=1, **marks)


# What a text is read for is guarded: each call may be another program.
READ = frozenset({1, 2})


def read(**marks: Any) -> Any:
    return table.snippet(args=mask, breaks=True, recompiles=READ, **marks)


# -- nobody reads it -------------------------------------------------------------------------------------------------------
@one_graph()
def only_made(x, m):
    n = m.sum()
    msg = f"tokens: {n}, features: {x.shape[0]}"
    return x.sin() + 1


@one_graph()
def of_all_that_an_operator_returns(x, m):
    found = torch.max(x, 0)
    text = f"the largest: {found}"
    return found.values.sin(), text, str(torch.sort(m))


def _must(ok: Any, message: Any, error: type[Exception] = ValueError) -> None:
    if not callable(message):

        def text() -> Any:
            return message

    else:
        text = message
    torch._check_with(error, ok, text)


@one_graph()
def the_message_of_a_check(x, m):
    n = m.sum()
    torch._check(x.numel() == 12, lambda: f"bad: {n}")
    _must(x.numel() == 12, f"tokens do not match: {n}, {x.shape}")
    msg = "%s of %d" % (n, x.numel()) + ": {}".format(n)
    if x.numel() != 12:
        raise AssertionError(msg)
    return x + n


@one_graph()
def said_to_nobody(x, m):
    log = logging.getLogger("nobody")
    log.debug(f"mean {x.mean()}")
    log.debug("mean %s" % x.mean())
    return x * 2


@one_graph()
def moved_about(x, m):
    msg = f"{m.sum()}"
    held = [msg, (msg, 1)]
    held.append({"a": msg})
    text = held[1][0]

    def inner(a, *args, **kwargs):
        return a, args, kwargs

    got = inner(text, msg, key=msg)
    kind = type(got[0]), isinstance(msg, str), isinstance(text, (int, list)), callable(msg), got[0] is None, text is not None, msg == None  # noqa: E711
    made = functools.partial(inner, 1)
    for one in (msg, text):
        made(one)
    return x + 1, kind


@one_graph()
def written_behind(x, m):
    n = m.sum()
    msg = f"{n}"
    n.add_(1)
    return x + n


@one_graph()
def by_many_hands(x, m):
    def texts():
        for row in x:
            yield f"{row}"

    count = 0
    for one in texts():
        count += 1
    return x + count


# -- it is there behind the graph ------------------------------------------------------------------------------------------
@one_graph()
def given_back(x, m):
    n = m.sum()
    y = x * n
    msg = f"{n} of {y.sum():.3f} and {n!r:>20} {x[0]!s}"
    return y, msg, [msg, msg + "!"], "say " + msg + f"{msg}", {"k": msg, "n": n}


@one_graph()
def of_an_argument(x, m):
    return str(x), repr(m), format(m.sum()), f"{x[0, 0]:+.2e}", x + 1


@one_graph()
def filled_in(x, m):
    n = m.sum()
    return "%s and %d" % (n, 3), "%5.1f%%" % x.sum(), "{0} {1:>6}".format(n, 3), "%d" % n, x


@table.program(args=mask, max_graphs=1)
def stored() -> Any:
    class Owner:
        pass

    owner, log, seen = Owner(), [], {}

    def fn(x, m):
        owner.text = f"{m.sum()}"
        log.append(f"{x.sum()}")
        seen["last"] = owner.text
        return x + 1, owner.text

    return fn, (owner, log, seen)


@table.program(args=mask, max_graphs=1)
def stored_in_a_module() -> Any:
    module = nn.Linear(4, 4)

    def fn(x, m):
        y = module(x)
        module.said = f"{m.sum()}"
        return y, module.said

    return fn, module


@one_graph()
def in_an_object(x, m):
    held = Held(f"{m.sum()}")
    held.number = x + 1
    return held, held.text


@one_graph()
def in_closures(x, m):
    msg = f"{m.sum()}"

    def say(text=msg):
        return text, msg

    return x + 1, say()


@one_graph()
def in_loops(x, m):
    out = []
    for k in range(3):
        x = x + 1
        out.append(f"{k}: {x.sum():.3f}")
    return x, out, [f"{row.sum()}" for row in x]


@one_graph()
def of_whole_numbers(x, m):
    n = m.sum()
    return f"{n:d} {n:5} {n:x} {n:,} {n:%} {m.any()}", x


@table.snippet(args=lambda k: (t(k, grad=True), torch.arange(4) < k + 1), max_graphs=1)
def with_a_history(x, m):
    y = x.sin()
    return y.sum(), f"{y.sum():.2f} {y.detach()}", f"{y.mean()}"


@one_graph()
def sizes(x, m):
    return f"{x.shape} {x.size(0)} {m.sum()} {x.dtype}", x + 1


@table.snippet(args=mask, breaks=True, max_graphs=2)
def printed(x, m):
    y = x.sin()
    msg = f"tokens {m.sum()}"
    print(msg)
    return y + 1


@table.snippet(args=mask, breaks=True, recompiles=READ)
def behind_a_break(x, m):
    msg = f"tokens {m.sum()}"
    held = [msg]
    print("here", x.shape)
    y = x + 1
    print(msg, held)
    return y, msg, held


@table.program(args=mask, breaks=True, max_graphs=2)
def said_aloud() -> Any:
    log = logging.Logger("here", logging.INFO)
    log.isEnabledFor(logging.INFO)
    log.isEnabledFor(logging.DEBUG)

    class Printing(logging.Handler):
        def emit(self, record):
            print(record.getMessage())

    log.addHandler(Printing())

    def fn(x, m):
        y = x + 1
        log.debug(f"not heard {x.sum()}")
        log.info(f"mean {m.sum()}")
        return y * 2

    return fn


@read()
def warned(x, m):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warnings.warn(f"few: {m.sum()}", stacklevel=1)
    return x + 1, [str(w.message) for w in found]


# -- it would be another text behind the graph -----------------------------------------------------------------------------
@table.snippet(args=mask, breaks=True, recompiles=READ)
def written_into_and_given_back(x, m):
    n = m.sum()
    msg = f"{n}"
    n.add_(1)
    return x + n, msg


@table.snippet(args=mask, breaks=True, recompiles=READ)
def an_argument_written_into(x, m):
    before = f"{x}"
    x.add_(1)
    after = f"{x}"
    return before, after, x * 2


@table.snippet(args=mask, breaks=True, recompiles=READ)
def a_view_written_into(x, m):
    y = x + 1
    msg = f"{y}"
    y.view(-1)[0] = 5
    return y, msg


@table.snippet(args=mask, breaks=True, recompiles=READ)
def written_through_data(x, m):
    y = x + 1
    msg = f"{y}"
    y.data.zero_()
    return y + 1, msg


@table.snippet(args=mask, breaks=True, recompiles=READ)
def printed_in_another_way(x, m):
    before = f"{x}"
    torch.set_printoptions(precision=1)
    after = f"{x}"
    torch.set_printoptions(profile="default")
    return before, after, f"{x}", x + 1


@table.snippet(args=mask, breaks=True, recompiles=READ)
def other_data(x, m):
    y = x + 1
    msg = f"{y}"
    y.data = x * 3
    return msg, y, f"{y}"


@table.snippet(args=mask, breaks=True, recompiles=READ)
def becomes_a_parameter(x, m):
    y = x + 1
    msg = f"{y}"
    y.requires_grad_()
    return msg, f"{y}", y.detach() * 2


class Loud(torch.Tensor):
    def __repr__(self, **kwargs: Any) -> str:
        print("asked")
        return "loud"


@table.snippet(args=lambda k: (t(k).as_subclass(Loud),), breaks=True, recompiles=READ, min_graphs=0)
def a_class_of_its_own(x):
    msg = f"{x}"
    return x.as_subclass(torch.Tensor) + 1


@table.snippet(args=lambda k: (nn.Parameter(t(k)[0, 0].detach()),), breaks=True, recompiles=READ)
def a_parameter_that_takes_no_pattern(p):
    y = p.detach() + 1
    try:
        f"{p:.2f}"
    except TypeError as e:
        return y, str(e)
    return y


@one_graph()
def many_at_once(x, m):
    log = []
    for k in range(60):
        log.append(f"{k}: {x[0, 0]}")
    return x + 1, log


@read()
def of_another_default(x, m):
    before = f"{x}"
    torch.set_default_dtype(torch.float64)
    try:
        return before, f"{x}", x + 1
    finally:
        torch.set_default_dtype(torch.float32)


@table.snippet(args=lambda k: (nn.Parameter(t(k)),), max_graphs=1)
def a_parameter(p):
    return f"{p}", str(p.detach()), (p * 2).sum().detach()


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_unread_texts(program: Program, twin: str) -> None:
    check(program, twin)


# -- what only the graph knows, and what is said ---------------------------------------------------------------------------
def numbers(x: torch.Tensor) -> Any:
    n = x.sum().item()
    rows = x.nonzero()
    unread = f"{n} {rows.shape}"
    return rows + 1, f"{n:.1f} of {rows.shape[0]}", "%s" % n


@pytest.mark.parametrize("fullgraph", [False, True])
def test_numbers_that_only_the_graph_knows(fullgraph: bool) -> None:
    options = {"first_call": "compiled", "capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
    graphs: list[Any] = []
    compiled = fineline.compile(numbers, backend=lambda gm, _: graphs.append(gm) or gm.forward, fullgraph=fullgraph, options=options)
    for k in range(4):
        x = torch.tensor([0.0, 1.0, float(k), 2.0])
        expected, found = numbers(x), compiled(x)
        assert torch.equal(found[0], expected[0]) and found[1:] == expected[1:]
    assert len(graphs) == 1


def test_a_refusal_says_where_the_text_is_made_and_read() -> None:
    def fn(x: torch.Tensor) -> Any:
        msg = f"sum {x.sum()}"
        return x + len(msg)

    with pytest.raises(FinelineError) as e:
        fineline.compile(fn, fullgraph=True)(torch.ones(3))
    line = fn.__code__.co_firstlineno
    assert "FL417" in str(e.value) and f"{__file__}:{line + 1}" in str(e.value) and f"{__file__}:{line + 2}" in str(e.value)


def test_a_library_with_texts_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def fn(x: torch.Tensor) -> Any:
        msg = f"{x}"
        return x + 1

    compiled = fineline.compile(fn)
    x = torch.ones(3)
    compiled(x)
    monkeypatch.setattr(torch.Tensor, "__repr__", lambda self: said.append("asked") or "a tensor")
    for _ in range(3):
        compiled(x)
    assert len(said) == 3
    monkeypatch.undo()
    compiled(x)
    assert len(said) == 3


def test_options_of_printing_are_those_of_the_call() -> None:
    def fn(x: torch.Tensor) -> Any:
        return f"{x / 3}"

    compiled = fineline.compile(fn)
    x = torch.ones(3)
    try:
        for precision in (4, 2, 6, 4):
            torch.set_printoptions(precision=precision)
            assert compiled(x) == fn(x)
    finally:
        torch.set_printoptions(profile="default")


def test_nothing_of_it_stays() -> None:
    held: list[Any] = []

    def fn(x: torch.Tensor) -> Any:
        y = x + 1
        msg = f"{y}"
        text = f"<{y}> {msg}"
        held.append(weakref.ref(y))
        return y.sum(), text

    # Each call is captured.
    for _ in range(2):
        fineline.compile(fn)(torch.ones(3))
        assert [ref() for ref in held] == [None] * len(held)
