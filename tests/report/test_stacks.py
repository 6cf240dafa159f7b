"""Each refusal and each graph break shows the frames from the user's call to the place, with library frames folded."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import sysconfig

import pytest
import torch
from torch import nn

import fineline
from fineline import Policy, errors
from fineline.interp.opcodes.flow import LONG_LOOP
from fineline.report.logs import LOGS
from fineline.stacks import folded, is_library, short_path

X = torch.ones(2, 3)
SITE = sysconfig.get_paths()["purelib"]
STDLIB = sysconfig.get_paths()["stdlib"]


def item(x):
    return x * x.sum().item()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 3))
        self.inner.register_forward_hook(lambda module, args, out: item(out))

    def forward(self, x):
        return self.inner(x).relu()


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)

    def forward(self, x):
        return self.lin(x).relu()


def line(fn, offset=1):
    return f"{fn.__code__.co_filename}:{fn.__code__.co_firstlineno + offset} in {fn.__qualname__}"


def error_of(call):
    with pytest.raises(errors.FinelineError) as caught:
        call(X)
    return caught.value


def compiled(fn, **how):
    return fineline.compile(fn, backend="eager", **how)


FORBID = Policy(forbid=[nn.functional.linear])


@pytest.mark.parametrize("how", [{"policy": FORBID}, {"breaks": "none", "policy": Policy(disallow=[nn.functional.linear])}])
def test_the_users_line_is_in_the_text_where_the_place_is_in_a_library(how) -> None:
    e = error_of(compiled(Plain(), **how))
    assert line(Plain.forward) in str(e) and "… 1 frame in torch/nn/modules/linear.py" in str(e) and e.where.startswith(SITE)


def test_an_error_through_hooks_has_all_frames_and_folds_pytorchs() -> None:
    e = error_of(compiled(Net(), fullgraph=True, policy=Policy(disallow=[torch.relu, torch.Tensor.item])))
    text = str(e)
    assert text.index(line(Net.forward)) < text.index("frames in torch/nn/modules/module.py") < text.index(line(item))
    assert e.stack[0][2] == "Net.forward" and e.stack[-1][2] == "item"
    assert not [place for place in e.stack if place[0].startswith(fineline.__path__[0])]
    for again in (copy.copy(e), pickle.loads(pickle.dumps(e))):
        assert again.stack == e.stack and str(again) == str(e)


def test_one_frame_is_not_said_twice() -> None:
    assert "from:" not in str(error_of(compiled(item, breaks="declared", policy=Policy(forbid=[torch.Tensor.item]))))


def test_where_the_compiled_callable_is_a_librarys_the_users_call_is_there() -> None:
    e = error_of(compiled(nn.Linear(3, 3), policy=FORBID))
    assert e.stack[0][0] == __file__ and e.stack[0][2] == "error_of"


def test_a_bad_argument_that_a_library_gives_names_the_users_line() -> None:
    namespace = {"fineline": fineline}
    exec(compile("def wrong():\n    fineline.compile(3)\n", f"{SITE}/anything/wrapper.py", "exec"), namespace)

    def call():
        namespace["wrong"]()

    with pytest.raises(errors.BadArgument) as caught:
        call()
    assert line(call) in str(caught.value) and "… 1 frame in anything/wrapper.py" in str(caught.value)


BREAKS = {
    "item": (lambda x: item(x), "torch.Tensor.item"),
    "bool": (lambda x: x + 1 if x.sum() > 0 else x, "torch.Tensor.__bool__"),
    "int": (lambda x: x + int(x.sum()), "torch.Tensor.__int__"),
    "float": (lambda x: x + float(x.sum()), "torch.Tensor.__float__"),
    "tolist": (lambda x: x + x.tolist()[0][0], "torch.Tensor.tolist"),
    "print": (lambda x: (print(end=""), x + 1)[1], "builtins.print"),
    "clock": (lambda x: x + bool(__import__("time").time()), "C code"),
    "data_ptr": (lambda x: x + bool(x.data_ptr()), "data_ptr"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_breaks_name_the_built_in_rule_that_the_error_names(name) -> None:
    fn, rule = BREAKS[name]
    event = fineline.explain(fn)(X).breaks[-1]
    assert rule in event.rule and event.users_rule == "" and event.function and event.next_step
    strict = error_of(compiled(fn, breaks="declared")) if len(fineline.explain(fn)(X).breaks) == 1 else None
    assert strict is None or strict.rule == event.rule


def test_a_users_rule_is_the_users() -> None:
    event = fineline.explain(item, policy=Policy(disallow=[torch.Tensor.item], reason="mine"))(X).breaks[0]
    assert event.users_rule == event.rule and "mine" in event.rule


def test_events_explanations_and_logs_show_the_way(caplog) -> None:
    LOGS.loggers["breaks"].setLevel(logging.DEBUG)
    try:
        e = fineline.explain(Net())(X)
    finally:
        LOGS.loggers["breaks"].setLevel(logging.NOTSET)
    for text in (str(e), caplog.text):
        assert text.index(f"from {line(Net.forward)}") < text.index("frames in torch/nn/modules/module.py") < text.rindex(line(item))
    facts = e.breaks[0].as_dict()
    assert facts["function"] == "item" and facts["stack"][0]["function"] == "Net.forward" and facts["next"] and json.dumps(facts)


def test_a_stretch_that_is_given_up_shows_the_way() -> None:
    def loop():
        # With a tensor: what has only plain values is not interpreted.
        for _ in range(LONG_LOOP + 10):
            _ = X

    def outer(x):
        loop()
        return x + 1

    [event] = [event for event in fineline.explain(outer)(X).events if event.kind == "eager"]
    assert [name for _, _, name in event.stack] == [outer.__qualname__, loop.__qualname__]


def test_folding() -> None:
    stack = [("/a.py", 1, "f"), (f"{SITE}/torch/x.py", 2, "g"), (f"{SITE}/torch/y.py", 3, "h"), ("/b.py", 4, "i"), (f"{STDLIB}/ast.py", 5, "j")]
    assert folded(stack) == ["/a.py:1 in f", "… 2 frames in torch/x.py and torch/y.py", "/b.py:4 in i", "… 1 frame in ast.py"]
    assert folded([(f"{SITE}/p/{name}.py", 1, "f") for name in "abc"]) == ["… 3 frames in p/a.py, ... and p/c.py"]
    assert folded([]) == []
    assert is_library("<frozen importlib._bootstrap>") and not is_library("<string>") and not is_library(__file__)
    assert short_path("/elsewhere/site-packages/p/m.py") == "p/m.py"


def breaks_by_request(x):
    fineline.graph_break("here")
    return x + 1


class Odd:
    def __hash__(self):
        return 1


def declared(x):
    return x


# The program, and what of fineline's own decides its graph break: an entry of the table of refusals, or a built-in rule.
UNRULED = {
    "a shape by data": (lambda x: x[x > 0].sum(), "built-in FL508 at fineline/refusals.toml"),
    "nonzero": (lambda x: x.nonzero() + 1, "built-in FL508 at fineline/refusals.toml"),
    "a key with its own hash": (lambda x: ({Odd(): 1}, x + 1)[1], "built-in FL419 at fineline/refusals.toml"),
    "a declaration": (lambda x: (fineline.allow_in_graph(declared), x + 1)[1], "functions of fineline's that declare"),
    "code made from text": (lambda x: (exec("1"), x + 1)[1], "at fineline/"),
    "an unknown method": (lambda x: (__import__("zlib").compress(b"a"), x + 1)[1], "C code"),
    "a file": (lambda x: (open(__file__).close(), x + 1)[1], "at fineline/"),
    "a generator's frame": (lambda x: ((i for i in "a").gi_frame, x + 1)[1], "built-in FL410 at fineline/refusals.toml"),
}


@pytest.mark.parametrize("name", UNRULED)
def test_every_break_names_what_decided_it_and_where_that_is_declared(name) -> None:
    fn, rule = UNRULED[name]
    breaks = fineline.explain(fn)(X).breaks
    fineline.reset()
    assert breaks and all(event.rule and event.users_rule == "" and event.as_dict()["built_in"] for event in breaks)
    assert any(rule in event.rule for event in breaks), [event.rule for event in breaks]
    assert all(" at fineline/" in event.rule for event in breaks)


def test_an_explicit_break_names_its_line() -> None:
    (event,) = fineline.explain(breaks_by_request)(X).breaks
    assert event.users_rule == event.rule == f"graph_break('here') at {event.where}"
