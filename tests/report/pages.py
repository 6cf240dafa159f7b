"""What tests of the report's page read: the data of a page."""

from __future__ import annotations

import json
from typing import Any


def page_data(page: str) -> Any:
    """The data in the text of a page, as its script reads it."""
    _, _, rest = page.partition('<script type="application/json" id="data">')
    return json.loads(rest.partition("</script>")[0])


def guards_of(program: Any) -> list[tuple[str, str, list[int], float]]:
    """The guards of a program of a page: expression, condition, place and cost."""
    table, found, name = program["guards"], [], ""
    for shared, rest, condition, at, cost in zip(*(table[part] for part in ("shared", "rest", "condition", "at", "cost")), strict=True):
        name = name[:shared] + rest
        found.append((name, table["conditions"][condition], at, cost))
    return found
