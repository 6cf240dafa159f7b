"""Relations between sizes and numbers: both evaluators compute as Python does, fail on what is no number, and see every change."""

from __future__ import annotations

import enum
import itertools
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from fineline.guards.facts import tensor_facts
from fineline.guards.postfix import BAD, BINARY, MOST, UNARY, Code, run
from fineline.report.misses import listed
from tests.guards.twins import Steps, Twins


def code(text: str) -> Code:
    """``a b 2 mul add``: letters are leaves, numbers are constants, anything else is an operator."""
    words = [w if len(w) > 1 or not w.isalpha() else ("leaf", "abc".index(w)) for w in text.split()]
    return tuple([w if isinstance(w, tuple) else (w, None) if w.isidentifier() else ("const", eval(w)) for w in words])


def numbers(text: str) -> Twins:
    """A relation between three roots."""
    steps = Steps()
    leaves = tuple([("number", steps.get("root", -1, i), -1) for i in range(3)])
    steps.check("relation", -1, (leaves, code(text), text))
    return steps.twins(3)


NUMBERS = [
    0, 1, -1, 2, 3, -7, 62, 63, 64, True, False, 2**53, 2**53 + 1, -(2**53) - 1, 2**62 + 1, 2**63 - 1, -(2**63), 3037000500, 0.0, -0.0, 0.5, -2.5,
    1.5, 3.5, 3.0, 1e300, -1e300, 1e-300, 2.0**63, -(2.0**63), 2.0**53, math.inf, -math.inf, math.nan,
]  # fmt: skip


def agree(twins: Twins, differs: Twins, result: Any, a: Any, b: Any) -> None:
    """``twins`` compares what it computes from ``a`` and ``b`` with the third root."""
    if result is BAD:
        assert not twins.holds(a, b, 0) and not differs.holds(a, b, 0)
    elif result != result:
        assert not twins.holds(a, b, result) and differs.holds(a, b, result)
    else:
        assert twins.holds(a, b, result), (a, b, result)


@pytest.mark.parametrize("op", list(BINARY))
def test_binary_operators(op: str) -> None:
    twins, differs = numbers(f"a b {op} c eq"), numbers(f"a b {op} c ne")
    for a, b in itertools.product(NUMBERS, repeat=2):
        agree(twins, differs, run(code(f"a b {op}"), (a, b)), a, b)


@pytest.mark.parametrize("op", list(UNARY))
def test_unary_operators(op: str) -> None:
    twins, differs = numbers(f"a {op} c eq"), numbers(f"a {op} c ne")
    for a in NUMBERS:
        agree(twins, differs, run(code(f"a {op}"), (a,)), a, 0)


def test_long_quotients_are_rounded_once() -> None:
    chance = random.Random(0)
    twins = numbers("a b truediv c eq")
    for _ in range(2000):
        a, b = [chance.choice([-1, 1]) * chance.getrandbits(chance.randrange(1, 64)) for _ in range(2)]
        assert b == 0 or twins.holds(a, b, a / b)


BAD_CODE = "1 0 floordiv"


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("1 2 and", True), ("1 0 and", False), ("0.0 1 or", True), ("0 0.0 or", False), ("1 2 3 select", 2), ("0.5 2 3 select", 2), ("0 2 3 select", 3),
        (f"{BAD_CODE} 0 and", False), (f"0 {BAD_CODE} and", False), (f"{BAD_CODE} 1 and", BAD), (f"1 {BAD_CODE} and", BAD),
        (f"{BAD_CODE} 1 or", True), (f"1 {BAD_CODE} or", True), (f"{BAD_CODE} 0 or", BAD), (f"{BAD_CODE} {BAD_CODE} or", BAD),
        (f"1 2 {BAD_CODE} select", 2), (f"0 2 {BAD_CODE} select", BAD), (f"{BAD_CODE} 2 2 select", BAD), (f"{BAD_CODE} not", BAD),
        (f"{BAD_CODE} {BAD_CODE} eq", BAD), ("2 3 pow", 8), ("-2 63 pow", -(2**63)), ("2 63 pow", BAD), ("0 1000000000000 pow", 0), ("-1 1000000000001 pow", -1),
        ("10 1000000000000 pow", BAD), ("2 -1 pow", BAD), ("4 -0.5 pow", 0.5), ("-8 0.5 pow", BAD), ("1e300 2 pow", BAD), ("7 -2 floordiv", -4),
        ("-7 2 mod", 1), ("7 -2 mod", -1), ("-7.5 2 mod", 0.5), ("2.5 round", 2), ("3.5 round", 4), ("-1.5 trunc", -1), ("-1.5 floor", -2), ("-1.5 ceil", -1),
    ],
)  # fmt: skip
def test_results(text: str, result: Any) -> None:
    found = run(code(text), ())
    assert type(found) is type(result) and found == result
    agree(numbers(f"{text} c eq"), numbers(f"{text} c ne"), result, 0, 0)


class Seven(enum.IntEnum):
    SEVEN = 7


@pytest.mark.parametrize(
    "value", [None, "7", Seven.SEVEN, np.int64(7), np.float64(7), torch.tensor(7), torch.Size([7]), 7j, 2**63, -(2**63) - 1]
)
def test_what_is_no_number_fails(value: Any) -> None:
    twins = numbers("a a eq 1 or")  # true, if there is anything to ask
    assert twins.holds(7, 0, 0) and not twins.holds(value, 0, 0)
    assert not twins.holds(7, value, 0)  # though no instruction asks for it
    assert twins.holds(7, 0, 0)


def test_a_symbolic_number_fails() -> None:
    assert not numbers("a a eq").holds(ShapeEnv().create_unbacked_symint(), 0, 0)


def tensor_relation(text: str, *leaves: tuple[str, int]) -> Twins:
    """A relation between numbers of the first root."""
    steps = Steps()
    root = steps.get("root", -1, 0)
    steps.check("relation", -1, (tuple([(kind, root, index) for kind, index in leaves]), code(text), text))
    return steps.twins(1)


class Own(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} was seen")


def fake(*sizes: int) -> torch.Tensor:
    with FakeTensorMode():
        return torch.zeros(*sizes)


TENSORS: dict[str, Callable[[int, int], torch.Tensor]] = {
    "plain": lambda *sizes: torch.zeros(*sizes),
    "many dimensions": lambda *sizes: torch.zeros(*sizes, 1, 1, 1, 1, 1, 1),
    "parameter": lambda *sizes: torch.nn.Parameter(torch.zeros(*sizes)),
    "meta": lambda *sizes: torch.zeros(*sizes, device="meta"),
    "subclass": lambda *sizes: torch.zeros(*sizes).as_subclass(Own),
    "fake": fake,
    "functional": lambda *sizes: torch._to_functional_tensor(torch.zeros(*sizes)),
}


@pytest.mark.parametrize("name", list(TENSORS))
def test_leaves_of_a_tensor(name: str) -> None:
    make = TENSORS[name]
    sizes = tensor_relation("a b mul 6 eq", ("size", 0), ("size", 1))
    strides = tensor_relation("a 3 eq b 1 eq and", ("stride", 0), ("stride", 1))
    offset = tensor_relation("a 0 eq", ("offset", 0))
    for _ in range(3):
        assert sizes.holds(make(2, 3)) and sizes.holds(make(3, 2)) and not sizes.holds(make(2, 4))
        assert strides.holds(make(2, 3)) and not strides.holds(make(3, 2))
        assert offset.holds(make(2, 3))
    assert not offset.holds(torch.zeros(4)[1:])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("leaf", [("size", 2), ("stride", 2), ("stride", 0), ("offset", 0), ("number", -1)])
@pytest.mark.parametrize(
    "value", [torch.zeros(2, 3), torch.zeros(2), torch.eye(2).to_sparse(), "csr", 3, None, [2, 3], fake(2), fake(2, 3, 4)]
)
def test_missing_leaves_fail_alike(leaf: tuple[str, int], value: Any) -> None:
    if isinstance(value, str):
        value = torch.eye(2).to_sparse_csr()
    twins = tensor_relation("a a eq", leaf)
    held = twins.holds(value)
    if leaf[0] == "number":
        assert held == (value == 3 if isinstance(value, int) else False)
    elif not isinstance(value, torch.Tensor) or (leaf[1] == 2 and value.dim() < 3):
        assert not held


def test_a_symbolic_size_fails() -> None:
    with FakeTensorMode(shape_env=ShapeEnv()) as mode:
        t = mode.from_tensor(torch.zeros(4, 5))
        symbolic = torch.empty(mode.shape_env.create_unbacked_symint())
    assert t.dim() == 2
    assert not tensor_relation("a a eq", ("size", 0)).holds(symbolic)


MALFORMED: list[tuple[Any, Any]] = [
    ((), ()),
    ((), code("1 2")),
    ((), code("add")),
    ((), code("1 add")),
    ((), code("1 nonsense")),
    ((), code("a")),
    ((), (("leaf", -1),)),
    ((), (("const", 2**63),)),
    ((), (("const", None),)),
    ((), (("const", "a"),)),
    ((("number", 7, -1),), code("a")),
    ((("nonsense", 0, 0),), code("a")),
    ((("size", 0, -1),), code("a")),
    ((("number", 0, -1),) * (MOST + 1), code("a")),
    ((), code("1 " * (MOST + 1) + "add " * MOST)),
]


@pytest.mark.parametrize(("leaves", "program"), MALFORMED)
def test_malformed_relations_are_refused(leaves: Any, program: Any) -> None:
    steps = [("root", 0, -1, 0), ("relation", -1, -1, (leaves, program, "text"))]
    twins = numbers("1")
    for make in (type(twins.reference), type(twins.native)):
        with pytest.raises(ValueError):
            make(1, steps, ())


def test_the_most_there_is_room_for() -> None:
    assert numbers("1 " * MOST + "add " * (MOST - 1) + f"{MOST} eq").holds(0, 0, 0)


def test_a_relation_is_explained() -> None:
    steps = Steps()
    x, n = steps.get("root", -1, 0), steps.get("root", -1, 1)
    steps.check("relation", -1, ((("size", x, 0),), code("a 8 eq"), "x.size(0) == 8"))
    steps.check("relation", -1, ((("size", x, 0), ("number", n, -1)), code("a b eq"), "x.size(0) == n"))
    reference = steps.twins(2).reference
    assert listed(reference.explain((torch.zeros(6), 6))) == "x.size(0) == 8, and it is 6"
    assert listed(reference.explain((torch.zeros(8), 6))) == "x.size(0) == n, and they are 8, 6"
    assert listed(reference.explain((torch.zeros(8), "a"))) == "x.size(0) == n, and they are 8, 'a'"
    assert listed(reference.explain(("b", 6))) == "x.size(0) == 8, and it is 'b'"


# -- changes ------------------------------------------------------------------------------------------------------------
def dynamic(t: torch.Tensor, text: str, *leaves: tuple[str, int]) -> list:
    """The guards of a tensor in a dict whose sizes and strides may be any that have a relation."""
    steps = Steps()
    reg = steps.get("key", steps.get("root", -1, 0), "x")
    facts = tensor_facts(t)
    steps.check("tensor", reg, facts._replace(sizes=(None,) * len(facts.sizes), strides=(None,) * len(facts.sizes)))
    steps.check("relation", -1, (tuple([(kind, reg, index) for kind, index in leaves]), code(text), text))
    return steps.steps


def change_size(holder: dict) -> tuple[list, Callable, Callable]:
    t = holder["x"] = torch.zeros(4, 3)
    return dynamic(t, "a 2 mod 0 eq", ("size", 0)), lambda: t.resize_(5, 3), lambda: t.resize_(6, 3)


def change_tensor(holder: dict) -> tuple[list, Callable, Callable]:
    t = holder["x"] = torch.zeros(4, 3)
    return dynamic(t, "a 2 mod 0 eq", ("size", 0)), lambda: holder.update(x=torch.zeros(5, 3)), lambda: holder.update(x=torch.zeros(8, 3))


def change_stride(holder: dict) -> tuple[list, Callable, Callable]:
    t = holder["x"] = torch.zeros(3, 3)
    return dynamic(t, "a b gt", ("stride", 0), ("stride", 1)), lambda: t.t_(), lambda: t.t_()


def change_offset(holder: dict) -> tuple[list, Callable, Callable]:
    base = torch.zeros(8)
    holder["x"] = base[4:]
    return (
        dynamic(base, "a 4 mod 0 eq", ("offset", 0)),
        lambda: holder.update(x=base[3:]),
        lambda: holder.update(x=base[:2]),
    )


def number_guards(of: type) -> list:
    steps = Steps()
    reg = steps.get("key", steps.get("root", -1, 0), "x")
    steps.check("type", reg, of)
    steps.check("relation", -1, ((("number", reg, -1),), code("a 0 gt"), "x > 0"))
    return steps.steps


def change_int(holder: dict) -> tuple[list, Callable, Callable]:
    holder["x"] = 5
    return number_guards(int), lambda: holder.update(x=-int("1000")), lambda: holder.update(x=int("1000"))


def change_float(holder: dict) -> tuple[list, Callable, Callable]:
    holder["x"] = 5.0
    return number_guards(float), lambda: holder.update(x=math.nan), lambda: holder.update(x=float("7"))


def change_int_to_bool(holder: dict) -> tuple[list, Callable, Callable]:
    holder["x"] = 5
    return number_guards(int), lambda: holder.update(x=True), lambda: holder.update(x=1)


def change_int_to_float(holder: dict) -> tuple[list, Callable, Callable]:
    holder["x"] = 5
    return number_guards(int), lambda: holder.update(x=1.0), lambda: holder.update(x=1)


@pytest.mark.parametrize("name", [name for name in globals() if name.startswith("change_")])
def test_pass_change_revert(name: str) -> None:
    holder: dict = {}
    steps, change, revert = globals()[name](holder)
    twins = Twins(1, steps)
    for _ in range(6):
        assert twins.holds(holder)
        change()
        assert not twins.holds(holder)
        revert()
    assert twins.holds(holder)


def test_numbers_that_take_each_others_memory() -> None:
    """An unchanged address says nothing about the number that is there."""
    holder: dict = {}
    holder["x"] = 1000
    twins = Twins(1, number_guards(int))
    chance = random.Random(0)
    for _ in range(300):
        value = chance.choice([-1, 1]) * chance.randrange(1000, 2000)
        holder["x"] = None
        holder["x"] = int(str(value))
        assert twins.holds(holder) == (value > 0)


def test_roots_that_change_on_every_call() -> None:
    steps = Steps()
    x, n = steps.get("root", -1, 0), steps.get("root", -1, 1)
    steps.check("tensor", x, tensor_facts(torch.zeros(2, 3))._replace(sizes=(None, 3)))
    steps.check("type", n, int)
    steps.check("relation", -1, ((("size", x, 0), ("number", n, -1)), code("a b 2 mul eq"), "x.size(0) == 2*n"))
    twins = steps.twins(2)
    for i in range(100):
        assert twins.holds(torch.zeros(2 * i, 3), i) and not twins.holds(torch.zeros(2 * i + 1, 3), i)
    assert twins.native.statistics()["tables"] <= 2
