"""The public functions: compile, explain, report, reset."""

from __future__ import annotations

import functools
import os
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MethodType, NoneType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, overload

from torch import nn

from fineline.backends.registry import Backend, Registered, lookup_backend
from fineline.background.queue import CAPTURES, QUEUE
from fineline.errors import BadArgument
from fineline.guards.native_core import CORE
from fineline.import_thread import LateModule
from fineline.policy.dim_marks import DIMS
from fineline.policy.marks import MARKS
from fineline.policy.policy import Policy
from fineline.policy.scope_stack import SCOPE
from fineline.region.compiled import Compiled, Forward
from fineline.region.deferred_region import DeferredRegion
from fineline.region.optimized_module import OptimizedModule
from fineline.region.options import KNOWN, Breaks, Options, split_options, with_arguments
from fineline.report.events import LISTENERS
from fineline.report.explain import Explanation, difference
from fineline.report.logs import LOGS
from fineline.report.operator_counter import RunCounts, Tally
from fineline.report.tree import Node

if TYPE_CHECKING:
    from fineline.region import call_tree
    from fineline.region.entry_points import Storage
    from fineline.region.interface import CapturingRegion
    from fineline.region.region import Region
    from fineline.region.watch import Watch
    from fineline.saving import stores
else:
    stores = LateModule("fineline.saving.stores")
    call_tree = LateModule("fineline.region.call_tree")

# The environment variable that names the folder of the cache of programs; without it there is none.
CACHE = "FINELINE_CACHE_DIR"
_REGIONS: weakref.WeakSet[DeferredRegion] = weakref.WeakSet()
P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", bound=nn.Module)


class CompileArguments(TypedDict, total=False):
    """The keyword arguments of `compile`, for type checkers: they are the same in each way to call it."""

    backend: str | Callable
    fullgraph: bool
    dynamic: bool | None
    mode: str | None
    options: dict[str, Any] | None
    name: str | None
    disable: bool
    recompile_limit: int | None
    isolate_recompiles: bool
    shapes_spec: Any
    dynamic_shapes: Any
    policy: Policy | None
    breaks: Breaks | None
    wait: bool | None


class Decorator(Protocol):
    """What `compile` returns without a function. A compiled module has all attributes of the original, so it has its type."""

    @overload
    def __call__(self, fn: M, /) -> M: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def compile(fn: M, **how: Unpack[CompileArguments]) -> M: ...
@overload
def compile(fn: Callable[P, R], **how: Unpack[CompileArguments]) -> Callable[P, R]: ...
@overload
def compile(fn: None = None, **how: Unpack[CompileArguments]) -> Decorator: ...
@overload
def compile(*, model: M, **how: Unpack[CompileArguments]) -> M: ...
@overload
def compile(*, model: Callable[P, R], **how: Unpack[CompileArguments]) -> Callable[P, R]: ...
def compile(
    fn: Callable | None = None,
    *,
    backend: str | Callable = "inductor",
    fullgraph: bool = False,
    dynamic: bool | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: Any = None,
    dynamic_shapes: Any = None,
    policy: Policy | None = None,
    breaks: Breaks | None = None,
    wait: bool | None = None,
    model: Callable | None = None,
) -> Any:
    """Compiles a function, method or ``nn.Module``; also a decorator, with or without arguments.

    The first call runs on real values and captures; later calls check guards and run the compiled program. ``backend`` is a
    registered name or a callable ``(GraphModule, example_inputs) -> callable``. ``breaks="declared"`` makes a graph break
    an error unless a rule asks for it, ``breaks="none"`` (or ``fullgraph=True``) makes every graph break an error. ``policy``:
    the rules of this region. ``dynamic=None`` makes sizes and ints symbolic once they have changed (or are marked), True from
    the start, False only where marked. ``options`` contains fineline's own (``recompile_limit``, ``evaluator``, ``verify``,
    ``fall_back``) and those of the backend; the argument ``recompile_limit`` overrides the option. ``name`` names the region
    in reports and events; the default is the function's name. Each call of `compile` has its own programs and limit, but runs a
    program that was captured for an equal callable (another instance of the class, a function of the same ``def``) if its guards hold;
    with ``isolate_recompiles``, it captures its own. With ``wait=False`` no call waits for the backend: graphs are compiled in the background,
    and run as they were captured until then. Raises `BadArgument` for an invalid argument. A call raises `BackendFailed` if the backend
    fails, or if a compiled graph fails for the second time where the code does not; with ``options={"fall_back": True}``, such
    calls run eagerly. The signature is that of ``torch.compile`` (``model`` means ``fn``) plus ``policy``, ``breaks`` and ``wait``;
    ``dynamic_shapes``, which is ``shapes_spec`` in PyTorch 2.13, must be None.
    """
    if model is not None:
        if fn is not None:
            raise BadArgument("fn= and model= are two names of what is compiled, and both are given")
        fn = model
    if fn is None:
        return functools.partial(
            compile, backend=backend, fullgraph=fullgraph, dynamic=dynamic, mode=mode, options=options, name=name, disable=disable,
            recompile_limit=recompile_limit, isolate_recompiles=isolate_recompiles, shapes_spec=shapes_spec, dynamic_shapes=dynamic_shapes, policy=policy,
            breaks=breaks, wait=wait,
        )  # fmt: skip
    check_callable(fn)
    if isinstance(fn, type):
        raise BadArgument(f"{fn.__qualname__} is a class", id="FL201", next_step="Compile an instance of it, or decorate its methods.")
    strict = _strictness(breaks, fullgraph)
    if policy is not None and not isinstance(policy, Policy):
        raise BadArgument(f"policy= takes a fineline.Policy, not a {type(policy).__name__}")
    for argument, value in (("dynamic", dynamic), ("wait", wait)):
        if value not in (None, True, False):
            raise BadArgument(f"{argument} is None, True or False, not {value!r}")
    if not isinstance(name, (str, NoneType)):
        raise BadArgument(f"name= takes a text, not a {type(name).__name__}")
    if shapes_spec is not None or dynamic_shapes is not None:
        step = "Mark the sizes that vary with fineline.mark_dynamic(tensor, index), or say dynamic=True."
        raise BadArgument(f"{'dynamic_shapes' if shapes_spec is None else 'shapes_spec'}= is not supported, only marks of sizes are", next_step=step)
    options = with_arguments(options, recompile_limit=recompile_limit, wait=wait)
    make = functools.partial(
        _region, backend=backend, breaks=strict, mode=mode, options=options, policy=policy, dynamic=dynamic, name=name, shares=not isolate_recompiles
    )
    if isinstance(fn, (OptimizedModule, Compiled)):
        fn = original(fn)
    recipe = Recipe(make)
    region = make(fn)
    return fn if disable else recipe.stand_in(fn, region)


def _strictness(breaks: Breaks | None, fullgraph: bool) -> Breaks:
    if breaks not in (None, "any", "declared", "none"):
        raise BadArgument(f'breaks is "any", "declared" or "none", not {breaks!r}')
    if fullgraph and breaks not in (None, "none"):
        raise BadArgument(f'fullgraph=True means breaks="none", and breaks={breaks!r} is given')
    return "none" if fullgraph else breaks or "any"


def check_callable(fn: Any) -> None:
    if not callable(fn):
        raise BadArgument(f"an object of type {type(fn).__name__} is not callable: {fn!r:.80}", id="FL201")


@dataclass(frozen=True)
class Recipe:
    """The arguments of a compilation: copies, pickles and libraries use them to compile other callables in the same way."""

    # Makes the region of a callable.
    make: functools.partial[DeferredRegion]
    modules: type[OptimizedModule] = OptimizedModule

    def __call__(self, mod: nn.Module) -> Callable:
        # The variable keeps the region alive until the dispatcher does.
        region = self.make(mod)
        return region.dispatcher

    def stand_in(self, fn: Callable, region: DeferredRegion) -> Any:
        """Returns the callable that a user calls instead of ``fn``."""
        if isinstance(fn, nn.Module):
            return self.modules(fn, region.dispatcher, self)
        return Compiled(fn, region, self.compile)

    def compile(self, fn: Callable) -> Any:
        check_callable(fn)
        fn = original(fn) if isinstance(fn, (OptimizedModule, Compiled)) else fn
        return self.stand_in(fn, self.make(fn))

    def is_ready(self, dispatcher: Callable) -> bool:
        """Returns whether the region that a compiled module calls is ready."""
        return any([deferred.is_ready for deferred in _REGIONS if deferred.is_called_by(dispatcher)])

    def get_compiler_config(self) -> Any:
        """Returns the backend's settings; None if it has no ``get_compiler_config``, as Inductor has."""
        how = self.make.keywords
        return _backend(**{name: how[name] for name in ("backend", "mode", "options")})[1].settings()


def _backend(backend: str | Callable | Registered, mode: str | None, options: dict[str, Any] | None) -> tuple[dict[str, Any], Backend]:
    """Returns fineline's own options, and the backend with the remaining options."""
    own, rest = split_options(options)
    return own, lookup_backend(backend, mode, rest or None, KNOWN)


def _region(
    fn: Callable, *, backend: str | Callable | Registered, breaks: Breaks, policy: Policy | None, dynamic: bool | None, mode: str | None = None,
    options: dict[str, Any] | None = None, name: str | None = None, shares: bool = True, watch: Watch | None = None, storage: Storage[CapturingRegion] | None = None,
) -> DeferredRegion:  # fmt: skip
    own, found = _backend(backend, mode, options)
    if watch is None and LISTENERS.trees:
        tally = RunCounts() if CORE is not None and RunCounts.available() else None
        watch = call_tree.watch_calls(call_tree.tree_of(fn, name), tally, told=True)
    if storage is None and watch is None and (folder := os.environ.get(CACHE)):
        storage = stores.CacheStore(Path(folder).absolute())
    region = DeferredRegion(fn, found, Options(policy=policy, breaks=breaks, dynamic=dynamic, name=name, **own), watch, shares, storage)
    _REGIONS.add(region)
    return region


def original(fn: Any) -> Any:
    """Returns the callable from which a compiled callable was made."""
    return fn._orig_mod if isinstance(fn, OptimizedModule) else fn.__wrapped__


def regions() -> list[Region]:
    """Returns the regions of all compiled callables that are alive and have been called, in the order in which they were compiled."""
    return [region for deferred in sorted(_REGIONS, key=lambda deferred: deferred.compiled_at) if (region := deferred.if_made) is not None]


def wait(timeout: float | None = None) -> bool:
    """Waits for what is captured and compiled in the background; returns whether nothing is left. ``timeout``: at most so many seconds.

    Raises `BadArgument` (FL208) if ``timeout`` is not a number of seconds.
    """
    if timeout is not None and (not isinstance(timeout, (int, float)) or isinstance(timeout, bool) or not timeout >= 0):
        raise BadArgument(f"timeout is a number of seconds, or None, not {timeout!r}")
    ends = None if timeout is None else time.monotonic() + timeout
    return CAPTURES.wait(timeout) and QUEUE.wait(ends and max(ends - time.monotonic(), 0))


def reset() -> None:
    """Forgets the programs of all regions, and the marks of operators and C functions; regions capture again at their next call."""
    for region in regions():
        region.forget()
    MARKS.forget()
    DIMS.clear()
    LOGS.forget()


def set_policy(policy: Policy | None) -> Policy | None:
    """Sets the rules of the whole process, in all threads; None means no rules. Returns the previous policy.

    Raises `BadArgument` (FL208) if ``policy`` is neither a `Policy` nor None.
    """
    if policy is not None and not isinstance(policy, Policy):
        raise BadArgument(f"set_policy takes a fineline.Policy or None, not a {type(policy).__name__}")
    before, SCOPE.process = SCOPE.process, policy
    return before if isinstance(before, Policy) else None


def explain(
    f: Callable[P, object], *, fullgraph: bool | None = None, policy: Policy | None = None, dynamic: bool | None = None, savings: bool = False,
) -> Callable[P, Explanation]:  # fmt: skip
    """Returns a callable: ``explain(f)(*args)`` captures one call of ``f``, describes the capture, and keeps no program.

    A compiled callable is captured as it was compiled: with its policy, breaks, dynamic, options and backend. The
    arguments override these: ``fullgraph=False`` shows the graph breaks at which the region would raise. Any other
    callable is captured with the backend "eager".

    ``savings``: whether to make the call once more without each rule that fired, with all its effects, to say what the rule
    costs and saves (`Explanation.savings`). Raises `BadArgument` (FL201) if ``f`` is not callable.
    """
    check_callable(f)
    target, recipe, _ = _made_of(f)
    given: dict[str, Any] = {"policy": policy, "dynamic": dynamic, "breaks": None if fullgraph is None else "none" if fullgraph else "any"}
    how = {"backend": "eager", "breaks": "any", "policy": None, "dynamic": None, **(recipe.make.keywords if recipe is not None else {})}
    how |= {name: value for name, value in given.items() if value is not None}

    def capture(*args: P.args, **kwargs: P.kwargs) -> Explanation:
        tree, tally = call_tree.tree_of(target, how.get("name")), Tally()
        region = _region(target, **how, watch=call_tree.watch_calls(tree, tally, told=LISTENERS.trees)).region
        call = region.entry.dispatcher
        began = time.perf_counter()
        with tally:
            call(*args, **kwargs)
        return _explanation(region, tally.counts, tree.result(), time.perf_counter() - began)

    def explained(*args: P.args, **kwargs: P.kwargs) -> Explanation:
        explanation = capture(*args, **kwargs)
        for rule in [rule for rule, times in explanation.rules.items() if times and savings]:
            with MARKS.leaving_out(rule.key):
                explanation.savings[rule] = difference(explanation, functools.partial(capture, *args, **kwargs))
        return explanation

    return explained


def report(compiled: Callable) -> Explanation:
    """Returns the graphs, graph breaks, recompiles, guards and programs of a compiled callable since it was made or reset.

    It runs nothing. The operators are those that captures recorded; under ``fineline run --report`` also those that calls
    run. Raises `BadArgument` for a callable that is not compiled.
    """
    step = "Give what fineline.compile returned; fineline.explain(f)(*args) captures a call of anything."
    region = compiled_region(compiled, "report", step)
    watch = region.watch
    ran = watch.tally.counts if watch.tally is not None else None
    return _explanation(region, ran, watch.tree() if watch.tree is not None else None)


def compiled_region(compiled: Callable, taker: str = "save", next_step: str = "Give what fineline.compile returned.") -> Region:
    """Returns the region of a compiled callable; raises `BadArgument` for any other, in the name of the public function ``taker``."""
    check_callable(compiled)
    _, _, region = _made_of(compiled)
    if region is None:
        raise BadArgument(f"{taker} takes a compiled callable, not a {type(compiled).__name__}", next_step=next_step)
    return region


def with_storage(compiled: Callable, storage: Storage[CapturingRegion]) -> Any:
    """Compiles the callable of a compiled one again, in the same way, with a store of programs."""
    target, recipe, _ = _made_of(compiled)
    assert recipe is not None
    # The variable keeps the region alive until the dispatcher does.
    region = recipe.make(target, storage=storage)
    return recipe.stand_in(target, region)


def is_compiled(f: Any) -> bool:
    """Returns whether `report` describes ``f``."""
    return _made_of(f)[2] is not None


def _explanation(region: Region, ran: Mapping[str, int] | None, tree: Node | None, seconds: float = 0.0) -> Explanation:
    marks = [mark for mark in MARKS if not region.reports.fired[mark]]
    return Explanation(
        region.name, list(region.reports.events), list(region.graphs.graphs), region.programs(), ran,
        rules=dict(region.reports.fired), marks=marks, tree=tree, seconds=seconds, place=region.reports.place,
        costs=region.watch.recording.costs() if region.watch.recording is not None else (),
    )  # fmt: skip


def _made_of(f: Any) -> tuple[Callable, Recipe | None, Region | None]:
    """Returns the original of a compiled callable, its recipe and its region; for any other object ``(f, None, None)``."""
    if isinstance(f, MethodType) and isinstance(f.__func__, Compiled):
        target, recipe, region = _made_of(f.__func__)
        return MethodType(target, f.__self__), recipe, region
    if isinstance(f, Compiled):
        return f.__wrapped__, _recipe(f._rebuild), f._region
    if isinstance(f, Forward):
        # Its call runs the same code as a call of the module.
        return _made_of_module(f._orig_mod, f._rebuild, f.__call__)
    if isinstance(f, OptimizedModule):
        return _made_of_module(f._orig_mod, f._fineline_rebuild, f._fineline_region)
    if isinstance(f, nn.Module) and isinstance(f._compiled_call_impl, Compiled):
        # `nn.Module.compile` compiled it in place.
        return f, *_made_of(f._compiled_call_impl)[1:]
    return f, None, None


def _made_of_module(mod: nn.Module, rebuild: Any, dispatcher: Callable) -> tuple[nn.Module, Recipe | None, Region | None]:
    return mod, _recipe(rebuild), next((deferred.region for deferred in _REGIONS if deferred.is_called_by(dispatcher)), None)


def recipe_of(f: Callable) -> tuple[Callable, dict[str, Any]]:
    """Returns the original of a callable, and the arguments of its compilation; none if it is not compiled."""
    target, recipe, _ = _made_of(f)
    return target, dict(recipe.make.keywords) if recipe is not None else {}


def region_of(fn: Callable, how: dict[str, Any]) -> Region:
    """Returns a new region for one compilation with these arguments, which nothing else refers to."""
    return _region(fn, **how).region


def _recipe(rebuild: Any) -> Recipe | None:
    """Returns the recipe to which ``rebuild`` belongs, the function that compiles other callables in the same way, or None."""
    found = getattr(rebuild, "__self__", rebuild)
    return found if isinstance(found, Recipe) else None
