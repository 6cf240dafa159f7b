"""The public functions: compile, explain, reset."""

from __future__ import annotations

import functools
import time
import weakref
from collections.abc import Callable
from typing import Any

from torch import nn

from fineline.backends.registry import lookup_backend
from fineline.errors import BadArgument
from fineline.policy.dims import DIMS
from fineline.policy.marks import MARKS
from fineline.policy.policy import Policy
from fineline.policy.scopes import SCOPE
from fineline.region.compiled import Compiled
from fineline.region.describe import describe_guards, place_of
from fineline.region.module import OptimizedModule
from fineline.region.options import Breaks, Options, split_options
from fineline.region.region import Region
from fineline.region.watched import Tree, Watched
from fineline.report.explain import Explanation
from fineline.report.logs import LOGS
from fineline.report.tally import Tally

_REGIONS: weakref.WeakSet[Region] = weakref.WeakSet()


def compile(
    fn: Callable | None = None,
    *,
    backend: str | Callable = "inductor",
    fullgraph: bool = False,
    dynamic: bool | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
    policy: Policy | None = None,
    breaks: Breaks | None = None,
    model: Callable | None = None,
) -> Any:
    """Compiles a function, method or ``nn.Module``; also a decorator, with or without arguments.

    The first call runs on real values and captures; later calls check guards and run the compiled program. ``backend`` is a
    registered name or a callable ``(GraphModule, example_inputs) -> callable``. ``breaks="declared"`` makes a graph break that
    no rule of the user's asked for an error, ``breaks="none"`` (or ``fullgraph=True``) any. ``policy``: the rules of this
    region. ``dynamic``: None, sizes and ints are symbolic once they have changed (or are marked); True, from the start; False,
    only where marked. ``options`` holds fineline's own (``recompile_limit``, ``evaluator``, ``verify``) and the backend's. Raises
    `BadArgument` for what can't be compiled, and `BackendFailed` at a call when the backend fails. Signature: ``torch.compile``'s
    with ``policy`` and ``breaks``; ``model`` is its name for ``fn``.
    """
    if model is not None:
        if fn is not None:
            raise BadArgument("fn= and model= are two names of what is compiled, and both are given")
        fn = model
    if fn is None:
        return functools.partial(
            compile, backend=backend, fullgraph=fullgraph, dynamic=dynamic, mode=mode, options=options, disable=disable,
            policy=policy, breaks=breaks,
        )  # fmt: skip
    check_callable(fn)
    if isinstance(fn, type):
        raise BadArgument(f"{fn.__qualname__} is a class", id="FL201", next_step="Compile an instance of it, or decorate its methods.")
    if breaks not in (None, "any", "declared", "none"):
        raise BadArgument(f'breaks is "any", "declared" or "none", not {breaks!r}')
    if fullgraph and breaks not in (None, "none"):
        raise BadArgument(f'fullgraph=True means breaks="none", and breaks={breaks!r} is given')
    if policy is not None and not isinstance(policy, Policy):
        raise BadArgument(f"policy= takes a fineline.Policy, not a {type(policy).__name__}")
    strict: Breaks = "none" if fullgraph else breaks or "any"
    if dynamic not in (None, True, False):
        raise BadArgument(f"dynamic is None, True or False, not {dynamic!r}")
    make = functools.partial(_region, backend=backend, breaks=strict, mode=mode, options=options, policy=policy, dynamic=dynamic)
    if isinstance(fn, (OptimizedModule, Compiled)):
        fn = original(fn)
    region = make(fn)
    if disable:
        return fn
    if isinstance(fn, nn.Module):
        return OptimizedModule(fn, region.entry.dispatcher, functools.partial(_dispatcher, make))
    return Compiled(fn, region, functools.partial(_compiled, make))


def check_callable(fn: Any) -> None:
    if not callable(fn):
        raise BadArgument(f"a {type(fn).__name__} is not callable: {fn!r:.80}", id="FL201")


def _region(
    fn: Callable, *, backend: str | Callable, breaks: Breaks, policy: Policy | None, dynamic: bool | None, mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Region:  # fmt: skip
    own, rest = split_options(options)
    region = Region(fn, lookup_backend(backend, mode, rest or None), Options(policy=policy, breaks=breaks, dynamic=dynamic, **own))
    _REGIONS.add(region)
    return region


def _compiled(make: Callable[[Callable], Region], fn: Callable) -> Compiled:
    return Compiled(fn, make(fn), functools.partial(_compiled, make))


def _dispatcher(make: Callable[[Callable], Region], mod: nn.Module) -> Callable:
    # Its own variable: nothing else holds the region before its dispatcher does.
    region = make(mod)
    return region.entry.dispatcher


def original(fn: Any) -> Any:
    """What a compiled callable was made of."""
    return fn._orig_mod if isinstance(fn, OptimizedModule) else fn.__wrapped__


def regions() -> list[Region]:
    """All compiled regions that are alive."""
    return list(_REGIONS)


def reset() -> None:
    """Forgets what all regions have captured, and the marks of operators and of C functions; regions capture again at their next call."""
    for region in regions():
        region.forget()
    MARKS.forget()
    DIMS.clear()
    LOGS.forget()


def set_policy(policy: Policy | None) -> Policy | None:
    """The rules of the whole process, in all threads, from now on; None: no rules. -> the policy before."""
    if policy is not None and not isinstance(policy, Policy):
        raise BadArgument(f"set_policy takes a fineline.Policy or None, not a {type(policy).__name__}")
    before, SCOPE.process = SCOPE.process, policy
    return before


def explain(f: Callable, *, fullgraph: bool = False, policy: Policy | None = None, dynamic: bool | None = None) -> Callable[..., Explanation]:
    """``explain(f)(*args)`` captures one call of ``f`` and tells what became of it; nothing is kept."""
    check_callable(f)

    def explained(*args: Any, **kwargs: Any) -> Explanation:
        target = original(f) if isinstance(f, (OptimizedModule, Compiled)) else f
        breaks: Breaks = "none" if fullgraph else "any"
        region = _region(target, backend="eager", breaks=breaks, policy=policy, dynamic=dynamic)
        call = region.entry.dispatcher
        name = getattr(target, "__qualname__", type(target).__qualname__)
        tree = Tree(name, place_of(target))
        region.tally, region.machine = Tally(), functools.partial(Watched, tree)
        began = time.perf_counter()
        with region.tally:
            call(*args, **kwargs)
        seconds = time.perf_counter() - began
        guards = [guard for s in region.segments() for guard in describe_guards(s)]
        programs = "\n".join(s.source for s in region.segments())
        return Explanation(
            name, list(region.events), list(region.graphs), guards, programs, region.tally.counts,
            rules=dict(region.fired), marks=[mark for mark in MARKS if not region.fired[mark]], tree=tree.result(),
            seconds=seconds,
        )  # fmt: skip

    return explained
