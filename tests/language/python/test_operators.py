"""Operators: special methods of user classes, reflected and in-place ones, comparisons, truth, containers by protocol."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
import torch

from tests.oracle import Program, Table, check, t

table = Table()


class Vec:
    """Wraps a tensor; notes which methods were called."""

    log: list[str] = []

    def __init__(self, v: Any) -> None:
        self.v = v

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, (Vec, int, float)):
            return NotImplemented
        self.log.append("add")
        return Vec(self.v + getattr(other, "v", other))

    def __radd__(self, other: Any) -> Any:
        self.log.append("radd")
        return Vec(other + self.v)

    def __iadd__(self, other: Any) -> Any:
        self.log.append("iadd")
        self.v = self.v + getattr(other, "v", other)
        return self

    def __matmul__(self, other: Any) -> Any:
        return self.v @ other.v.T

    def __neg__(self) -> Any:
        return Vec(-self.v)

    def __abs__(self) -> Any:
        return Vec(self.v.abs())

    def __getitem__(self, key: Any) -> Any:
        return Vec(self.v[key])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.log.append(f"setitem {key}")
        self.v = self.v.clone()
        self.v[key] = value

    def __delitem__(self, key: Any) -> None:
        self.log.append(f"delitem {key}")

    def __len__(self) -> int:
        return len(self.v)

    def __eq__(self, other: Any) -> Any:
        self.log.append("eq")
        return "equal" if isinstance(other, Vec) else NotImplemented

    def __hash__(self) -> int:
        return 7

    def __repr__(self) -> str:
        return f"Vec{tuple(self.v.shape)}"


def taken() -> list[str]:
    """What was noted; nothing stays, so that each call begins alike."""
    log = Vec.log[:]
    Vec.log.clear()
    return log


@table.snippet()
def arithmetic_dunders(x):
    a = Vec(x)
    b = a + Vec(x * 2) + 1
    c = 2 + b
    a += 1
    return b.v, c.v, a.v, (-a).v, abs(b).v, a @ b, taken()


@table.snippet()
def add_not_implemented(x):
    told = []
    for right in ("s", None, [1]):
        try:
            Vec(x) + right
        except TypeError as error:
            told.append(str(error))
    return x * 2, told, taken()


@table.snippet()
def subclass_reflected_first(x):
    log = []

    class A:
        def __sub__(self, other):
            log.append("A.sub")
            return x

        def __rsub__(self, other):
            log.append("A.rsub")
            return x * 2

    class B(A):
        def __rsub__(self, other):
            log.append("B.rsub")
            return x * 3

    class C(A):
        pass

    return A() - B(), A() - C(), B() - A(), 1 - A(), log


@table.snippet()
def tensor_with_reflected_object(x):
    class R:
        def __rmul__(self, other):
            return "rmul", other

        def __radd__(self, other):
            return other.sum()

        __array_priority__ = 1000

    told = []
    try:
        told.append(x + R())
    except TypeError as error:
        told.append(type(error).__name__)
    return told, 3 * R(), x * 2


@table.snippet()
def inplace_falls_back(x):
    class A:
        def __init__(self, v):
            self.v = v

        def __mul__(self, k):
            return A(self.v * k)

    a = b = A(x)
    a *= 3
    return a.v, a is b, b.v


@table.snippet()
def items_by_protocol(x):
    a = Vec(x)
    a[0] = 5.0
    a[1:, ::2] = 7.0
    del a[3, ...]
    return a.v, a[1].v, a[..., -1].v, len(a), taken()


@table.snippet()
def iteration_by_getitem(x):
    class Old:
        def __getitem__(self, i):
            if i >= 3:
                raise IndexError(i)
            return x * i

    first, *rest = Old()
    return first, rest, [v.sum() for v in Old()], 7 in [len(list(Old()))]


@table.snippet()
def iterator_protocol(x):
    class Count:
        def __init__(self, n):
            self.i, self.n = 0, n

        def __iter__(self):
            return self

        def __next__(self):
            if self.i == self.n:
                raise StopIteration
            self.i += 1
            return self.i

    c = Count(4)
    a = next(c)
    return x * sum(c), a, next(c, "end"), list(Count(2)), [*Count(2), *Count(1)], dict(zip(Count(2), "ab"))


@table.snippet()
def contains(x):
    class Has:
        def __contains__(self, v):
            return v if isinstance(v, int) else []

    class Iterates:
        def __iter__(self):
            yield from (1, 2, 3)

    return x + 1, 5 in Has(), 0 in Has(), "s" in Has(), 2 in Iterates(), 9 not in Iterates()


@table.snippet()
def truth(x):
    class Len:
        def __init__(self, n):
            self.n = n

        def __len__(self):
            return self.n

    class Bool(Len):
        def __bool__(self):
            return self.n > 5

    out = [1 if v else 0 for v in (Len(0), Len(1), Bool(1), Bool(9), object(), "", "a", [], {}, (0,), 0.0, None, ...)]
    return x * sum(out), out, not Len(0), Len(2) and "yes", Bool(1) or "no"


@table.snippet()
def truth_errors(x):
    class Bad:
        def __bool__(self):
            return 3

    class BadLen:
        def __len__(self):
            return -1

    told = []
    for value in (Bad(), BadLen()):
        try:
            if value:
                pass
        except (TypeError, ValueError) as error:
            told.append(str(error))
    return x * 2, told


@table.snippet()
def rich_comparisons(x):
    class Ver:
        def __init__(self, n):
            self.n = n

        def __lt__(self, other):
            return self.n < other.n

        def __ge__(self, other):
            return "ge"

    a, b = Ver(1), Ver(2)
    told = []
    try:
        a <= 3
    except TypeError as error:
        told.append(str(error))
    kinds = (a < b, a > b, a >= b, b <= a, a == a, a == b, a != b, Vec(x) == Vec(x), Vec(x) != 3, 3 == Vec(x))
    return x + 1, kinds, told, [v.n for v in sorted([b, a])], taken()


@table.snippet(breaks=True)
def keys_with_a_hash_in_comprehensions(x):
    asked = []

    class Key:
        def __init__(self, n):
            self.n = n

        def __hash__(self):
            asked.append(self.n)
            return self.n % 2

        def __eq__(self, other):
            asked.append((self.n, other.n))
            return self.n == other.n

    d = {Key(n): x * n for n in (1, 2, 1)}
    s = {Key(n % 2) for n in range(4)}
    return [v + 1 for v in d.values()], len(s), asked


@table.snippet(breaks=True)
def hash_and_equality_in_dicts(x):
    class Key:
        def __init__(self, n):
            self.n = n

        def __hash__(self):
            return self.n % 2

        def __eq__(self, other):
            return isinstance(other, Key) and self.n == other.n

    d = {Key(1): x, Key(3): x * 2, Key(1): x * 3}
    found = d[Key(3)] + d.get(Key(1))
    s = {Key(1), Key(1), Key(2)}
    del d[Key(1)]
    return found, len(d), len(s), Key(5) in d, Key(3) in d


@table.snippet()
def numeric_conversions(x):
    class N:
        def __int__(self):
            return 3

        def __float__(self):
            return 1.5

        def __index__(self):
            return 2

        def __round__(self, n=None):
            return "round", n

        def __trunc__(self):
            return 9

    n = N()
    return x[n], x * int(n) + float(n), [10, 20, 30][n], range(n), round(n, 1), hex(n), "ab" * n, x[: N()]


@table.snippet()
def strings_of_objects(x):
    class S:
        def __repr__(self):
            return "<repr>"

        def __str__(self):
            return "str"

        def __format__(self, spec):
            return f"[{spec}]"

        def __bytes__(self):
            return b"b"

    s = S()
    return x * len(str(s)), f"{s} {s!r} {s!s:>5} {s:abc}", "%s %r" % (s, s), "{0:x}{0!r}".format(s), bytes(s), repr([s])


@table.snippet()
def every_binary_operator(x):
    class Any_:
        pass

    ops = ("add sub mul truediv floordiv mod pow lshift rshift and or xor matmul divmod").split()
    for op in ops:
        setattr(Any_, f"__{op}__", lambda self, other, op=op: (op, other))
        setattr(Any_, f"__r{op}__", lambda self, other, op=op: ("r" + op, other))
    a = Any_()
    left = [a + 1, a - 1, a * 1, a / 1, a // 1, a % 1, a**1, a << 1, a >> 1, a & 1, a | 1, a ^ 1, a @ 1, divmod(a, 1)]
    right = [1 + a, 1 - a, 1 * a, 1 / a, 1 // a, 1 % a, 1**a, 1 << a, 1 >> a, 1 & a, 1 | a, 1 ^ a, 1 @ a, divmod(1, a)]
    return x * 2, left, right


@table.snippet()
def every_unary_and_inplace_operator(x):
    class A:
        def __pos__(self):
            return "pos"

        def __invert__(self):
            return "invert"

        def __ifloordiv__(self, k):
            return ("ifloordiv", k)

        def __ior__(self, k):
            return ("ior", k)

        def __ilshift__(self, k):
            return ("ilshift", k)

    a = b = c = A()
    a //= 2
    b |= 3
    c <<= 4
    d = [1]
    e = d
    d += (2,)
    d *= 2
    return x + 1, a, b, c, +A(), ~A(), d, e is d


@table.snippet()
def operators_of_tensors(x, y):
    m = x > 0
    n = (x * 4).int()
    return x // y, x % y, x**2, 2**x, 1 / x, 7 // x, -x, +x, abs(x), m & (y > 0), m | m, m ^ m, ~m, n << 1, n >> 1, 3 - x, 5 % y, x @ y.T


# FX writes "-1 ** x" for (-1) ** x.
@table.snippet(args=lambda place: (torch.arange(2.0 + place),), recompiles=(1, 2))
def powers_of_negative_numbers(x):
    n = -3
    n **= x
    return (-1) ** x, (-2.5) ** x, (-2) ** x.shape[0] * x, (-0.0) ** x, pow(-2, x), x.__rpow__(-1), n, (-x) ** 2, -(x**2), 2**-x


@table.snippet()
def inplace_operators_of_tensors(x, y):
    z = x.clone()
    alias = z
    z += y
    z -= 1
    z *= 2
    z /= 3
    z **= 2
    n = 3
    n += z
    return z, alias is z, n, n is z


@table.snippet()
def chained_comparisons(x):
    log = []

    def note(v):
        log.append(v)
        return v

    return x * (note(1) < note(2) < note(3)), note(5) < note(4) < note(9), 1 < 2 != len(log) is not log, log


@table.snippet()
def operator_module(x):
    get = operator.itemgetter(1, 0)
    a = operator.attrgetter("shape", "dtype")(x)
    call = operator.methodcaller("sum", 0, keepdim=True)
    d = {"k": 1}
    operator.setitem(d, "k", operator.add(d["k"], 4))
    return get([x, x * 2]), a, call(x), operator.matmul(x, x.T), operator.neg(x), d, operator.contains(d, "k"), operator.index(7)


@table.snippet(args=lambda i: (Vec(t(i)), Vec(t(i + 1))))
def objects_with_operators_as_arguments(a, b):
    c = a + b
    c += 1
    c[0] = 0.0
    return c, -a, len(c), taken()


@table.snippet()
def getattr_does_not_serve_operators(x):
    class G:
        def __getattr__(self, name):
            return lambda *args: 100

    told = []
    for action in (lambda: G() + 1, lambda: len(G()), lambda: G()[0]):
        try:
            action()
        except TypeError as error:
            told.append(str(error))
    return x * 2, told


class Sized:
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size


class Bare:
    def __eq__(self, other):
        return True

    __hash__ = None


@table.snippet(args=lambda place: (t(place), Sized(np.int64(5 - place)), Sized(2.5), Sized(np.int64(-1))), recompiles=(1, 2), breaks=True, min_graphs=0)
def lengths_of_other_kinds_of_numbers(x, a, b, c):
    told = [len(a), bool(a), 1 if a else 0]
    for v in (b, c):
        try:
            told.append(len(v))
        except (TypeError, ValueError) as e:
            told.append(str(e))
    for fn in (abs, operator.abs):
        try:
            told.append(fn(Bare()))
        except TypeError as e:
            told.append(str(e))
    try:
        told.append(sorted([2, 1], key=lambda v: v, reverse=None))
    except TypeError as e:
        told.append(str(e))
    return x + 1, told


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_operators(program: Program, twin: str) -> None:
    check(program, twin)
