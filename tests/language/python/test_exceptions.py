"""try, except, else, finally, raise from, bare raise, implicit context, groups, assert. (PYTEST_DONT_REWRITE: asserts are Python's own.)"""

from __future__ import annotations

import contextlib
import signal
import sys
from typing import Any

import pytest
import torch

from tests.oracle import Program, Table, check, t

table = Table()


class Custom(Exception):
    def __init__(self, text: str, payload: Any = None) -> None:
        super().__init__(text)
        self.payload = payload


class Sub(Custom):
    pass


class AnswersItself(type):
    def __subclasscheck__(cls, subclass):
        raise AssertionError("asked")

    __instancecheck__ = __subclasscheck__


class Answered(Exception, metaclass=AnswersItself):
    pass


@table.snippet()
def no_metaclass_is_asked_what_a_clause_catches(x):
    try:
        raise KeyError(1)
    except (Answered, ValueError):
        return x + 2
    except KeyError as error:
        return x + 1, error.args


@table.snippet()
def cycles_of_contexts(x):
    def cycle(n):
        first = ValueError(n)
        last = first
        for k in range(n):
            new = KeyError(k)
            new.__context__ = last
            last = new
        first.__context__ = last
        try:
            raise first
        except ValueError:
            raise TypeError(n)

    found = []
    for n in range(3):
        try:
            cycle(n)
        except TypeError as error:
            first = error.__context__
            found += [repr(error), repr(first), first is error.__context__.__context__, type(first.__context__)]
            first.__context__ = None
    return x + 1, found


@table.snippet()
def the_group_around_one_exception(x):
    found = []
    try:
        raise ValueError(x.dim())
    except* ValueError as group:
        found += [group.args, repr(group), len(group.exceptions)]
    return x + 1, found


@table.snippet()
def caught_by_type(x):
    try:
        raise Sub("no", x * 2)
    except Custom as error:
        return error.payload + 1, str(error)


ASKED: list[str] = []


class Watching(Exception):
    """Sees every attribute that is read or set, and tells who asks for its text."""

    def __getattribute__(self, name: str) -> Any:
        ASKED.append(f"read {name}")
        return super().__getattribute__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        ASKED.append(f"set {name}")
        super().__setattr__(name, value)

    def __str__(self) -> str:
        ASKED.append("text")
        return "watching"


class WatchingStop(Watching, StopIteration):
    pass


@table.program(change=dict.fromkeys(range(3), lambda _: ASKED.clear()))
def exceptions_that_see_their_attributes_read() -> Any:
    def delegating(x):
        try:
            yield x
        except Watching as error:
            raise ValueError("inside") from error

    class Steps:
        def __iter__(self):
            return self

        def __next__(self):
            raise WatchingStop

    def fn(x):
        told = []
        try:
            try:
                raise Watching("a", 1)
            except Watching as first:
                try:
                    raise Watching("b") from first
                finally:
                    told.append(len(ASKED))
        except Watching as second:
            told.append(second.__cause__.args)
            kept = second
        generator = delegating(x)
        next(generator)
        try:
            generator.throw(kept)
        except ValueError as error:
            told.append(error.__cause__ is kept)
        told.append([*Steps()])
        try:
            raise ExceptionGroup("g", [kept, ValueError(1)])
        except* Watching as group:
            told.append(len(group.exceptions))
        except* ValueError:
            told.append("other")
        with contextlib.suppress(Watching):
            raise kept
        return x + 1, told, kept, sys.exc_info()

    return fn, ASKED


@table.program(change=dict.fromkeys(range(3), lambda _: ASKED.clear()), min_graphs=0)
def watching_exception_that_escapes() -> Any:
    def fn(x):
        y = x * 2
        try:
            raise KeyError("first")
        except KeyError:
            raise Watching(y.shape[0])  # noqa: B904

    return fn, ASKED


@table.snippet()
def not_caught_here(x):
    y = x + 1
    try:
        try:
            raise KeyError("inner")
        except (ValueError, TypeError):
            y = y * 100
        else:
            y = y * 10
        finally:
            y = y * 2
    except KeyError as error:
        return y, error.args
    return None


@table.snippet()
def else_and_finally(x):
    log = []
    for bad in (True, False):
        try:
            log.append("try")
            if bad:
                raise ValueError
        except ValueError:
            log.append("except")
        else:
            log.append("else")
        finally:
            log.append("finally")
            x = x + 1
    return x, log


@table.snippet()
def return_in_finally(x):
    try:
        raise ValueError("swallowed")
    finally:
        return x * 2  # noqa: B012


@table.snippet()
def return_in_try_with_finally(x):
    log = []

    def f():
        try:
            return x * 2
        finally:
            log.append(1)

    return f(), log


@table.snippet()
def break_and_continue_in_finally(x):
    total = x
    for i in range(5):
        try:
            if i == 1:
                continue
            if i == 3:
                break
            total = total + i
        finally:
            total = total * 2
    return total


@table.snippet()
def raise_from(x):
    try:
        try:
            [][1]
        except IndexError as error:
            raise Custom("outer", x + 1) from error
    except Custom as error:
        return error.payload, type(error.__cause__), error.__suppress_context__, error.__context__ is error.__cause__


@table.snippet()
def raise_from_none(x):
    try:
        try:
            {}["k"]
        except KeyError:
            raise ValueError("clean") from None
    except ValueError as error:
        return x * 2, error.__cause__, type(error.__context__), error.__suppress_context__


@table.snippet()
def implicit_context(x):
    try:
        try:
            raise KeyError("first")
        except KeyError:
            raise TypeError("second")  # noqa: B904
    except TypeError as error:
        return x - 1, type(error.__context__), error.__cause__, error.__context__.args


@table.snippet()
def implicit_context_through_calls(x):
    def fail(text):
        raise ValueError(text)

    def handler():
        try:
            fail("one")
        except ValueError:
            fail("two")

    try:
        try:
            handler()
        finally:
            fail("three")
    except ValueError as error:
        chain = []
        while error:
            chain.append(str(error))
            error = error.__context__
        return x * len(chain), chain


@table.snippet()
def bare_raise(x):
    try:
        try:
            raise Custom("again", x)
        except Custom as error:
            error.payload = error.payload * 2
            raise
    except Custom as error:
        return error.payload, error.__context__


@table.snippet()
def bare_raise_in_a_called_function(x):
    def again():
        raise  # noqa: PLE0704

    try:
        try:
            raise LookupError("here")
        except LookupError:
            again()
    except LookupError as error:
        return x.relu(), str(error)


@table.snippet()
def bare_raise_without_exception(x):
    try:
        raise  # noqa: PLE0704
    except RuntimeError as error:
        return x + 1, str(error)


@table.snippet()
def exception_name_is_unbound_after(x):
    error = 1
    try:
        raise ValueError
    except ValueError as error:  # noqa: F841
        pass
    return x * 2, "error" in locals()


@table.snippet()
def sys_exc_info_inside(x):
    before = sys.exc_info()[0]
    try:
        raise KeyError(1)
    except KeyError:
        during = sys.exc_info()[0]
    return x * 3, before, during, sys.exc_info()[1]


@table.snippet()
def nested_handlers_restore_the_exception(x):
    seen = []
    try:
        raise ValueError("a")
    except ValueError:
        try:
            raise KeyError("b")
        except KeyError:
            seen.append(sys.exc_info()[0].__name__)
        seen.append(sys.exc_info()[0].__name__)
    return x.sum(), seen


@table.snippet()
def raise_class_and_instance(x):
    kinds = []
    for what in (ValueError, ValueError("with text"), Custom("c", 1)):
        try:
            raise what
        except Exception as error:
            kinds.append((type(error).__name__, error.args))
    return x * len(kinds), kinds


@table.snippet()
def raise_something_else(x):
    try:
        raise 3  # type: ignore[misc]
    except TypeError as error:
        return x + 1, str(error)


@table.snippet()
def except_star(x):
    caught = []
    try:
        raise ExceptionGroup("many", [ValueError("v"), KeyError("k"), ExceptionGroup("deep", [ValueError("w"), OSError("o")])])
    except* ValueError as group:
        caught.append([repr(e) for e in group.exceptions])
    except* (KeyError, OSError) as group:
        caught.append(len(group.exceptions))
    return x * 2, caught


@table.snippet()
def except_star_leftover(x):
    try:
        try:
            raise ExceptionGroup("g", [ValueError(1), TypeError(2)])
        except* ValueError:
            x = x + 1
    except ExceptionGroup as rest:
        return x * 2, rest.message, [repr(e) for e in rest.exceptions]


@table.snippet()
def except_star_naked_exception(x):
    try:
        raise ValueError("alone")
    except* ValueError as group:
        kind, inner = type(group), group.exceptions
    return x - 2, kind, [repr(e) for e in inner]


@table.snippet()
def except_star_raises(x):
    try:
        try:
            raise ExceptionGroup("g", [ValueError(1), TypeError(2)])
        except* ValueError:
            raise KeyError("new")
    except ExceptionGroup as group:
        return x * 5, [type(e).__name__ for e in group.exceptions]


@table.snippet()
def exception_group_methods(x):
    group = ExceptionGroup("g", [ValueError(1), ExceptionGroup("h", [KeyError(2)])])
    match, rest = group.split(KeyError)
    return x.cos(), match.message, match.exceptions[0].message, [repr(e) for e in rest.exceptions], group.subgroup(OSError)


@table.snippet()
def notes(x):
    try:
        error = ValueError("with notes")
        error.add_note("first")
        raise error
    except ValueError as caught:
        caught.add_note("second")
        return x + 1, caught.__notes__


@table.snippet()
def errors_of_torch(x):
    try:
        return x @ torch.ones(7, 7)
    except RuntimeError as error:
        return x * 2, str(error)


@table.snippet()
def errors_of_python(x):
    told = []
    for f in (lambda: [][0], lambda: {}["a"], lambda: 1 // 0, lambda: int("z"), lambda: None + 1, lambda: (1).nope, lambda: len(3)):
        try:
            f()
        except (IndexError, KeyError, ZeroDivisionError, ValueError, TypeError, AttributeError) as error:
            told.append((type(error).__name__, str(error)))
    return x * len(told), told


@table.snippet()
def raised_to_the_caller(x):
    y = x * 2
    raise Custom("out", y)


@table.snippet()
def raised_to_the_caller_with_cause(x):
    try:
        x.view(7)
    except RuntimeError as error:
        raise Custom("bad view", x + 1) from error


@table.snippet(args=lambda i: (t(i), i == 1), calls=4, recompiles=(1,))
def raised_on_one_call_only(x, bad):
    y = x.sin()
    if bad:
        raise ValueError("bad")
    return y


@table.snippet(args=lambda i: (t(i), [0]))
def mutation_before_the_exception_stays(x, log):
    log.append(x + 1)
    x.mul_(2)
    raise KeyError(len(log))


@table.snippet()
def assert_statement(x):
    assert len(x) == 3, "fine"
    try:
        assert x.dim() == 7, f"dim is {x.dim()}"
    except AssertionError as error:
        return x + 1, error.args


@table.snippet()
def exception_as_control_flow(x):
    class Found(Exception):
        pass

    def search(depth):
        if depth == 4:
            raise Found(depth)
        search(depth + 1)

    try:
        search(0)
    except Found as found:
        return x * found.args[0]


@table.snippet()
def finally_changes_the_exception(x):
    try:
        try:
            raise ValueError("first")
        finally:
            raise KeyError("second")
    except KeyError as error:
        return x * 2, repr(error.__context__)


@table.snippet()
def try_in_a_loop_with_state(x):
    good = []
    for key in ("a", "b", "c", "d"):
        try:
            good.append({"a": x, "c": x * 2}[key])
        except KeyError:
            continue
    return torch.stack(good).sum(0)


@table.snippet()
def except_clause_is_an_expression(x):
    kinds = {"a": (ValueError,), "b": (KeyError, IndexError)}
    out = []
    for name, error in (("a", ValueError), ("b", IndexError)):
        try:
            raise error(name)
        except kinds[name] as caught:
            out.append(caught.args[0])
    return x.exp(), out


@table.snippet()
def unbound_free_variables(x):
    if x is None:
        absent = 1
    told = []
    try:
        [absent for _ in range(1)]
    except NameError as error:
        told.append((str(error), error.__context__, error.__suppress_context__))
    try:
        del absent
    except NameError as error:
        told.append((str(error), error.__context__, error.__suppress_context__))
    return x * 2, told


@torch.compiler.disable
def reported(x):
    kind, error, _ = sys.exc_info()
    print(kind and kind.__name__, error)
    return x + 1


@torch.compiler.disable
def failing(x):
    raise KeyError("inner")


@table.snippet(breaks=True)
def eager_calls_while_an_error_is_handled(x):
    y = reported(x * 2)
    try:
        raise ValueError("outer")
    except ValueError as e:
        y = reported(y * 3)
        try:
            failing(y.sin())
        except KeyError as inner:
            y = reported(y.cos())
            linked = inner.__context__ is e
        y = reported(y)
    return reported(y), linked


class Rung(Exception):
    """What a signal's handler raises."""


def _raise(number, frame):
    raise Rung


@torch.compiler.disable
def rung():
    """Lets a signal arrive, whose handler raises."""
    before = signal.signal(signal.SIGUSR1, _raise)
    try:
        signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)


def chain(error):
    """The types of an exception and of all that it was raised behind."""
    found = []
    while error is not None:
        found.append(type(error).__name__)
        error = error.__context__
    return found


def interrupted(body):
    """A program of which a signal interrupts an eager call while another exception is being handled; what leaves it has that as its context."""

    def make():
        log = []

        def items(x):
            try:
                yield x
                yield x * 2
            finally:
                log.append(chain(sys.exc_info()[1])[1:])

        def fn(x):
            x = x.sin()
            body(x + 1, items, log)
            return x

        return fn, log

    make.__name__ = body.__name__
    return table.program(breaks=True, min_graphs=0, backward=False)(make)


@interrupted
def a_generator_goes_in_a_handler(x, items, log):
    try:
        {}["absent"]
    except KeyError:
        for _ in items(x):
            rung()


@interrupted
def one_that_an_operator_led_to(x, items, log):
    try:
        x + x[:, :3]
    except RuntimeError:
        for _ in items(x):
            rung()


@interrupted
def several_go_at_once(x, items, log):
    try:
        raise ValueError(x)
    except ValueError:
        for _, _ in zip(items(x), items(x * 2), strict=True):
            for _ in items(x):
                rung()


@interrupted
def handlers_in_handlers(x, items, log):
    try:
        raise ValueError("outer")
    except ValueError:
        try:
            raise KeyError("inner")
        except KeyError:
            for _ in items(x):
                rung()


@interrupted
def a_block_around_it(x, items, log):
    @contextlib.contextmanager
    def block():
        try:
            yield
        finally:
            log.append(chain(sys.exc_info()[1]))

    try:
        raise ValueError("outer")
    except ValueError:
        with block():
            for _ in items(x):
                rung()


@interrupted
def a_handler_of_it_raises_another(x, items, log):
    try:
        raise ValueError("outer")
    except ValueError:
        try:
            for _ in items(x):
                rung()
        except Rung as error:
            log.append(chain(error))
            raise TypeError("from here") from None


@interrupted
def it_is_raised_later(x, items, log):
    kept = []
    try:
        raise ValueError("outer")
    except ValueError:
        try:
            for _ in items(x):
                rung()
        except Rung as error:
            kept.append(error)
    log.append(chain(kept[0]))
    raise kept.pop()


@interrupted
def a_generator_hands_on_another(x, items, log):
    def outer(x):
        try:
            yield from items(x)
        finally:
            log.append(chain(sys.exc_info()[1]))

    try:
        raise ValueError("outer")
    except ValueError:
        for _ in outer(x):
            rung()


@interrupted
def what_the_generator_handles(x, items, log):
    def handling(x):
        try:
            raise KeyError(x)
        except KeyError:
            try:
                yield x
            finally:
                log.append(chain(sys.exc_info()[1]))

    try:
        raise ValueError("outer")
    except ValueError:
        for _ in handling(x):
            rung()


@interrupted
def the_generator_raises_as_it_goes(x, items, log):
    def handling(x):
        try:
            yield x
        except GeneratorExit as end:
            log.append(chain(end))
            try:
                raise KeyError("here")
            except KeyError as error:
                log.append(chain(error))

    try:
        raise ValueError("outer")
    except ValueError:
        for _ in handling(x):
            rung()


@interrupted
def in_a_function_of_its_own(x, items, log):
    def inner(x):
        for _ in items(x):
            rung()

    try:
        raise ValueError("outer")
    except ValueError:
        try:
            inner(x)
        finally:
            log.append(chain(sys.exc_info()[1]))


@interrupted
def eager_calls_on_the_way_out(x, items, log):
    try:
        raise ValueError("outer")
    except ValueError as error:
        try:
            rung()
        finally:
            reported(x)
            log.append(chain(error))


@interrupted
def the_handled_one_is_raised_on_the_way_out(x, items, log):
    try:
        raise ValueError("outer")
    except ValueError as error:
        try:
            rung()
        except Rung:
            raise error


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_exceptions(program: Program, twin: str) -> None:
    check(program, twin)
