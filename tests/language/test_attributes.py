"""Attribute protocols: properties, descriptors, __getattr__ and friends, __slots__, getattr, setattr, hasattr, vars."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sized
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.oracle import Program, Table, check, t

table = Table()


class Data:
    """A data descriptor that keeps its values on the instance, and notes each access."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = "_" + name

    def __get__(self, obj: Any, owner: Any = None) -> Any:
        if obj is None:
            return self
        obj.log.append("get")
        return obj.__dict__[self.name]

    def __set__(self, obj: Any, value: Any) -> None:
        obj.log.append("set")
        obj.__dict__[self.name] = value

    def __delete__(self, obj: Any) -> None:
        obj.log.append("del")
        del obj.__dict__[self.name]


class Lazy:
    """Not a data descriptor: an instance attribute hides it."""

    def __get__(self, obj: Any, owner: Any = None) -> Any:
        return ("lazy", obj is None, owner.__name__)


class Host:
    data = Data()
    lazy = Lazy()

    def __init__(self, value: Any) -> None:
        self.log: list[str] = []
        self.data = value


@table.snippet()
def properties(x):
    class P:
        def __init__(self, v):
            self._v = v
            self.reads = 0

        @property
        def v(self):
            self.reads += 1
            return self._v

        @v.setter
        def v(self, value):
            self._v = value * 2

        @v.deleter
        def v(self):
            self._v = None

    p = P(x)
    a = p.v + 1
    p.v = a
    b = p.v
    p.v += 1
    c = p.v
    del p.v
    return a, b, c, p.v, p.reads


@table.snippet()
def property_without_setter(x):
    class P:
        v = property(lambda self: 3)

    p = P()
    try:
        p.v = 4
    except AttributeError as error:
        return x * p.v, str(error)


@table.snippet()
def data_descriptors(x):
    host = Host(x)
    host.__dict__["data"] = "hidden by the descriptor"
    y = host.data * 2
    host.data = y
    del host.data
    try:
        host.data
    except KeyError as error:
        return y, host.log, error.args, type(Host.data).__name__


@table.snippet()
def descriptors_without_set(x):
    host = Host(1)
    before = host.lazy
    host.lazy = "own"
    own = host.lazy
    del host.lazy
    return x * 2, before, own, host.lazy, Host.lazy


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
def cached_property(x):
    class C:
        computed = 0

        def __init__(self, v):
            self.v = v

        @functools.cached_property
        def double(self):
            self.computed += 1
            return self.v * 2

    c = C(x)
    y = c.double + c.double
    c.v = x * 100
    same = c.double is c.__dict__["double"]
    del c.double
    return y, c.double, c.computed, same


@table.snippet()
def classmethod_property_chain(x):
    class C:
        k = 3

        @classmethod
        @property
        def p(cls):
            return cls.k

        @staticmethod
        def s():
            return C

    return x * C.p, C().p, C.s() is C, C.__dict__["s"].__func__()


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
def descriptor_called_by_hand(x):
    class A:
        def f(self, v):
            return v + self.k

    a = A()
    a.k = 4
    f = A.__dict__["f"].__get__(a, A)
    return f(x), f == a.f, f is a.f


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


@table.program(change={1: lambda a: setattr(a, "k", 5), 2: lambda a: delattr(a, "k")}, recompiles=(1,))
def property_from_outside() -> Any:
    class A:
        k = 2

        @property
        def factor(self):
            return self.k + 1

    a = A()
    return (lambda x: x * a.factor), a


@table.program(recompiles=(1,))
def descriptor_writes_from_outside() -> Any:
    host = Host(0)

    def fn(x):
        host.data = x * 2
        host.log.clear()
        return host.data + 1

    return fn, host


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


@table.program()
def class_by_property() -> Any:
    log = []

    class Posing:
        @property
        def __class__(self):
            log.append("asked")
            return int

    class Silent:
        def __getattribute__(self, name):
            log.append(name)
            if name == "__class__":
                raise AttributeError(name)
            return super().__getattribute__(name)

    def fn(x):
        p, s = Posing(), Silent()
        answers = [isinstance(o, k) for o in (p, s) for k in (int, Posing, str, (str, int), Iterable, Sized, object)]
        y = torch.stack([x, x]) if isinstance(p, (torch.Tensor, int)) else x
        return y, answers, type(p) is Posing

    return fn, log


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


class Positive:
    """A descriptor without `__get__`: what it writes is read from the instance's dict."""

    def __set_name__(self, owner, name):
        self.name = name

    def __set__(self, obj, value):
        if value < 0:
            raise ValueError(self.name)
        obj.__dict__[self.name] = value * 10


class OnlyDeleted:
    def __delete__(self, obj):
        obj.log.append("deleted")


class WrittenAndDeleted:
    def __set__(self, obj, value):
        obj.__dict__["third"] = value

    def __delete__(self, obj):
        del obj.__dict__["third"]


class WithoutGet:
    first, second, third = Positive(), OnlyDeleted(), WrittenAndDeleted()

    def __init__(self):
        self.log = []


@table.snippet(args=lambda place: (t(place), place + 1), recompiles=(1, 2))
def descriptors_without_get(x, n):
    obj, found = WithoutGet(), []
    for name, value in (("first", n), ("first", -n), ("second", n), ("third", n)):
        try:
            setattr(obj, name, value)
        except Exception as e:
            found.append((type(e).__name__, str(e)))
    del obj.second
    found += [obj.first, isinstance(obj.second, OnlyDeleted), obj.third]
    del obj.third
    try:
        del obj.first
    except Exception as e:
        found.append((type(e).__name__, str(e)))
    return x * obj.first, found, isinstance(obj.third, WrittenAndDeleted), obj.log, obj.__dict__


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


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_attributes(program: Program, twin: str) -> None:
    check(program, twin)
