"""Programs of tests/language that are not captured as they should be, each with what is missing, and in which twins.

Their answers are right: a wrong one is never excused. A line goes when its program passes; until it does, the suite fails.
"""

from __future__ import annotations

GAPS: dict[tuple[str, str], str] = {}  # (program, twin) -> what is missing
