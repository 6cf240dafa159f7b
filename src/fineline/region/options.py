"""The options that a user can set for one region."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from types import CodeType, NoneType
from typing import Any, Literal, NamedTuple

from fineline.errors import BadArgument
from fineline.policy.policy import Policy
from fineline.region.guard_dispatch import Evaluator

KNOWN: dict[str, Any] = {
    "numpy": str, "recompile_limit": int, "min_graph_operators": int, "evaluator": str, "force_graph_breaks": bool, "verify": bool, "first_call": str,
    "guard_export_fn": Callable, "guard_fail_fn": Callable,
    "capture_scalar_outputs": bool, "capture_dynamic_output_shape_ops": bool,
    "error_on_recompile": bool, "fail_on_recompile_limit_hit": bool, "suppress_errors": bool, "fall_back": bool, "optimize_ddp": bool, "check_ranks": bool,
    "shadow": Real, "settings": Callable, "wait": bool,
}  # fmt: skip
FirstCall = Literal["live", "compiled"]
NumPy = Literal["capture", "eager"]
Breaks = Literal["any", "declared", "none"]


class GuardFailure(NamedTuple):
    """A call that no program of a region fits: the first guard that failed, and the code of the region's function."""

    reason: str
    orig_code: CodeType | None


@dataclass
class Options:
    """The options of one region.

    ``recompile_limit``: programs a region keeps. ``evaluator``: "native" or "reference". ``force_graph_breaks``: one after each operator.
    ``min_graph_operators``: a segment after a graph break that no rule declares runs eagerly if it has fewer operators; None: the
    backend's own number.
    ``verify``: calls under `allow_in_graph` run twice at capture, and must return the same.
    ``first_call``: "live", the capturing call runs the operators one by one; "compiled", it runs the backend's code already.
    ``numpy``: "capture", NumPy's functions on arrays from tensors are operators of the graph; "eager", they are graph breaks.
    ``capture_scalar_outputs`` and ``capture_dynamic_output_shape_ops``: a number that is read from a tensor, or a size that depends on its
    values, is a symbol inside the graph instead of a graph break; ``fullgraph=True`` means both.
    ``error_on_recompile`` and ``fail_on_recompile_limit_hit``: raise an error then. ``suppress_errors``: a graph that the backend fails on
    runs as it was captured. ``fall_back``: calls whose compiled graph fails run eagerly, however often that happens; otherwise the second
    failure of a graph is an error. ``guard_export_fn`` gets the guards of each program, ``guard_fail_fn`` each call that is captured again.
    ``optimize_ddp``: a graph inside of a DistributedDataParallel is cut at its buckets. ``check_ranks``: the first call is captured on
    fakes, and each of its captures is compared between all ranks before anything of it runs.
    ``shadow``: the share of calls, from 0 to 1, whose graphs run eagerly as well, on copies, to report the first difference.
    ``wait``: whether a call waits for the backend; otherwise graphs are compiled in the background, and run as they were captured until then.
    ``settings``: called before each capture, and returns the values of these options from then on.
    """

    policy: Policy | None = None
    # The name of the region in reports; None: the name of its function.
    name: str | None = None
    # The graph breaks that are allowed: any, those that a user's rule declares, none.
    breaks: Breaks = "any"
    recompile_limit: int = 8
    min_graph_operators: int | None = None
    evaluator: Evaluator = "native"
    force_graph_breaks: bool = False
    verify: bool = False
    # Whether the graph is exported: nothing around it handles its errors.
    exported: bool = False
    # Which sizes and numbers are symbolic: None, those that have changed; True, all; False, only marked ones.
    dynamic: bool | None = None
    first_call: FirstCall = "live"
    # Whether arrays of NumPy that share memory with tensors, and what is computed from them, are parts of graphs.
    numpy: NumPy = "capture"
    capture_scalar_outputs: bool = False
    capture_dynamic_output_shape_ops: bool = False
    error_on_recompile: bool = False
    fail_on_recompile_limit_hit: bool = False
    suppress_errors: bool = False
    fall_back: bool = False
    optimize_ddp: bool | str = True
    check_ranks: bool = False
    shadow: float = 0
    wait: bool = True
    # Whether nothing more is captured.
    disable: bool = False
    settings: Callable[[], Mapping[str, Any]] | None = None
    guard_export_fn: Callable[[list[str]], object] | None = None
    guard_fail_fn: Callable[[GuardFailure], object] | None = None

    def renew(self) -> bool:
        """Takes the current values of the settings; returns whether there are settings."""
        for name, value in self.settings().items() if self.settings is not None else ():
            setattr(self, name, value)
        return self.settings is not None

    @property
    def limit_is_error(self) -> bool:
        return self.fullgraph or self.fail_on_recompile_limit_hit

    @property
    def fullgraph(self) -> bool:
        return self.breaks == "none"


def with_arguments(options: dict[str, Any] | None, **arguments: Any) -> dict[str, Any] | None:
    """Returns ``options`` with the arguments that are not None, which come before the options of their names."""
    given = {name: value for name, value in arguments.items() if value is not None}
    return options if not given else {**_checked(options), **given}


def _checked(options: dict[str, Any] | None) -> dict[str, Any]:
    if not isinstance(options, (dict, NoneType)):
        raise BadArgument(f"options is a dict, not a {type(options).__name__}", id="FL206")
    return options or {}


def split_options(options: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Splits options into fineline's own and the backend's."""
    own: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for key, value in _checked(options).items():
        kind = KNOWN.get(key)
        if kind is None:
            rest[key] = value
            continue
        if not isinstance(value, kind):
            raise BadArgument(f"option {key!r} takes a {kind.__name__}, not {value!r}")
        own[key] = value
    if own.get("min_graph_operators", 1) < 1:
        raise BadArgument(f"option 'min_graph_operators' is at least 1, not {own['min_graph_operators']!r}")
    if not 0 <= own.get("shadow", 0) <= 1:
        raise BadArgument(f"option 'shadow' is a share of calls, from 0 to 1, not {own['shadow']!r}")
    if own.get("evaluator", "native") not in ("native", "reference"):
        raise BadArgument(f'option \'evaluator\' is "native" or "reference", not {own["evaluator"]!r}')
    if own.get("first_call", "live") not in ("live", "compiled"):
        raise BadArgument(f'option \'first_call\' is "live" or "compiled", not {own["first_call"]!r}')
    if own.get("numpy", "capture") not in ("capture", "eager"):
        raise BadArgument(f'option \'numpy\' is "capture" or "eager", not {own["numpy"]!r}')
    return own, rest
