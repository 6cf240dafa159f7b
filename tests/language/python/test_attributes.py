"""Attribute protocols: __getattr__ and friends, __slots__, getattr, setattr, hasattr, vars."""

from __future__ import annotations

from collections.abc import Sized
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.oracle import Program, Table, check, t

table = Table()


@table.snippet()
def getattr_fallback(x):
    class G:
        real = 2

        def __getattr__(self, name):
            if name.startswith("times"):
                return lambda v: v * int(name[5:])
            raise AttributeError(f"no {name}")

    g = G()
    told = []
    try:
        g.other
    except AttributeError as error:
        told.append(str(error))
    return g.times3(x) + g.real, hasattr(g, "times9"), hasattr(g, "z"), getattr(g, "z", 5), told


@table.snippet()
def getattribute(x):
    log = []

    class G:
        k = 2

        def __init__(self):
            self.v = 3

        def __getattribute__(self, name):
            log.append(name)
            if name == "magic":
                return 10
            return super().__getattribute__(name)

        def f(self, v):
            return v * self.k + self.v + self.magic

    g = G()
    return g.f(x), log


@table.snippet()
def getattribute_then_getattr(x):
    class G:
        def __getattribute__(self, name):
            if name == "hidden":
                raise AttributeError(name)
            return object.__getattribute__(self, name)

        def __getattr__(self, name):
            return f"fallback for {name}"

    g = G()
    g.hidden = 1
    g.seen = 2
    return x * g.seen, g.hidden, g.__dict__["hidden"], g.absent


@table.snippet()
def setattr_and_delattr(x):
    class S:
        def __init__(self):
            object.__setattr__(self, "log", [])
            self.a = 1

        def __setattr__(self, name, value):
            self.log.append(("set", name))
            super().__setattr__(name, value)

        def __delattr__(self, name):
            self.log.append(("del", name))
            super().__delattr__(name)

    s = S()
    s.b = x * 2
    setattr(s, "c", 3)
    del s.a
    delattr(s, "c")
    return s.b, s.log, sorted(vars(s))


@table.snippet()
def slots(x):
    class S:
        __slots__ = ("a", "b")

        def __init__(self, a):
            self.a = a

    class T(S):
        __slots__ = ("c",)

    s = T(x)
    s.c = s.a * 2
    told = []
    for action in (lambda: s.b, lambda: setattr(s, "z", 1), lambda: s.__dict__):
        try:
            action()
        except AttributeError as error:
            told.append(str(error))
    del s.a
    return s.c, hasattr(s, "a"), told, s


@table.snippet()
def slots_with_dict(x):
    class A:
        __slots__ = ("a", "__dict__")

    a = A()
    a.a, a.b = x, x * 2
    return a.a + a.b, vars(a), A.a.__get__(a)


@table.snippet()
def getattr_with_defaults(x):
    class A:
        k = 2

    a = A()
    values = [getattr(a, name, default) for name, default in (("k", 0), ("z", 5), ("__class__", None))]
    try:
        getattr(a, "nope")
    except AttributeError as error:
        return x * values[0] + values[1], values, str(error), error.name, error.obj is a


@table.snippet()
def attributes_by_name(x):
    names = ["sin", "cos"]
    ns = SimpleNamespace()
    for name in names:
        setattr(ns, name, getattr(torch, name)(x) + getattr(x, name)())
    delattr(ns, "sin")
    return ns, hasattr(ns, "sin"), vars(ns) is ns.__dict__


@table.snippet()
def dict_of_an_instance(x):
    class A:
        def __init__(self):
            self.a = 1

    a = A()
    a.__dict__["b"] = x * 2
    a.__dict__.update(c=3)
    vars(a)["d"] = 4
    before = list(a.__dict__)
    a.__dict__ = {"only": x + 1}
    return a.only, before, hasattr(a, "b"), a


@table.snippet()
def dir_and_mro_reads(x):
    class A:
        def f(self): ...

    class B(A):
        g = 1

    b = B()
    b.own = x
    public = [name for name in dir(b) if not name.startswith("_")]
    return b.own * 2, public, B.__base__ is A, [c.__name__ for c in type(b).mro()], B.__dict__["g"], b.__class__ is B


@table.snippet()
def method_stored_on_the_instance(x):
    class A:
        def __init__(self):
            self.go = self.f
            self.k = 2

        def f(self, v):
            return v * self.k

    a = A()
    a.k = 5
    return a.go(x), a.go.__self__ is a


@table.program()
def proxy_from_outside() -> Any:
    class Proxy:
        def __init__(self, target):
            self.__dict__["_target"] = target

        def __getattr__(self, name):
            return getattr(self._target, name)

        def __setattr__(self, name, value):
            setattr(self._target, name, value)

    proxy = Proxy(SimpleNamespace(weight=t(3), last=None))

    def fn(x):
        proxy.last = x * proxy.weight
        return proxy.last + 1

    return fn, proxy


@table.program(recompiles=(1, 2))
def slots_from_outside() -> Any:
    class S:
        __slots__ = ("n", "last")

    s = S()
    s.n = 0

    def fn(x):
        s.n += 1
        s.last = x + s.n
        return s.last * 2

    return fn, s


@table.program(change={1: lambda s: setattr(s, "extra", 1), 2: lambda s: delattr(s, "extra")}, recompiles=(1,))
def hasattr_changes() -> Any:
    ns = SimpleNamespace(a=1)
    return (lambda x: x * (2 if hasattr(ns, "extra") else 3)), ns


@table.program(recompiles=(1, 2), breaks=True)
def watched_objects_everywhere() -> Any:
    log = []

    class Watched:
        def __init__(self, n):
            object.__setattr__(self, "n", n)

        def __getattribute__(self, name):
            log.append(name)
            return object.__getattribute__(self, name)

        def __rmul__(self, other):
            return other * self.n

        def __len__(self):
            return 2

        def __getitem__(self, i):
            if i > 1:
                raise IndexError(i)
            return self.n + i

        def __call__(self, x):
            return x + self.n

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return False

    w = Watched(3)

    def fn(x):
        made = Watched(4)
        for obj in (w, made):
            x = obj(x * obj)
            items = [*obj]
            a, b = obj
            found = obj in [1, obj], 3 in obj, obj == 3, not obj, len(obj)
            table = {"k": obj, obj: 1}
            log.append((items, a, b, found, table[obj], obj is table["k"], hash(obj) == hash(obj), callable(obj)))
            with obj as inner:
                log.append(inner is obj)
            obj.n += 1
            log.append(
                (
                    isinstance(obj, Watched),
                    isinstance(obj, (int, torch.Tensor)),
                    hasattr(obj, "n"),
                    getattr(obj, "no", 1),
                    type(obj) is Watched,
                )
            )
            match obj:
                case int():
                    log.append("int")
                case Watched(n=k):
                    log.append(k)
        return x, made, list(log)

    return fn, (log, w, Watched)


class Named:
    def __init__(self, n: int) -> None:
        self.n = n

    def method(self) -> int:
        return self.n

    method.mark = "m"  # type: ignore[attr-defined]


@table.snippet(args=lambda place: (t(place), place + 3, Named(place).method, place / 2), recompiles=(1, 2))
def attributes_of_numbers_and_bound_methods(x, n, method, r):
    numbers = [hasattr(v, "__next__") or hasattr(v, "real") or getattr(v, "missing", v) for v in (n, r)]
    return x * method(), numbers, hasattr(method, "__next__"), method.mark, getattr(method, "missing", 3), method.__name__


class Refusing:
    def __get__(self, obj, cls):
        raise AttributeError("refused", cls.__name__)


class RefusingData(Refusing):
    def __set__(self, obj, value): ...


class Asks(type):
    given = RefusingData()

    @property
    def width(cls):
        raise AttributeError("no width")

    def __getattr__(cls, name):
        return f"{name} of the class"


class Asked(metaclass=Asks):
    __slots__ = ("__dict__", "slot")
    plain, data = Refusing(), RefusingData()
    unreadable = property()

    @property
    def width(self):
        return self.missing_inside

    def __getattr__(self, name):
        if name == "missing_inside":
            raise AttributeError(name)
        return len(name)


@table.snippet()
def getattr_after_what_the_class_raises(x):
    obj, late = Asked(), Asked()
    late.plain = late.slot = 2
    found = [obj.plain, obj.data, obj.unreadable, obj.width, obj.slot, hasattr(obj, "width"), getattr(obj, "data", 0), late.plain, late.slot]
    return x * obj.width, found, Asked.plain, Asked.data, Asked.given, Asks("Other", (), {}).width, vars(obj)


class Sized(torch.nn.Module):
    @property
    def size(self):
        return self.nothing

    @property
    def scale(self):
        raise AttributeError("not that one")

    @property
    def kept(self):
        raise AttributeError("read from the parameters")


@table.program()
def properties_of_modules_that_raise() -> Any:
    net = Sized()
    net._parameters["kept"] = torch.nn.Parameter(t(3))

    def fn(x):
        said = []
        for name in ("size", "scale"):
            try:
                getattr(net, name)
            except AttributeError as e:
                said += [str(e), e.__context__]
        return x * net.kept, said, hasattr(net, "size"), getattr(net, "scale", 4)

    return fn, net


@table.program(breaks=True, min_graphs=0)
def a_traced_module_in_another() -> Any:
    net = torch.nn.Sequential(torch.jit.trace(torch.nn.Linear(4, 2), t(0)), torch.nn.ReLU())
    with torch.no_grad():
        for p in net.parameters():
            p.fill_(0.5)
    return lambda x: net(x) * 2


class AsksObjectFirst(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.missed = torch.nn.Linear(3, 3), []

    def __getattribute__(self, name):
        try:
            return object.__getattribute__(self, name)
        except AttributeError:
            object.__getattribute__(self, "missed").append(name)
            raise


@table.program()
def parameters_that_object_does_not_find() -> Any:
    net, linear = AsksObjectFirst(), torch.nn.Linear(3, 3)

    def fn(x):
        try:
            object.__getattribute__(linear, "weight")
        except AttributeError as e:
            said = str(e)
        return net.inner(x) + object.__getattribute__(linear, "in_features"), said, list(net.missed)

    return fn, net


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_attributes(program: Program, twin: str) -> None:
    check(program, twin)
