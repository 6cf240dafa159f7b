"""Refusals as a user meets them: each graph break, where none may be, names the line, the reason, the rule and what to do next."""

from __future__ import annotations

import enum
import inspect
import json
import re
import sys
import types
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import fineline
from fineline.errors import Unsupported
from fineline.refusals import REFUSALS

X = torch.arange(1.0, 5.0)
OUTSIDE: list[Any] = []


class Plain:
    pass


class Keyed:
    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        return True


class Counted:
    def __del__(self) -> None:
        pass


class Sized(torch.Tensor):
    pass


class Reads(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.seen = OUTSIDE
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        OUTSIDE.append(1)
        return grad


@fineline.disable(reason="not now")
def off(x):
    return x + 1


@fineline.assume_constant_result
def weight():
    return torch.ones(4, requires_grad=True) * 2


@fineline.assume_constant_result
def constant(n):
    return len(n)


def explicit(x):
    fineline.graph_break("here")
    return x


def forced(x):
    return x + 1


def coroutine(x):
    async def later():
        return x

    later().close()
    return x


def unknown(x):
    return x + sys.getallocatedblocks()


def effect(x):
    print(end="")
    return x


def calls_back(x):
    return x + len(re.sub("a", lambda match: "b", "aa"))


def own_hash(x, d, k):
    return x + d[k]


def c_iterates(x, m):
    return x + sum(m)


def from_outside(x, it):
    return x + next(it)


def differs(x, v):
    return x + len(repr(v))


def subclass(x):
    return torch.nn.Parameter(x) + 1


def laid_out(x):
    return x + len(json.dumps({"a": 1}))


def makes_a_class(x):
    class E(enum.Enum):
        a = 1

    return x + E.a.value


def imports(x):
    import this  # noqa: F401

    return x


def sets_on_a_class(x):
    Plain.__doc__ = "a level"
    return x


def compiles(x):
    return fineline.compile(off)(x)


def has_history(x):
    return x * weight()


def own_list(x):
    return x + constant([x])


def deleted(x):
    v = Counted()
    del v
    return x


def looks_at_frames(x):
    return x + len(inspect.currentframe().f_locals)


def stops(x):
    breakpoint()
    return x


def block(x):
    with fineline.disable():
        return x + 1


def reads(x):
    return x if x.sum() > 0 else x + 1


def no_graph(x):
    torch.save(x, "/dev/null")
    return x


def argument(x):
    return torch.tensor([Plain()])


def kept_by_c(x):
    return (x * 2).grad_fn.name()


def function(x):
    return Reads.apply(x)


def metadata(x):
    x.resize_(2)
    return x


def unknown_number(x):
    return x + 1 if x.sum().item() > 2 else x


def branch(x):
    return torch.cond(x.sum() > 0, effect, forced, (x,))


def traces(x):
    return torch.func.functionalize(forced)(x)


def handled(x):
    try:
        return torch.ones(1)[x.long()]
    except IndexError:
        return x


def disallowed(x):
    return x.sin()


def warned(x):
    warnings.warn("careful", stacklevel=1)
    return x


def set_by_library(x):
    types.ModuleType("m").__setattr__("a", 1)
    return x


GRAD = X.clone().requires_grad_()
# By the id: what is compiled, the arguments behind the first one, options, and the innermost line of the user's.
PROGRAMS: dict[str, tuple[Any, tuple, dict[str, Any], str]] = {
    "FL400": (lambda x: off(x), (), {}, "off(x)"),
    "FL401": (explicit, (), {}, "graph_break"),
    "FL403": (forced, (), {"options": {"force_graph_breaks": True}}, "x + 1"),
    "FL405": (coroutine, (), {}, "later()"),
    "FL410": (unknown, (), {}, "getallocatedblocks"),
    "FL411": (effect, (), {}, "print"),
    "FL411 warns": (warned, (), {}, "warnings.warn"),
    "FL411 sets": (set_by_library, (), {}, "ModuleType"),
    "FL412": (calls_back, (), {}, "re.sub"),
    "FL412 key": (own_hash, ({Keyed(): 1}, Keyed()), {}, "d[k]"),
    "FL415": (c_iterates, (map(int, ["1"]),), {}, "sum(m)"),
    "FL416": (from_outside, ((i for i in (1, 2)),), {}, "next(it)"),
    "FL417": (differs, (Plain(),), {}, "repr(v)"),
    "FL421": (subclass, (), {}, "Parameter"),
    "FL422": (laid_out, (), {}, "json.dumps"),
    "FL423": (makes_a_class, (), {}, "class E"),
    "FL425": (imports, (), {}, "import this"),
    "FL429": (disallowed, (), {"policy": fineline.Policy(disallow=torch.sin)}, "x.sin()"),
    "FL430": (block, (), {}, "with fineline"),
    "FL432": (sets_on_a_class, (), {}, "Plain.__doc__"),
    "FL433": (compiles, (), {}, "fineline.compile"),
    "FL434": (has_history, (), {}, "weight()"),
    "FL438": (deleted, (), {}, "Counted()"),
    "FL439": (looks_at_frames, (), {}, "currentframe"),
    "FL449": (stops, (), {}, "breakpoint"),
    "FL450": (own_list, (), {}, "constant([x])"),
    "FL502": (reads, (), {}, "x.sum() > 0"),
    "FL503": (no_graph, (), {}, "torch.save"),
    "FL504": (argument, (), {}, "torch.tensor"),
    "FL504 array": (lambda x, a: torch.add(x, x, alpha=a), (np.array(2),), {}, "alpha=a"),
    "FL507": (kept_by_c, (), {}, "grad_fn"),
    "FL511": (function, (), {}, "Reads.apply"),
    "FL513": (metadata, (), {}, "resize_"),
    "FL518": (unknown_number, (), {}, "item() > 2"),
    "FL520": (branch, (), {}, "torch.cond"),
    "FL521": (traces, (), {}, "functionalize"),
    "FL523": (handled, (), {}, "x.long()"),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_refusal_says_where_why_by_which_rule_and_what_next(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "this", raising=False)
    fn, args, how, line = PROGRAMS[name]
    first = GRAD if fn in (kept_by_c, function) else X.clone()
    with pytest.raises(Unsupported) as caught:
        fineline.compile(fn, backend="eager", fullgraph=True, **how)(first, *args)
    fineline.reset()
    error, id = caught.value, name[:5]
    assert (id in error.reason and error.id == "FL102") or (id == "FL400" and error.id == "FL103")
    # The innermost frame of the user's, be it the place itself.
    places = [f"{file}:{number}" for file, number, _ in error.stack] or [error.where]
    own = [place for place in (*places, error.where) if place.startswith(f"{__file__}:")]
    assert own and line in open(__file__).read().splitlines()[int(own[-1].rpartition(":")[2]) - 1]
    assert error.rule and error.next_step.startswith(REFUSALS[error.id if id == "FL400" else id].next_step)
    assert not re.search(r" at 0x|<[\w.]+ object|_fineline|NoneType", error.reason)
    text = str(error)
    assert error.where in text and error.rule in text and error.next_step in text


# Where the graph may break, these stop, raise, or are captured in another way.
NO_BREAK = {"FL403", "FL434", "FL439", "FL449", "FL504", "FL504 array", "FL518", "FL520"}


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in NO_BREAK])
def test_the_break_has_a_rule_and_a_stack_where_the_region_may_break(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "this", raising=False)
    fn, args, how, _ = PROGRAMS[name]
    args = tuple([map(int, ["1"]) if isinstance(a, map) else (i for i in (1, 2)) if inspect.isgenerator(a) else a for a in args])
    first = GRAD if fn in (kept_by_c, function) else X.clone()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        told = fineline.explain(fn, **how)(first, *args)
    breaks = [e for e in told.breaks if e.id == name[:5]]
    assert breaks and all(e.rule and e.stack and e.next_step for e in breaks), told.breaks
