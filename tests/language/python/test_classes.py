"""Classes: defined inside, inherited, super, MRO, metaclasses, __init_subclass__, __set_name__, instances as state."""

from __future__ import annotations

import abc
import collections
import types
import typing
from typing import Any

import pytest
import torch

import fineline
from tests.oracle import Program, Table, check

table = Table()


class Base:
    scale = 2

    def __init__(self, value: Any) -> None:
        self.value = value

    def out(self, x: Any) -> Any:
        return x * self.scale + self.value

    def kind(self) -> str:
        return type(self).__name__


class Left(Base):
    def out(self, x: Any) -> Any:
        return super().out(x) + 10


class Right(Base):
    scale = 3

    def out(self, x: Any) -> Any:
        return super().out(x) * 2


class Both(Left, Right):
    def __init__(self, value: Any, extra: Any) -> None:
        super().__init__(value)
        self.extra = extra

    def out(self, x: Any) -> Any:
        return super().out(x) + self.extra


@table.snippet()
def class_defined_inside(x):
    class Local:
        size = len(x)

        def __init__(self, v):
            self.v = v

        def double(self):
            return self.v * 2

    local = Local(x)
    return local.double(), Local.size, local.size


@table.snippet()
def class_returned_with_its_instance(x):
    class Local:
        log: list[Any] = []

        def __init__(self, v):
            self.v = v + 1
            self.log.append(len(self.log))

    a, b = Local(x), Local(x * 2)
    return Local, a, b, type(a) is Local


@table.snippet()
def cooperative_super(x):
    both = Both(1, 5)
    return both.out(x), both.kind(), [c.__name__ for c in Both.__mro__], isinstance(both, Right), issubclass(Both, Left)


@table.snippet()
def instances_of_module_classes(x):
    objects = [Base(x), Left(2), Right(x + 1)]
    return [o.out(x) for o in objects], objects


@table.snippet()
def super_in_many_forms(x):
    class A:
        tag = "a"

        def f(self, v):
            return v + 1

        @classmethod
        def make(cls, v):
            return cls, v

        @property
        def p(self):
            return 7

    class B(A):
        tag = "b"

        def f(self, v):
            return super(B, self).f(v) * 2, super().tag, super().p

        @classmethod
        def make(cls, v):
            return super().make(v * 2)

        def nested(self, v):
            return [super(B, self).f(w) for w in (v, v + 1)]

    b = B()
    cls, y = B.make(x)
    return b.f(x), cls is B, y, b.nested(x), super(B, b).f(x), super(B, B).make(x)[1]


@table.snippet(breaks=1)
def class_alive_at_a_break(x):
    class Local:
        made = 0

        def __init__(self, v, k=2):
            self.v = v * k
            type(self).made += 1

        @property
        def both(self):
            return self.v + self.made

        @staticmethod
        def kind():
            return Local

        @classmethod
        def again(cls, v):
            return cls(v, k=3)

    class Child(Local):
        def __init__(self, v):
            super().__init__(v + 1)

    a = Local(x)
    torch._dynamo.graph_break()
    b, c = Child(a.both), a.again(x)
    return b.both, c.both, Local.made, type(b) is Child, isinstance(b, Local), a.kind() is Local, Child.__mro__[1] is Local, b, Child


@table.snippet(breaks=1)
def tuple_class_made_inside(x):
    Pair = collections.namedtuple("Pair", "left right", defaults=[2])
    pair = Pair(x)
    return pair.left * pair.right, pair._fields, pair._replace(right=3), isinstance(pair, Pair)


@table.snippet(breaks=1)
def slots_alive_at_a_break(x):
    class Local:
        __slots__ = ("a", "b")

        def __init__(self, a):
            self.a = a

    obj = Local(x * 2)
    torch._dynamo.graph_break()
    obj.b = obj.a + 1
    return obj.b, obj.a, hasattr(obj, "b"), obj


def _fails(call):
    try:
        return call()
    except (RuntimeError, TypeError, AttributeError) as error:
        return type(error), str(error)


@table.snippet()
def super_whose_arguments_are_gone(x):
    return x * 2, _fails(lambda: Obscure().deleted()), _fails(lambda: Obscure().held_deleted()), _fails(lambda: Obscure.of_a_cell(CELL)), Obscure().held()


class Obscure:
    def deleted(self):
        del self
        super()

    def held_deleted(self):
        del self
        super()
        return lambda: self

    def held(self):
        bound = super()
        return type(bound.__self__), (lambda: self)() is bound.__self__

    def of_a_cell(self):
        super()


CELL = types.CellType(Obscure())


@table.program()
def super_whose_class_is_gone():
    class Emptied:
        def f(self, x):
            nonlocal __class__
            del __class__
            return x * 2, _fails(lambda: self.g())

        def g(self):
            super()

    class Replaced:
        def f(self, x):
            nonlocal __class__
            __class__ = 3
            return x * 2, _fails(lambda: self.g())

        def g(self):
            super()

    def both(x):
        return Emptied().f(x) if x.requires_grad else Replaced().f(x)

    return both


@table.snippet()
def super_without_cell(x):
    def f(self):
        return super().f()

    class A:
        g = f

    try:
        A().g()
    except RuntimeError as error:
        return x * 2, str(error)


@table.snippet()
def metaclass(x):
    class Meta(type):
        def __new__(mcs, name, bases, space, **options):
            space["added"] = options.get("k", 1)
            return super().__new__(mcs, name, bases, space)

        def __init__(cls, name, bases, space, **options):
            super().__init__(name, bases, space)
            cls.registered = name.lower()

        def __call__(cls, *args):
            made = super().__call__(*args)
            made.stamped = True
            return made

        @property
        def shout(cls):
            return cls.__name__.upper()

        def __len__(cls):
            return 5

    class Thing(metaclass=Meta, k=4):
        def __init__(self, v):
            self.v = v

    thing = Thing(x)
    return thing.v * thing.added, Thing.registered, thing.stamped, Thing.shout, len(Thing), type(Thing).__name__


@table.snippet()
def prepare(x):
    order = []

    class Space(dict):
        def __setitem__(self, key, value):
            order.append(key)
            super().__setitem__(key, value)

    class Meta(type):
        @classmethod
        def __prepare__(mcs, name, bases):
            return Space()

    class C(metaclass=Meta):
        a = 1
        b = 2

    return x * C.b, [key for key in order if not key.startswith("__")]


@table.snippet()
def init_subclass_and_set_name(x):
    class Field:
        def __set_name__(self, owner, name):
            self.name = f"{owner.__name__}.{name}"

    class Plugin:
        found: dict[str, Any] = {}

        def __init_subclass__(cls, /, key=None, **rest):
            super().__init_subclass__(**rest)
            cls.found[key or cls.__name__] = cls

    class One(Plugin, key="one"):
        field = Field()

    class Two(One):
        other = Field()

    return x * len(Plugin.found), list(Plugin.found), One.field.name, Two.other.name


@table.snippet()
def class_body_scopes(x):
    k = 3

    class C:
        k = k + 1
        values = [k for _ in range(2)]
        doubled = [v * 2 for v in values]

        def m(self):
            return k

        if k > 100:
            never = 1
        else:
            always = x * k

    return C.always, C.values, C.doubled, C().m(), "never" in vars(C), C.__qualname__


@table.snippet()
def class_made_by_type(x):
    C = type("Made", (Base,), {"scale": 5, "extra": lambda self, v: v - self.scale})
    c = C(1)
    return c.out(x), c.extra(x), C.__name__, C.__bases__


@table.snippet()
def class_attribute_written(x):
    class Counter:
        total = 0

        def hit(self, v):
            type(self).total += 1
            self.own = self.total * 2
            return v * self.own

    a, b = Counter(), Counter()
    return a.hit(x), b.hit(x), Counter.total, a.own, vars(b)


@table.snippet()
def new_and_init(x):
    class Once:
        made: dict[Any, Any] = {}

        def __new__(cls, key, v):
            if key not in cls.made:
                cls.made[key] = super().__new__(cls)
            return cls.made[key]

        def __init__(self, key, v):
            self.v = v

    a, b, c = Once("k", x), Once("k", x + 1), Once("z", x)
    return a is b, a is c, a.v * 2


@table.snippet()
def new_returns_something_else(x):
    class Odd:
        def __new__(cls, v):
            return v * 2

        def __init__(self, v):
            raise AssertionError("not called")

    return Odd(x)


@table.snippet()
def abstract_classes(x):
    class Shape(abc.ABC):
        @abc.abstractmethod
        def area(self, v): ...

        def twice(self, v):
            return self.area(v) * 2

    class Square(Shape):
        def area(self, v):
            return v * v

    try:
        Shape()
    except TypeError as error:
        return Square().twice(x), str(error)


Item = typing.TypeVar("Item")


@table.snippet(breaks=True)
def aliases_of_generic_classes(x):
    class Box(typing.Generic[Item]):
        pass

    alias, again = Box[int], Box[int]
    kept = typing.List[Item], typing.Optional[int]
    return x + 1, alias is again, alias.__origin__ is Box, kept, isinstance(Box[str](), Box)


@table.snippet(breaks=True)
def generic_and_annotations(x):
    from typing import Generic, TypeVar

    T = TypeVar("T")

    class Box(Generic[T]):
        item: T
        count: int = 0

        def __init__(self, item: T) -> None:
            self.item = item

    box = Box[int](x)
    return box.item * 2, Box.__annotations__, type(box) is Box


@table.snippet()
def class_decorators(x):
    def registered(k):
        def wrap(cls):
            cls.k = k
            return cls

        return wrap

    @registered(4)
    class C:
        def f(self, v):
            return v * self.k

    return C().f(x), C.k


@table.snippet()
def class_changed_after_instances(x):
    class C:
        def f(self, v):
            return v

    c = C()
    before = c.f(x)
    C.f = lambda self, v: v * 2
    middle = c.f(x)
    c.f = lambda v: v * 3
    after = c.f(x)
    del c.f, C.f
    return before, middle, after, hasattr(c, "f")


@table.snippet()
def dunder_class_assigned(x):
    class A:
        def f(self, v):
            return v + 1

    class B:
        def f(self, v):
            return v + 2

    a = A()
    one = a.f(x)
    a.__class__ = B
    return one, a.f(x), type(a).__name__


@table.program(recompiles=(1, 2))
def state_on_an_instance_from_outside() -> Any:
    obj = Base(0)

    def fn(x):
        obj.value += 1
        obj.last = x * obj.value
        return obj.out(x)

    return fn, obj


@table.program(change={1: lambda s: setattr(s[0], "scale", 9), 2: lambda s: delattr(s[0], "scale")}, recompiles=(1,))
def instance_attribute_shadows_the_class() -> Any:
    obj = Left(1)
    return (lambda x: obj.out(x)), (obj,)


@table.program(recompiles=(1,))  # the list is empty before the first call
def tensors_kept_on_an_instance() -> Any:
    class Ema:
        def __init__(self) -> None:
            self.mean = torch.zeros(3, 4)
            self.history: list[Any] = []

        def update(self, x):
            self.mean = self.mean * 0.9 + x * 0.1
            self.history.append(self.mean)
            self.history = self.history[-1:]
            return self.mean.sum()

    ema = Ema()
    return ema.update, ema


@table.program()
def instances_made_and_linked() -> Any:
    class Node:
        def __init__(self, value, parent=None):
            self.value, self.parent, self.children = value, parent, []
            if parent is not None:
                parent.children.append(self)

    def fn(x):
        root = Node(x)
        for k in range(2):
            Node(x * k, Node(x + k, root))
        return root

    return fn


@table.program(change={1: lambda s: s[1](), 2: lambda s: s[2]()}, recompiles=(1,))
def method_patched_on_the_class() -> Any:
    class C:
        def f(self, v):
            return v + 1

    c, old = C(), C.f

    def patch():
        C.f = lambda self, v: v + 100  # type: ignore[method-assign]

    def restore():
        C.f = old  # type: ignore[method-assign]

    return (lambda x: c.f(x)), (c, patch, restore)


@table.snippet(breaks=True, calls=3, min_graphs=0)
def methods_of_c_bound_to_classes(x):
    """Each call has classes of its own, and so have methods of C's that are bound to them."""

    class First(dict):
        pass

    class Second(First):
        pass

    class Number(int):
        pass

    make, mro = Second.fromkeys, Second.mro
    print("k")
    found = type(make([1])) is Second, mro() == [Second, First, dict, object], First.__subclasses__() == [Second]
    return x + 1, found, type(Number.from_bytes(b"a", "big")) is Number


@table.snippet(calls=3)
def bases_written_to(x):
    class Base:
        z = 1

    class Derived(Base):
        pass

    class Other:
        z = "other"

    one = Derived()
    found = [one.z]
    Base.z = 2
    found.append(one.z)
    Base.w = property(lambda self: 5)
    found.append(one.w)
    del Base.w
    found.append(hasattr(one, "w"))
    Base.__len__ = lambda self: 0
    found.append(bool(one))
    del Base.__len__
    Base.__add__ = lambda self, other: "added"
    found += [bool(one), one + 1]
    Derived.__bases__ = (Other,)
    found += [one.z, isinstance(one, Base), isinstance(one, Other)]
    return x + 1, found


class BasesSeen:
    def __init__(self):
        self.seen = []

    def __mro_entries__(self, bases):
        self.seen.append(bases)
        return (dict,)


@table.snippet()
def bases_are_given_as_a_tuple(x):
    base = BasesSeen()

    class Made(base):
        pass

    return x + 1, type(base.seen[0]), len(base.seen[0]), Made.__bases__, Made.__orig_bases__[0] is base


@table.program(calls=5, breaks=True, recompiles=(1,), change={k: lambda state: state.update(on=not state["on"]) for k in (1, 2, 3)})
def bodies_that_decide_what_is_in_the_class() -> Any:
    state = {"on": True}

    def fn(x):
        class Local(abc.ABC):
            scale = 2
            if state["on"]:
                __slots__ = ("value",)
                scale = 3
            else:

                @abc.abstractmethod
                def method(self): ...

        y = x * Local.scale
        try:
            Local().value = y + 1
        except TypeError as e:
            return y, str(e), sorted(Local.__abstractmethods__)
        return y, "__dict__" in dir(Local)

    return fn, state


def test_where_a_class_breaks_the_graph() -> None:
    class Meta(type):
        pass

    def fn(x):
        y = x + 1

        class Local(metaclass=Meta):
            value = 2

            def method(self, v):
                return v * self.value

        return Local().method(y)

    told = fineline.explain(fn)(torch.ones(2))
    reason = "the class Local is made: it has a metaclass, or keyword arguments"
    assert [(b.id, b.reason) for b in told.breaks] == [("FL423", reason)] and told.graph_count == 2
    with pytest.raises(fineline.errors.Unsupported, match="FL423") as refused:
        fineline.compile(fn, backend="eager", fullgraph=True)(torch.ones(2))
    assert refused.value.where == f"{__file__}:{fn.__code__.co_firstlineno + 3}"


class Printed:
    def __init__(self, n):
        self.n = n

    def __repr__(self):
        return f"Printed({self.n!r})"


class PrintedTwice(Printed):
    def __str__(self):
        return f"<{self.n}>"


class Formatted(Printed):
    def __format__(self, spec):
        return f"{spec} {self.n}"


@table.program(options={"fullgraph": True}, recompiles=(2,), change={2: lambda state: setattr(state[0], "n", 8)})
def formats_of_objects() -> Any:
    held = [Printed(7)]

    def fn(x):
        texts = (f"{Printed(1)} {PrintedTwice('a')} {PrintedTwice('a')!r} {Formatted(2):x} {Formatted(2)}", format(Printed(3)), format(held[0], ""))
        return x * 2, texts, f"{held[0]}"

    return fn, held


@table.snippet(breaks=True)
def format_of_an_object_that_has_none(x):
    y = x * 2
    try:
        return f"{Printed(1):>3}"
    except TypeError as e:
        return y, str(e)


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_classes(program: Program, twin: str) -> None:
    check(program, twin)
