"""Recompiles, limits and errors of a region show the frames from the user's call to the place, with library frames folded."""

from __future__ import annotations

import json

import pytest
import torch

import fineline
from fineline import errors
from fineline.report.events import Event

X = torch.arange(6.0)


def body(x, n=1):
    return x * n


def broken(x, n):
    fineline.graph_break()
    return inner(x.sin(), n)


def inner(x, n):
    print(end="")
    return x * len(n)


class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1


def calls(compiled, *args):
    return compiled(*args)


def functions(stack):
    return [name.rpartition(".")[2] for _, _, name in stack]


def events_of(fn, inputs, **options) -> list[Event]:
    compiled = fineline.compile(fn, backend="eager", **options)
    for args in inputs:
        calls(compiled, *args)
    return fineline.report(compiled).events


def found(events, kind):
    picked = [e for e in events if e.kind == kind]
    assert picked
    return picked


def check(stack, where, *names):
    assert functions(stack) == list(names)
    assert stack[0][0] == __file__ and "{}:{}".format(*stack[-1][:2]) == where


def test_a_recompile_shows_the_call_and_the_function():
    event = found(events_of(body, [(X,), (X.double(),)]), "recompile")[0]
    check(event.stack, event.where, "calls", "body")
    assert event.function == "body"
    fineline.reset()


def test_a_recompile_behind_a_break_shows_the_frames_that_go_on():
    events = events_of(broken, [(X, "a"), (X, [1])])
    event = found(events, "recompile")[-1]
    assert functions(event.stack)[0] == "calls" and functions(event.stack)[1] == "broken"
    assert "{}:{}".format(*event.stack[-1][:2]) == event.where
    assert not any("/src/fineline/" in file or file.startswith("<fineline") for file, _, _ in event.stack)
    fineline.reset()


def test_a_limit_shows_the_call():
    event = found(events_of(body, [(X,), (X.double(),), (X.int(),)], recompile_limit=2), "limit")[0]
    check(event.stack, event.where, "calls", "body")
    assert json.loads(json.dumps(event.as_dict()))["stack"][0]["function"] == "calls"
    fineline.reset()


def test_the_text_of_a_report_shows_the_frames():
    compiled = fineline.compile(body, backend="eager")
    for x in (X, X.double()):
        calls(compiled, x)
    text = str(fineline.report(compiled))
    assert "captured again" in text and "in calls" in text.partition("captured again")[2]
    fineline.reset()


def raising(gm, examples):
    raise ValueError("no")


def recompile_limit():
    compiled = fineline.compile(body, backend="eager", fullgraph=True, recompile_limit=1)
    for x in (X, X.double()):
        calls(compiled, x)


def fail_on_recompile():
    compiled = fineline.compile(body, backend="eager")
    calls(compiled, X)
    with fineline.set_stance("fail_on_recompile"):
        calls(compiled, X.double())


def backend_failed():
    calls(fineline.compile(body, backend=raising), X)


def backend_returned_none():
    calls(fineline.compile(body, backend=lambda gm, examples: None), X)


def graph_failed():
    def backend(gm, examples):
        def run(*args):
            raise ValueError("a kernel")

        return run

    compiled = fineline.compile(body, backend=backend)
    for _ in range(3):
        calls(compiled, X)


ERRORS = {
    "RecompileLimit": (recompile_limit, errors.RecompileLimit),
    "Recompiled": (fail_on_recompile, errors.Recompiled),
    "a backend that raises": (backend_failed, errors.BackendFailed),
    "a backend that gives nothing": (backend_returned_none, errors.BackendFailed),
    "a graph that fails": (graph_failed, errors.BackendFailed),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_shows_the_call_and_the_function(name):
    raises, kind = ERRORS[name]
    with pytest.raises(kind) as caught:
        raises()
    fineline.reset()
    check(caught.value.stack, caught.value.where, "calls", "body")
    assert "from:" in str(caught.value) and "in calls" in str(caught.value)


def test_a_size_that_became_constant_shows_the_frames_to_the_line():
    def narrow(x):
        if x.shape[0] == 6:
            return x + 1
        return x

    def outer(x):
        return narrow(x) * 2

    x = X.clone()
    fineline.mark_dynamic(x, 0)
    with pytest.raises(errors.Constrained) as caught:
        fineline.compile(outer, backend="eager")(x)
    fineline.reset()
    assert functions(caught.value.stack) == ["outer", "narrow"] and ".outer" in str(caught.value)
    assert "{}:{}".format(*caught.value.stack[-1][:2]) == caught.value.where


def test_library_frames_between_the_call_and_the_function_are_folded():
    events: list[Event] = []
    compiled = fineline.compile(body, backend="eager")
    hooked = Model()
    hooked.register_forward_hook(lambda m, args, out: compiled(out))
    for x in (X, X.double()):
        hooked(x)
    events = fineline.report(compiled).events
    text = str(fineline.report(compiled)).partition("captured again")[2]
    assert found(events, "recompile") and "site-packages" not in text and "in body" in text
    fineline.reset()
