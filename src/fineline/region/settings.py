"""The settings in ``torch._dynamo.config``: which hold for what is captured of regions made while `install` holds, and which say nothing there."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from fineline.region.options import Options

log = logging.getLogger("fineline")

# Those that are options of a region.
OPTIONS = (
    "disable", "recompile_limit", "error_on_recompile", "fail_on_recompile_limit_hit", "suppress_errors", "capture_scalar_outputs",
    "capture_dynamic_output_shape_ops",
)  # fmt: skip
# What they ask for is so in any case, or they are about what the other compiler prints.
IDLE = frozenset(
    {
        "verbose", "log_compilation_metrics", "report_guard_failures", "inline_inbuilt_nn_modules", "guard_nn_modules", "allow_rnn",
        "capture_func_transforms", "capture_autograd_function", "nested_graph_breaks", "enable_trace_contextlib", "dont_skip_tracing",
        "accumulated_recompile_limit", "automatic_dynamic_shapes", "trace_numpy",
    }
)  # fmt: skip
WHY: Mapping[str, str] = MappingProxyType(
    {
        "compiled_autograd": "the backward pass is the backend's",
    }
)


class Settings:
    """What a user has set."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def tell(self) -> None:
        """Tells of those that have no effect, once each."""
        # To read a deprecated one warns.
        known = [name for name, entry in _config()._config.items() if entry.alias is None and not entry.deprecated and name[0] != "_"]
        changed = dict(_changed(known))
        for name in changed.keys() - {*OPTIONS, *IDLE, *self._told}:
            self._told.add(name)
            why = WHY.get(name, "it is the other compiler's")
            log.warning("fineline: torch._dynamo.config.%s = %r has no effect: %s", name, changed[name], why)

    def options(self, defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """What they now say of the options of a region, which has ``given`` ones of its own: those stand above."""
        now = {name: getattr(Options, name) for name in OPTIONS} | dict(defaults) | dict(_changed(OPTIONS)) | dict(given)
        return {name: now[name] for name in OPTIONS}


def _config() -> Any:
    # Looked up, as what compiled modules are pickled with has no place for a module.
    return sys.modules["torch._dynamo.config"]


def _changed(names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    if "torch._dynamo.config" in sys.modules:
        for name in names:
            value, default = getattr(_config(), name), _config()._config[name].default
            if value is not default and value != default:
                yield name, value
