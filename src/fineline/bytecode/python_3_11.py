"""CPython 3.11, whose instructions the interpreter knows as they are."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fineline.bytecode.lowering import Version

# Code of modules, class bodies and coroutines: the interpreter runs functions only.
REFUSED: Mapping[str, str] = MappingProxyType({
    **dict.fromkeys(("ASYNC_GEN_WRAP", "BEFORE_ASYNC_WITH", "END_ASYNC_FOR", "GET_AITER", "GET_ANEXT", "GET_AWAITABLE"), "FL405"),
    "IMPORT_STAR": "FL423",
})  # fmt: skip

# A comparison checks together with the jump after it.
_CHECKS = frozenset({
    "RESUME", "PRECALL", "CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD", "COMPARE_OP",
    *[f"POP_JUMP_BACKWARD_IF_{condition}" for condition in ("TRUE", "FALSE", "NONE", "NOT_NONE")],
})  # fmt: skip

VERSION = Version(rules={}, refused=REFUSED, checks=_CHECKS, warns_of=frozenset(), converts_at_start=True)
