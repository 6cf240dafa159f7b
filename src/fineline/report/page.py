"""The page of a report: one HTML file that stands alone, with its style, its script and its data. It loads nothing from elsewhere."""

from __future__ import annotations

import functools
import html
import json
from collections.abc import Iterable
from importlib import resources

import jinja2

from fineline.report.page_facts import FunctionReport, page_facts

# Characters that could end the script of the data, or its line: they are written as escapes of JSON.
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
# The height of the page in a notebook.
FRAME_HEIGHT = 680


def page(reports: Iterable[FunctionReport]) -> str:
    """Returns the page about these functions."""
    reports = list(reports)
    data = json.dumps(page_facts(reports), ensure_ascii=False, separators=(",", ":")).translate(_ESCAPES)
    names = ", ".join(dict.fromkeys([report.name for report in reports]))
    text = "\n\n".join([report.text for report in reports]) or "No compiled function was called."
    return _template().render(data=data, title=names or "no function", text=text, style=_asset("page.css"), script=_asset("page.js"))


def frame(document: str) -> str:
    """Returns HTML that shows a page inside another document, such as a notebook: neither changes the other."""
    style = f"width:100%;height:{FRAME_HEIGHT}px;border:0"
    return f'<iframe style="{style}" sandbox="allow-scripts" title="fineline report" srcdoc="{html.escape(document)}"></iframe>'


def _asset(name: str) -> str:
    return resources.files("fineline.report").joinpath("assets", name).read_text(encoding="utf-8")


@functools.cache
def _template() -> jinja2.Template:
    return jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(_asset("page.html"))
