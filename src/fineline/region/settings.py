"""PyTorch's compiler settings as a user has set them: the options that follow from them, and those without effect."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from fineline.region.options import Options
from fineline.region.torch_settings import COMPILER, DYNAMO, ENVIRONMENT, FIRST_VALUES, REPORTED, Row
from fineline.report.logs import LOGS, NOT_HERE, OF_TORCH

log = logging.getLogger("fineline")

# The settings that are options of a region under the same name.
OPTIONS = (
    "disable", "recompile_limit", "error_on_recompile", "fail_on_recompile_limit_hit", "suppress_errors", "capture_scalar_outputs",
    "capture_dynamic_output_shape_ops", "optimize_ddp",
)  # fmt: skip


class Settings:
    """The user's settings in ``torch._dynamo.config``, ``torch.compiler.config`` and the environment."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    # -- settings without effect -------------------------------------------------------------------------------------------
    def tell(self) -> None:
        """Reports each setting that has no effect, or has one only in the backend, once."""
        self.follow_logs()
        for name, value, row in _environment():
            # The setting that gets its first value from the variable is reported with it.
            key = FIRST_VALUES.get(name, name)
            self._tell(key, f"the environment variable {name}={value}", row)
        for home, table in (("torch._dynamo.config", DYNAMO), ("torch.compiler.config", COMPILER)):
            for name, value in _changed(home, table):
                self._tell(name, f"{home}.{name} = {value!r}", table[name])

    def _tell(self, key: str, what: str, row: Row) -> None:
        effect = "has no effect" if row.effect == "none" else "has an effect in the backend alone"
        self.tell_once(key, f"{what} {effect}: {row.text}")

    def tell_once(self, key: str, text: str) -> None:
        if key not in self._told:
            self._told.add(key)
            log.warning("fineline: %s", text)

    def follow_logs(self) -> None:
        """Logs the topics of TORCH_LOGS and ``torch._logging.set_logs``, and reports those without a counterpart, once each."""
        state = torch._logging._internal.log_state
        asked = set(state.artifact_names)
        if logging.getLevelName(state.log_qname_to_level.get("torch._dynamo", logging.WARNING)) in ("DEBUG", "INFO"):
            asked.add("dynamo")
        LOGS.follow({category for name in asked for category in OF_TORCH.get(name, ())})
        for name in sorted(asked & NOT_HERE.keys()):
            self.tell_once(f"TORCH_LOGS {name}", f"the topic {name!r} of TORCH_LOGS has no effect: {NOT_HERE[name]}")

    # -- settings with an effect -------------------------------------------------------------------------------------------
    @property
    def disabled(self) -> bool:
        """Returns whether the environment makes torch.compile return its argument."""
        return os.environ.get("TORCHDYNAMO_DISABLE") == "1"

    def options(self, defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the options of a region that follow from the settings now; ``given``, the region's own, override them."""
        # Compared with fineline's defaults, because those in PyTorch's table may come from the environment.
        config = sys.modules.get("torch._dynamo.config")
        now = {name: getattr(config, name, getattr(Options, name)) for name in OPTIONS}
        changed = {name: value for name, value in now.items() if value != getattr(Options, name)}
        return {"dynamic": _dynamic(config), **{k: v for k, v in {**now, **defaults, **changed, **given}.items() if k in (*OPTIONS, "dynamic")}}


def _dynamic(config: Any) -> bool | None:
    if not getattr(config, "assume_static_by_default", True):
        return True
    return None if getattr(config, "automatic_dynamic_shapes", True) else False


def _environment() -> Iterator[tuple[str, str, Row]]:
    """Yields the variables that are set and have no effect, or a partial one."""
    rows = {name: DYNAMO.get(setting) or COMPILER[setting] for name, setting in FIRST_VALUES.items()} | dict(ENVIRONMENT)
    for name, row in rows.items():
        value = os.environ.get(name, "")
        if row.effect in REPORTED and value not in ("", "0"):
            yield name, value, row


def _changed(home: str, table: Mapping[str, Row]) -> Iterator[tuple[str, Any]]:
    """Yields the settings that have been changed and have no effect, or a partial one."""
    # Looked up each time, because objects that are pickled with compiled modules cannot contain a Python module.
    config: Any = sys.modules.get(home)
    for name, row in table.items() if config is not None else ():
        # To read one that is deprecated warns; to set it has warned before.
        if row.effect in REPORTED and name in config._config and not config._config[name].deprecated:
            value, default = getattr(config, name), config._config[name].default
            if value is not default and value != default:
                yield name, value
