"""Special methods that are no plain functions, and what is said of objects and calls that lack what is asked of them."""

from __future__ import annotations

import copy
import functools
import sys
import types

import pytest

import fineline
from tests.oracle import Program, Table, check

table = Table()


class Adder:
    """A callable object: as a class attribute it does not bind."""

    def __init__(self, amount):
        self.amount = amount

    def __call__(self, *args):
        return self.amount, args


class Giving:
    """A descriptor written in Python, whose value is called in the place of a special method."""

    def __get__(self, obj, owner):
        return lambda *args: (type(obj).__name__, owner.__name__, args)


noted = []


class OfManyForms:
    __add__ = staticmethod(lambda other: ("static", other))
    __sub__ = classmethod(lambda cls, other: (cls.__name__, other))
    __mul__ = Adder(3)
    __truediv__ = Giving()
    __iadd__ = staticmethod(lambda other: ("in place", other))
    __eq__ = Adder(1)
    __hash__ = None
    __neg__ = functools.partialmethod(lambda self, sign: (type(self).__name__, sign), "-")
    __getitem__ = staticmethod(lambda key: key * 2)
    __setitem__ = staticmethod(lambda key, value: noted.append((key, value)))
    __delitem__ = classmethod(lambda cls, key: noted.append((cls.__name__, key)))
    __call__ = staticmethod(lambda v: v + 1)
    __len__ = staticmethod(lambda: 3)
    __contains__ = classmethod(lambda cls, item: item == 3)
    __enter__ = staticmethod(lambda: "entered")
    __exit__ = Adder(0)


@table.snippet(max_graphs=8, breaks=True)
def special_methods_of_many_forms(x):
    o = OfManyForms()
    found = [o + 1, o - 2, o * 4, o / 5, -o, o[6], len(o), 3 in o, 4 in o, bool(o)]
    del noted[:]
    p = o
    p += 1
    found += [p, o == 2, o != 3, o in [4]]
    o[7] = 8
    del o[9]
    with o as entered:
        y = o(x)
    return y * 2, found, entered, noted[:]


def call(fn, *args):
    try:
        return fn(*args)
    except Exception as e:
        return type(e), str(e)


class Counting:
    """What a special method gives depends on this very object."""

    def __init__(self):
        self.calls = 0

    def __call__(self, *args):
        self.calls += 1
        return self.calls


@table.program(calls=4, max_graphs=4, breaks=True, recompiles=(1,))
def special_methods_with_a_state():
    class Counted:
        __neg__ = Counting()
        __add__ = Counting()
        __getitem__ = Counting()

    def fn(x):
        o = Counted()
        return x * -o, o + 1, o[2], Counted.__neg__.calls

    return fn


class CalledByClass:
    __call__ = classmethod(lambda cls, v: (cls.__name__, v))


class CalledByObject:
    __call__ = Adder(5)


class CalledByProperty:
    @property
    def __call__(self):
        return lambda v: v * 3


@table.snippet(max_graphs=4, breaks=True)
def callables_of_many_forms(x):
    return CalledByClass()(x), CalledByObject()(x), CalledByProperty()(x) + 1


class Judge(type):
    def __instancecheck__(cls, obj):
        return [obj] if obj == 3 else []

    def __subclasscheck__(cls, other):
        return other is int


class Judged(metaclass=Judge):
    pass


@table.snippet(max_graphs=8, breaks=True)
def checks_of_a_metaclass(x):
    found = [isinstance(3, Judged), isinstance(4, Judged), isinstance(3, (str, Judged)), issubclass(int, Judged), issubclass(str, (Judged, list))]
    return x + sum(found), found


class Watching(type):
    def __getattribute__(cls, name):
        if name.startswith("made_"):
            return name[5:]
        return super().__getattribute__(name)


class Watched(metaclass=Watching):
    plain = 2


@table.snippet(max_graphs=4, breaks=True)
def attributes_by_a_metaclass(x):
    return x * Watched.plain, Watched.made_up, call(getattr, Watched, "missing"), hasattr(Watched, "made_of"), hasattr(Watched, "lost")


class Wrapped:
    of_object = classmethod(Adder(7))
    of_partial = classmethod(functools.partial(lambda *args: args, 1))
    of_descriptor = classmethod(Giving())
    of_builtin = classmethod(len)


@table.snippet(max_graphs=4, breaks=True)
def class_methods_of_many_forms(x):
    # Python 3.13 calls no `__get__` of what a class method wraps: the last two differ there.
    found = Wrapped.of_object(1), Wrapped().of_object(2), Wrapped.of_partial(3), call(lambda: Wrapped().of_descriptor(4))
    return x + 1, found, call(Wrapped.of_builtin), type(Wrapped.of_descriptor)


@table.snippet(breaks=True)
def a_class_method_over_a_break(x):
    kept = Wrapped.of_descriptor
    fineline.graph_break()
    return x + 1, call(kept, 4), type(kept)


class Copied:
    def __init__(self, v, log):
        self.v, self.log = v, log

    def __copy__(self):
        self.log.append("copy")
        return Copied(self.v + 1, self.log)

    def __deepcopy__(self, memo):
        self.log.append(("deepcopy", type(memo)))
        return Copied(self.v * 2, self.log)


@table.snippet(max_graphs=4, breaks=True)
def copies_by_its_own_methods(x):
    log = []
    one = Copied(x, log)
    return copy.copy(one).v, copy.deepcopy(one).v, log


module = types.ModuleType("made")
module.plain = 2


def find(name):
    if name == "found":
        return module.plain + 3
    raise AttributeError(f"no {name}")


module.__getattr__ = find


@table.snippet()
def a_module_that_makes_names(x):
    return module.plain + x, module.found, call(getattr, module, "lost"), getattr(module, "lost", 5), hasattr(module, "found")


class Returning:
    def __init__(self, v):
        return v


class Another:
    def __new__(cls, v):
        return [v]

    def __init__(self, v):
        raise AssertionError("not called")


@table.snippet(max_graphs=4, breaks=True)
def classes_that_make_something_else(x):
    return call(Returning, 3), Another(x)[0] + 1, call(Returning, None) is not None


@table.snippet(max_graphs=9, breaks=True)
def calls_that_are_refused(x):
    said = [
        call(lambda: getattr(x, 1)),
        call(lambda: hasattr(x, 1)),
        call(lambda: getattr(x, name="shape")),
        call(lambda: setattr(types.SimpleNamespace(), 2, 3)),
        call(lambda: {**[1]}),
        call(lambda: dict(**3)),
        call(lambda: max(**{1: 2})),
        call(lambda: len()),
        call(lambda: print(*3)),
    ]
    return x + 1, said


@table.snippet(breaks=True)
def keywords_that_are_no_names(x):
    print(end="", *[], **{"sep": ""})
    return x + 1, call(lambda: print(**{"a b": 1})), call(lambda: types.SimpleNamespace(**{"a b": x}))


class NoExit:
    def __enter__(self):
        return self


@table.snippet()
def statements_that_are_refused(x):
    def no_manager():
        with 3:
            pass

    def half_a_manager():
        with NoExit():
            pass

    def no_cause():
        raise ValueError("v") from 3

    def no_exception():
        raise 3

    def no_handler():
        try:
            raise ValueError("v")
        except 3:
            pass

    def no_group():
        try:
            raise ValueError("v")
        except* 3:
            pass

    def a_group():
        try:
            raise ValueError("v")
        except* ExceptionGroup:
            pass

    def no_iterable():
        for _ in 3:
            pass

    def no_pattern():
        match x:
            case call():
                pass

    def unbound():
        del y
        y = 1
        return y

    fns = (no_manager, half_a_manager, no_cause, no_exception, no_handler, no_group, a_group, no_iterable, no_pattern, unbound)
    return x + 1, [call(fn) for fn in fns]


class Sub:
    """An iterator with some of a generator's methods."""

    def __init__(self, log):
        self.log, self.left = log, 3

    def __iter__(self):
        return self

    def __next__(self):
        self.left -= 1
        if self.left < 0:
            raise StopIteration("ended")
        return self.left

    def send(self, v):
        self.log.append(("sent", v))
        return next(self)

    def close(self):
        self.log.append("closed")


def delegating(sub, log):
    try:
        log.append((yield from sub))
    except BaseException as e:
        log.append(type(e))
        raise


@table.snippet(max_graphs=4, breaks=True)
def yields_from_what_is_no_generator(x):
    log = []
    one = delegating(Sub(log), log)
    got = [next(one), one.send(5), call(one.throw, ValueError("thrown"))]
    two = delegating(Sub(log), log)
    got += [next(two), two.close(), list(delegating(Sub(log), log))]
    three = delegating(iter([1, 2]), log)
    got += [next(three), call(three.send, 6), call(delegating(iter([1]), log).send, 7)]
    return x + 1, got, log


# From Python 3.12 on, Python warns about the arguments of `throw`, at each call.
@table.snippet(breaks=sys.version_info >= (3, 12), recompiles=(1, 2) if sys.version_info >= (3, 12) else ())
def a_generator_that_asks_itself(x):
    def asking():
        yield call(next, me)
        yield x

    me = asking()
    return x + 1, [*me], call(me.throw, ValueError, ValueError("made")), call(me.throw, KeyError("of"))


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_special_lookups(program: Program, twin: str) -> None:
    check(program, twin)
