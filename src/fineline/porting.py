"""Functions for code written for torch._dynamo: optimize, optimize_assert, run, nested_compile_region."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

from torch import nn

from fineline.api import Decorator, M, P, R, check_callable, compile, regions
from fineline.policy.stance import STANCES
from fineline.region.compiled import Compiled
from fineline.region.optimized_module import OptimizedModule
from fineline.region.options import GuardFailure

if TYPE_CHECKING:
    from fineline.region.region import Region


def optimize(
    backend: str | Callable = "inductor",
    *,
    nopython: bool = False,
    guard_export_fn: Callable[[list[str]], object] | None = None,
    guard_fail_fn: Callable[[GuardFailure], object] | None = None,
    disable: bool = False,
    dynamic: bool | None = False,
    **compile_options: Any,
) -> Decorator:
    """Returns a decorator that compiles; ``nopython=True`` means ``fullgraph=True``.

    ``guard_export_fn`` receives the guards of each captured program as texts; ``guard_fail_fn`` receives an object with a
    ``.reason`` for each call that is captured again. Other keywords are those of `compile`.
    """
    hooks = {"guard_export_fn": guard_export_fn, "guard_fail_fn": guard_fail_fn}
    options = {**(compile_options.pop("options", None) or {}), **{name: fn for name, fn in hooks.items() if fn is not None}}
    return compile(backend=backend, fullgraph=nopython, disable=disable, dynamic=dynamic, options=options or None, **compile_options)


def optimize_assert(backend: str | Callable, **how: Any) -> Decorator:
    """Calls `optimize` with ``nopython=True``: a graph break is an error, even under `error_on_graph_break(False)`."""
    return optimize(backend, nopython=True, **how)


class _Held(contextlib.ContextDecorator):
    """A block, or a decorator, in which compiled callables capture nothing new."""

    def __enter__(self) -> None:
        STANCES.hold()

    def __exit__(self, *exc: object) -> None:
        STANCES.release()


@overload
def run(fn: None = None) -> _Held: ...
@overload
def run(fn: M) -> M: ...
@overload
def run(fn: Callable[P, R]) -> Callable[P, R]: ...
def run(fn: Any = None) -> Any:
    """Returns a callable that runs existing programs of ``fn``, and of compiled callables that it calls, but captures nothing.

    Calls without a program run eagerly. ``fn`` is a compiled callable or the original of one. Without ``fn``, returns a
    decorator and context manager.
    """
    if fn is None:
        return _Held()
    check_callable(fn)
    if isinstance(fn, nn.Module):
        return OptimizedModule(fn._orig_mod if isinstance(fn, OptimizedModule) else fn, _held(fn), _held)
    wrapper = functools.wraps(fn)(_held(fn))
    # Captured code runs ``fn`` itself.
    wrapper.__dict__["fineline_door"] = (id(wrapper), fn)
    return wrapper


def _held(fn: Any) -> Callable:
    compiled = isinstance(fn, (OptimizedModule, Compiled))

    def run_only(*args: Any, **kwargs: Any) -> Any:
        with _Held():
            # Look it up at each call, because it may be compiled later.
            return (fn if compiled else _region_of(fn) or fn)(*args, **kwargs)

    return run_only


def _region_of(fn: Any) -> Region | None:
    bound = isinstance(fn, types.MethodType)
    found = [r for r in regions() if r.fn is fn or (bound and isinstance(r.fn, types.MethodType) and r.fn == fn)]
    # Prefer a region with programs, then the newest.
    return max(reversed(found), key=lambda r: r.budget.programs > 0, default=None)


@overload
def nested_compile_region(
    fn: None = None, *, options: Any = None, max_reuse_entries: int = 8, reuse_hash_fn: Callable | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
@overload
def nested_compile_region(
    fn: Callable[P, R], *, options: Any = None, max_reuse_entries: int = 8, reuse_hash_fn: Callable | None = None
) -> Callable[P, R]: ...
def nested_compile_region(fn: Any = None, *, options: Any = None, max_reuse_entries: int = 8, reuse_hash_fn: Callable | None = None) -> Any:
    """Marks a function that a model calls many times: equal calls share one sub-graph, which the backend compiles once.

    A call that cannot be a graph of its own, because it changes its operands or breaks the graph, is captured like any
    other. The other arguments are accepted and change no result.
    """
    if fn is None:
        return functools.partial(nested_compile_region, options=options, max_reuse_entries=max_reuse_entries, reuse_hash_fn=reuse_hash_fn)
    check_callable(fn)

    @functools.wraps(fn)
    def nested(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return nested


class _Around:
    """A wrapper of another compiler's context manager and decorator: eager code enters it, captured code ignores it."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __enter__(self) -> Any:
        return self._context.__enter__()

    def __exit__(self, *exc: object) -> Any:
        return self._context.__exit__(*exc)

    def __call__(self, fn: Callable) -> Any:
        return _seen_through(self._context(fn), fn)


def around(theirs: Callable, *args: Any, **kwargs: Any) -> Any:
    """Calls ``theirs``; wraps its result: a context manager, or, if the first argument is a function, that function in one."""
    made = theirs(*args, **kwargs)
    return _seen_through(made, args[0]) if args and isinstance(args[0], types.FunctionType) else _Around(made)


def _seen_through(wrapper: Any, fn: Any) -> Any:
    wrapper.__dict__["fineline_door"] = (id(wrapper), fn)
    return wrapper


def null_context(*args: Any, **kwargs: Any) -> Any:
    """Returns a context manager that does nothing; captured code calls this instead of `around`."""
    return contextlib.nullcontext()
