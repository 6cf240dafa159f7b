"""Numbers, strings, bytes, formatting, builtins."""

from __future__ import annotations

import enum
from collections import Counter
from typing import Any

import pytest
import torch

from fineline import graph_break
from tests.oracle import Program, Table, check, t

table = Table()


@table.snippet()
def integer_arithmetic(x):
    n = len(x)
    values = (n // 2, -n // 2, n % -2, divmod(-7, n), n**3, 2**-1, n << 4, n >> 1, n & 5, n | 8, n ^ 1, ~n, -n, abs(-n), pow(3, 4, 5))
    return x * values[0] + values[4], values, (10**20).bit_length(), int("ff", 16), (7).__add__(1)


@table.snippet()
def float_arithmetic(x):
    a = 0.1 + 0.2
    values = (a, 7.5 // 2, -7.5 % 2, 1e308 * 10, round(2.5), round(2.675, 2), float("nan") != float("nan"), -0.0, int(-3.7), a.is_integer())
    return x * a, values, float("1e3"), (0.5).as_integer_ratio(), (3.0).hex()


@table.snippet()
def complex_and_bools(x):
    return x * True + False, (1 + 2j) * 3, abs(3 + 4j), (1j).imag, True + True, True is (1 == 1.0), not 0, bool("")


@table.snippet()
def arithmetic_errors(x):
    told = []
    actions = (lambda: 1 // 0, lambda: 1.0 / 0, lambda: 1 % 0, lambda: 2.0**5000, lambda: int("x"), lambda: float(None))
    for action in (*actions, lambda: "a" + 1):
        try:
            action()
        except (ZeroDivisionError, OverflowError, ValueError, TypeError) as error:
            told.append((type(error).__name__, str(error)))
    return x * len(told), told


@table.snippet(args=lambda i: (t(i), [1, True, 1.0, 1][i]), calls=4, recompiles=(1, 2))
def one_true_and_one_point_zero(x, n):
    return x * n, type(n).__name__, repr(n)


@table.snippet(args=lambda i: (t(i), [0.0, -0.0, 0.0][i]), recompiles=(1,))
def minus_zero(x, n):
    return x * 0 + n, str(n)


@table.snippet(args=lambda i: (t(i), [float("nan"), 1.0, float("nan"), float("nan")][i]), calls=4, recompiles=(1,))
def not_a_number(x, n):
    return x + (1 if n != n else n)


@table.snippet()
def string_methods(x):
    s = "  Hello, World  "
    values = (s.strip(), s.lower().split(","), "-".join(["a", "b"]), s.replace("l", "L"), s.find("W"), s.strip().startswith(("He", "x")))
    more = ("a,b,,c".split(","), "k=v=w".partition("="), "abc".rjust(5, "."), "x".zfill(3), "ab\ncd".splitlines(), "aXb".swapcase())
    return x * s.count("l"), values, more, "abc"[::-1], "b" in "abc", "%05.1f|%s" % (2.5, "z"), "tic tac".title(), "é".encode()


@table.snippet()
def f_strings(x):
    n, name, width = 3.14159, "bob", 8
    a = f"{n:.2f} {n:>{width}.1f} {name!r:^7} {len(x)=} {'nested ' + f'{n:.0f}'} {{literal}} {1000000:,} {255:#x} {0.5:%}"
    return x * len(a), a, f"{x.shape} {x.dtype} {tuple(x.shape)!s:>10}", f"{'':*^3}"


@table.snippet()
def str_format(x):
    return x + 1, "{} {name!r:>5}".format("a", name="n"), format(3.5, ".3f"), format("s", ">4")


@table.snippet()
def bytes_and_bytearrays(x):
    b = bytearray(b"abc")
    b[0] = 122
    b.extend(b"!")
    number = int.from_bytes(b"\x01\x00", "big")
    return x * b[1], bytes(b), b"a,b".split(b","), b.hex(), bytes([1, 2]), b"abc"[1], memoryview(b"xyz")[1], number


@table.snippet()
def builtins_over_iterables(x):
    xs = [x * k for k in range(1, 4)]
    return (
        sum(xs), sum(range(5), 10), max(3, 1, 2), min([4, 2], default=0), max([], default="none"), any(v > 2 for v in range(4)), all([]),
        [a + b for a, b in zip(xs, reversed(xs))], list(enumerate("ab", 1)), list(map(lambda a, b: a * b, [1, 2], [3, 4])),
        list(filter(None, [0, 1, "", "a"])), list(filter(lambda v: v.dim() == 2, xs)), len(list(iter(lambda: 1, 1))),
    )  # fmt: skip


@table.snippet()
def zip_strict(x):
    try:
        list(zip([1], [1, 2], strict=True))
    except ValueError as error:
        return x + 1, str(error), list(zip()), list(zip(*[(1, "a"), (2, "b")])), dict(zip("ab", x))


@table.snippet()
def lazy_builtins(x):
    log = []

    def note(v):
        log.append(v)
        return v * 2

    m = map(note, [1, 2, 3])
    a = next(m)
    z = zip(m, "ab")
    b = next(z)
    return x * a + b[0], log, list(m), list(z), log


@table.snippet()
def range_objects(x):
    r = range(2, 20, 5)
    return x * r[1], list(r), len(r), 12 in r, r[-1], r[1:], r == range(2, 21, 5), r.index(7), list(reversed(r)), range(0) == range(5, 5)


@table.snippet()
def isinstance_and_types(x):
    def kind(v):
        if isinstance(v, bool):
            return "bool"
        if isinstance(v, (int, float)):
            return "number"
        if isinstance(v, int | str):
            return "text"
        return type(v).__name__

    kinds = [kind(v) for v in (True, 1, 1.5, "s", x, None, [], int)]
    return x * 2, kinds, issubclass(bool, int), type(x) is torch.Tensor, isinstance(x, torch.Tensor)


@table.snippet()
def identity_tests(x):
    y = x
    z = x * 1
    return y is x, z is x, z is not None, x is x.data, [] == [], type(None) is type(None), x.T is x.T, id(x) == id(y)


@table.snippet()
def membership(x):
    xs = [x, x * 2]
    return x + 1, 2 in (1, 2), "k" not in {"k": 1}, any(v is x for v in xs), x in xs[:1], 3 in range(5)


@table.snippet()
def conversions(x):
    containers = list("ab"), tuple([1]), set("aab"), dict([(1, 2)])
    return x * int("3") + float("0.5"), str(12), containers, bool([0]), bytes(2), ord("a"), chr(98), bin(5)


@table.snippet()
def hashing(x):
    return x * 2, hash((1, 2)) == hash((1, 2)), hash(1) == hash(1.0), len({1, 1.0, True}), {(1, "a"): x}[(1, "a")] + 1


@table.snippet()
def getattr_and_callable(x):
    return getattr(x, "sin")(), callable(torch.sin), callable(3), hasattr(x, "nope"), getattr(x, "nope", None), hasattr(torch, "relu")


@table.snippet(min_graphs=0)  # exec and eval run code that nobody has seen
def eval_and_exec(x):
    space = {"x": x, "n": 2}
    exec("y = x * n", space)
    return eval("x + 1", {"x": x}), space["y"]


@table.snippet()
def imports_inside(x):
    import math as m
    from collections import OrderedDict as OD

    import torch.nn.functional as F

    return F.relu(x) * m.floor(2.5), OD(a=1), m.__name__


@table.snippet()
def import_errors(x):
    told = []
    try:
        import not_a_module_at_all  # noqa: F401
    except ImportError as error:
        told.append((type(error).__name__, error.name))
    try:
        from math import not_there  # noqa: F401
    except ImportError as error:
        told.append(error.name)
    return x * 2, told


@table.snippet(args=lambda i: (t(i), ["add", "mul", "add", "sub"][i]), calls=4, recompiles=(1, 3))
def string_argument(x, op):
    return {"add": x.add, "mul": x.mul}.get(op, x.sub)(2)


@table.snippet(args=lambda i: (t(i), None if i % 2 else t(9)), calls=4, recompiles=(1,))
def optional_argument(x, mask):
    if mask is None:
        return x * 2
    return x.masked_fill(mask > 0, 0.0)


@table.snippet(args=lambda i: (t(i), [torch.float64, torch.int32, torch.float64][i]), recompiles=(1,))
def dtype_argument(x, dtype):
    return x.to(dtype), torch.zeros(2, dtype=dtype), dtype.is_floating_point


@table.snippet(args=lambda i: (t(0, [3, 5, 3][i], 4),), recompiles=(1, 2))
def sizes_change(x):
    rows = [x[i] * i for i in range(x.shape[0])]
    return torch.stack(rows).sum(0), x.numel() // 2, x.reshape(-1).shape[0] / 4


@table.program(breaks=True)
def imports_that_fail() -> Any:
    def fn(x):
        x = x * 2
        try:
            import no_such_module_here  # noqa: F401
        except ImportError as e:
            name = e.name
        try:
            from torch import no_such_name  # noqa: F401
        except ImportError as e:
            other = e.name, str(e)[:30]
        try:
            from . import relative  # noqa: F401
        except ImportError as e:
            third = str(e)
        return x + 1, name, other, third

    return fn


class Answering:
    def __init__(self, answer):
        self.answer = answer

    def __str__(self):
        return self.answer

    def __format__(self, spec):
        return self.answer

    __repr__ = __hash__ = __str__


class Text(str):
    pass


ANSWERS = ["a", -1, 2**70, True, Text("q"), None]


@table.snippet(args=lambda place: (torch.ones(3), ANSWERS[place]), calls=6, recompiles=(1, 2, 3, 4, 5))
def what_texts_and_hashes_may_be(x, answer):
    found = []
    for fn in (str, repr, format, hash, lambda o: f"{o}", lambda o: f"{o!r:>3}", lambda o: format(o, "x"), lambda o: {o: 1}.popitem()[1]):
        try:
            found.append((fn(Answering(answer)), type(fn(Answering(answer)))))
        except TypeError as e:
            found.append(str(e))
    return x + 1, found


# -- numbers of objects ------------------------------------------------------------------------------------------------
def another_layer(model: Any) -> None:
    model[0] = torch.nn.Linear(4, 4)


@table.program(change={2: another_layer, 3: lambda model: model.append(torch.nn.ReLU())}, calls=5, recompiles={2, 3}, max_graphs=3)
def numbers_of_modules() -> Any:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))

    def fn(x: torch.Tensor) -> Any:
        known = {id(m): place for place, m in enumerate(model)}
        return model[1](x), known[id(model[1])], id(model[0]) in known, id(model) in known, id(model[0]) == id(model[1])

    return fn, model


@table.program(max_graphs=1)
def cached_parametrizations() -> Any:
    torch.manual_seed(0)
    layer = torch.nn.utils.parametrizations.orthogonal(torch.nn.Linear(4, 4))

    def fn(x: torch.Tensor) -> Any:
        with torch.nn.utils.parametrize.cached():
            return layer(x) + layer.weight.sum()

    return fn, layer


class Held:
    pass


@table.program(change={1: lambda held: held.append(Held()), 2: lambda held: held.reverse()}, recompiles={1, 2}, max_graphs=3)
def numbers_of_objects() -> Any:
    held = [Held(), Held()]

    def fn(x: torch.Tensor) -> Any:
        places = {id(h): k for k, h in enumerate(held)}
        return x + places[id(held[-1])], len(places), sorted(places) == sorted(map(id, held)), id(fn) in places, id(Held) != id(torch)

    return fn, held


# Not steady: a new object may lie where one of an earlier call has been, and then its number has not changed.
@table.snippet(args=lambda place: (t(place), Held()), breaks=True, steady=False)
def numbers_of_arguments(x, held):
    new = Held()
    return x * 2, id(held) == id(new), id(new) == id(new), id(x) == id(held)


HUGE = 10**5000


@table.snippet()
def integers_too_long_to_write_out(x):
    n = 10**4503 + 1
    return x + n % 7, [n, -n], {n: HUGE - 1}, HUGE > n


@table.snippet(max_graphs=1)
def sentinels(x):
    missing, settings, kept = object(), {"a": 1}, [object() for _ in range(3)]
    found = [settings.get(name, missing) is missing for name in "ab"]
    same = missing is missing, missing == missing, missing != kept[0], bool(missing), isinstance(missing, object), len({missing, *kept})
    try:
        missing.name = 1
    except AttributeError as error:
        told = str(error)
    return x * len(found), next(iter([]), missing), missing, kept, same, found, told, max([], default=missing), Counter("abca").most_common(1)


@table.snippet(breaks=True)
def sentinels_behind_a_graph_break(x):
    missing = object()
    held = [missing, object()]
    graph_break()
    return x * held.index(missing), missing is held[0], held, type(missing)


class Count(int):
    pass


class Mark(str):
    pass


class Switch(enum.Enum):
    OFF = 0
    ON = 1


class Number(enum.IntEnum):
    NONE = 0
    SOME = 1


class TestedValues:
    count: Any = Count(2)
    mark: Any = Mark("")
    switch: Any = Switch.OFF
    number: Any = Number.NONE


def _without_truth(cls: type) -> None:
    cls.__bool__ = lambda self: False  # type: ignore[attr-defined]


CHANGES = {
    1: lambda held: setattr(held, "count", Count(0)),
    2: lambda held: setattr(held, "mark", Mark("a")),
    3: lambda held: setattr(held, "number", Number.SOME),
    4: lambda held: _without_truth(held.switch_class),
}


@table.program(calls=6, recompiles={1, 2, 3, 4}, change=CHANGES)
def the_truth_of_values_of_other_classes():
    held = TestedValues()
    # A class of this program's, which the change may change.
    held.switch_class = enum.Enum("OwnSwitch", "OFF ON")
    held.switch = held.switch_class.OFF

    def fn(x, default=Number.NONE):
        told = [bool(held.count), not held.mark, held.switch and 1, held.number or 2, default or 3, Switch.OFF and 4]
        if held.count:
            x = x + 1
        return x * 2 if held.number else x * 3, told

    return fn, held


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_values(program: Program, twin: str) -> None:
    check(program, twin)
