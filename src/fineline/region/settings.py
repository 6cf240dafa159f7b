"""The settings in ``torch._dynamo.config``: which hold for the regions that are made while `install` holds, and which say nothing there."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

log = logging.getLogger("fineline")

# Those that are options of a region.
OPTIONS = (
    "recompile_limit", "error_on_recompile", "fail_on_recompile_limit_hit", "suppress_errors", "capture_scalar_outputs",
    "capture_dynamic_output_shape_ops",
)  # fmt: skip
# What they ask for is so in any case, or they are about what the other compiler prints.
IDLE = frozenset(
    {
        "disable", "verbose", "log_compilation_metrics", "report_guard_failures", "inline_inbuilt_nn_modules", "guard_nn_modules", "allow_rnn",
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
    """What a user has set. ``config``: the module with the settings."""

    def __init__(self, config: Any) -> None:
        self._config = config
        self._told: set[str] = set()

    @property
    def disabled(self) -> bool:
        """Whether nothing is to be compiled at all."""
        return bool(self._config.disable)

    def options(self) -> dict[str, Any]:
        """The options that they mean for a region; others are told of, once each."""
        changed = dict(self._changed())
        for name in changed.keys() - {*OPTIONS, *IDLE, *self._told}:
            self._told.add(name)
            why = WHY.get(name, "it is the other compiler's")
            log.warning("fineline: torch._dynamo.config.%s = %r has no effect: %s", name, changed[name], why)
        return {name: changed[name] for name in OPTIONS if name in changed}

    def _changed(self) -> Iterator[tuple[str, Any]]:
        for name, entry in self._config._config.items():
            # To read a deprecated one warns.
            if entry.alias is None and not entry.deprecated and not name.startswith("_"):
                value = getattr(self._config, name)
                if value is not entry.default and value != entry.default:
                    yield name, value
