"""The decorators and calls that mark one object: `disable`, `allow_in_graph`, `disallow_in_graph`, and others."""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, overload

from torch import nn

from fineline.errors import BadRule, caller
from fineline.kinds import is_a
from fineline.policy.inline_rules import block_rule
from fineline.policy.marks import MARKS
from fineline.policy.policy import Policy, check_disallowed, check_substitute
from fineline.policy.rule import MARK, Rule
from fineline.policy.scope_stack import SCOPE
from fineline.policy.selector import GLOB, Selector, of_object, parts, selectors

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=Callable[..., Any])
# What is marked and returned itself, or for what `disable` returns an object of the same type.
T = TypeVar("T", bound=Callable[..., Any] | list | tuple)
D = TypeVar("D", bound=nn.Module | type | list | tuple | property | staticmethod | classmethod)


class Disabled(contextlib.ContextDecorator):
    """The result of ``disable()``: a decorator, and a context manager in which nothing is captured."""

    def __init__(self, recursive: bool, reason: str | None, place: str) -> None:
        self.recursive, self.reason, self.place = recursive, reason, place

    # Subclasses of list, tuple and property that are callable are returned as `D`, too.
    @overload  # type: ignore[override]
    def __call__(self, fn: D) -> D: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, fn: Callable[P, R]) -> Callable[P, R]: ...
    def __call__(self, fn: Any) -> Any:
        return _disable(fn, recursive=self.recursive, reason=self.reason, place=self.place)

    @property
    def rule(self) -> Rule:
        """Returns the rule that the block sets."""
        return block_rule(self.place, self.reason)

    def __enter__(self) -> Disabled:
        if not MARKS.entered(self.rule):
            SCOPE.disable(self.rule)
        return self

    def __exit__(self, *exc: object) -> None:
        if not MARKS.is_without(self.rule):
            SCOPE.enable()


@overload
def disable(fn: None = None, recursive: bool = True, *, reason: str | None = None, wrapping: bool = True) -> Disabled: ...
@overload
def disable(fn: D, recursive: bool = True, *, reason: str | None = None, wrapping: bool = True) -> D: ...  # type: ignore[overload-overlap]
@overload
def disable(fn: Callable[P, R], recursive: bool = True, *, reason: str | None = None, wrapping: bool = True) -> Callable[P, R]: ...
def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None, wrapping: bool = True) -> Any:
    """Keeps ``fn`` out of captures: it runs in Python, with everything it calls.

    With ``recursive=False`` only its own frame does; the functions that it calls are captured again. For a function, returns a
    new callable and leaves the original unchanged; a class or an ``nn.Module`` instance is marked and returned; for a list or
    tuple, returns one of the results. Without ``fn``, returns a decorator and context manager: ``with disable():`` captures
    nothing in the block. The signature is that of ``torch.compiler.disable``.
    """
    place = caller()
    if fn is None:
        return Disabled(recursive, reason, place)
    return _disable(fn, recursive=recursive, reason=reason, place=place)


def _disable(fn: Any, *, recursive: bool, reason: str | None, place: str) -> Any:
    again = functools.partial(_disable, recursive=recursive, reason=reason, place=place)
    if type(fn) in (list, tuple):
        return type(fn)([again(f) for f in fn])
    if is_a(fn, (staticmethod, classmethod)):
        return type(fn)(again(fn.__func__))
    if is_a(fn, property):
        return property(fn.fget and again(fn.fget), fn.fset and again(fn.fset), fn.fdel and again(fn.fdel), fn.__doc__)
    if not callable(fn):
        step = "Pass the function itself; names and files are for fineline.Policy(disable=...)."
        raise BadRule(f"disable() takes a callable, not an object of type {type(fn).__name__}: {fn!r:.80}", id="FL211", next_step=step)
    rule = Rule("disable" if recursive else "disable_frame", of_object(fn), reason or "", place, None, MARK)
    if is_a(fn, (type, nn.Module)):
        MARKS.note_holder()
        MARKS.set(fn, rule)
        for part in parts(fn) if is_a(fn, type) else ():
            MARKS.set(part, rule)
        return fn

    made: Any = DisabledFunction(fn, again) if _has_name(fn) else _wrapper(fn)
    MARKS.set(made, rule._replace(replacement=fn), new=True)
    return made


def _wrapper(fn: Any) -> Callable:
    @functools.wraps(fn)
    def disabled(*args: object, **kwargs: object) -> object:
        return fn(*args, **kwargs)

    return disabled


class DisabledFunction:
    """A function, found under its own name, that `disable` keeps out of captures.

    A wrapper function could not be pickled, nor a module that contains it: pickle would find the original under its name. As a
    decorator, `disable` returns a wrapper function, because the name then refers to the wrapper.
    """

    def __init__(self, fn: Callable, again: Callable) -> None:
        functools.update_wrapper(self, fn)
        self._again = again

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self.__wrapped__(*args, **kwargs)  # type: ignore[attr-defined]

    def __get__(self, obj: object, owner: type | None = None) -> object:
        return self if obj is None else types.MethodType(self, obj)

    def __reduce__(self) -> str | tuple:
        if _found(self) is self:
            return str(self.__qualname__)
        return self._again, (self.__wrapped__,)  # type: ignore[attr-defined]

    def __copy__(self) -> DisabledFunction:
        return self

    def __deepcopy__(self, memo: object) -> DisabledFunction:
        return self

    def __repr__(self) -> str:
        return f"<disabled {self.__wrapped__!r}>"  # type: ignore[attr-defined]


def _has_name(fn: object) -> bool:
    """Returns whether pickle finds ``fn`` by its name in a module, or as a C function. False for the methods of classes."""
    return is_a(fn, types.BuiltinFunctionType) or (is_a(fn, types.FunctionType) and _found(fn) is fn)


def _found(fn: Any) -> Any:
    return getattr(sys.modules.get(fn.__module__), fn.__qualname__, None)


class TraceAll(Policy):
    """A policy that traces code skipped by default: for a block, or as a decorator for a function's calls."""

    __slots__ = ()

    def __call__(self, fn: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(fn)
        def traced(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return fn(*args, **kwargs)

        return traced


# One object, so that programs captured in one such block fit calls in another.
TRACE_ALL = TraceAll.of((Rule("trace", Selector(GLOB, "glob", ("name", "*"), "*"), "dont_skip_tracing"),))


def dont_skip_tracing(fn: Any = None) -> Any:
    """Traces the Python code that built-in rules skip, in the calls of ``fn``. Without ``fn`` it returns a decorator and context manager."""
    return TRACE_ALL if fn is None else TRACE_ALL(fn)


def _mark(verb: str, fn: Any, replacement: object = None, check: Callable[[Selector], None] | None = None) -> Any:
    """Marks ``fn``, or each item of a list or tuple; returns ``fn``."""
    place = caller()
    for value in fn if type(fn) in (list, tuple) else (fn,):
        if type(value) in (list, tuple):
            _mark(verb, value, replacement, check)
            continue
        if not callable(value) or type(value) is str:
            step = "Pass the function or operator itself; names and files are for fineline.Policy."
            raise BadRule(f"an object of type {type(value).__name__} is not a function or operator: {value!r:.80}", id="FL211", next_step=step)
        for selector in selectors(value):
            if check is not None:
                check(selector)
            rule = Rule(verb, selector, "", place, replacement, MARK)
            if selector.kind in ("operator", "dispatch"):
                MARKS.set_operator(rule)
            else:
                method, target = [k.obj for k in selector.key] if selector.kind == "method" else (None, selector.key.obj)
                if selector.kind in ("class", "method"):
                    MARKS.note_holder()
                MARKS.set(target, rule, method=method)
                # For a class, "allow" is about its own call only: `apply` of a torch.autograd.Function.
                for part in parts(target) if selector.kind == "class" and verb != "allow" else ():
                    MARKS.set(part, rule)
    return fn


def disallow_in_graph(fn: T) -> T:
    """Keeps every spelling of the operator out of graphs: the graph breaks, the operator runs eagerly, and capture continues after it.

    For an ATen operator, it applies to the smallest captured call that dispatches to it. `allow_in_graph` cancels this.
    Raises `BadRule` for a Python function that a capture would trace: use `disable` instead.
    """

    def check(selector: Selector) -> None:
        allowed = MARKS.get(selector.key.obj) if selector.kind == "object" else None
        if allowed is None or allowed.verb != "allow":
            check_disallowed(selector)

    return _mark("disallow", fn, check=check)


def allow_in_graph(fn: T) -> T:
    """Makes a call of ``fn`` one opaque call in the graph: fineline does not capture its code, but the backend traces it.

    A graph must be able to contain its arguments and results, and every tensor that it uses must be an argument; fineline guards
    other objects that it reads. It must not change other objects, draw random numbers of Python or NumPy, or read a clock.
    A violation is an error at capture.
    """
    return _mark("allow", fn)


def forbid_in_graph(fn: T) -> T:
    """Makes ``fn`` an error during capture; eager code may call it."""
    return _mark("forbid", fn)


def assume_constant_result(fn: T) -> T:
    """Runs ``fn`` at capture, and makes its result a constant of the graph; fineline guards its arguments."""
    return _mark("constant", fn)


def substitute_in_graph(
    original_fn: Callable, *, can_constant_fold_through: bool = False, skip_signature_check: bool = False
) -> Callable[[C], C]:
    """Decorates a function that is captured instead of ``original_fn`` and must have the same parameters."""

    def substitute(replacement: C) -> C:
        if not skip_signature_check:
            check_substitute(original_fn, replacement)
        _mark("substitute", original_fn, replacement)
        return replacement

    return substitute
