"""What tests of the report's page read: the data of a page."""

from __future__ import annotations

import json
from typing import Any


def page_data(page: str) -> Any:
    """The data in the text of a page, as its script reads it."""
    _, _, rest = page.partition('<script type="application/json" id="data">')
    return json.loads(rest.partition("</script>")[0])
