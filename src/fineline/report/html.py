"""An HTML page of explanations that stands alone: it has no script, and loads nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from fineline.report.events import Event
from fineline.report.explain import SECTIONS, Explanation
from fineline.report.tree import Node
from fineline.stacks import folded

# A process of the program ("": the first one), and the functions that were compiled there.
Chapter = tuple[str, Sequence[Explanation]]

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; color: #222; background: #fff }
h1 { font-size: 1.5em } h2 { font-size: 1.25em; margin-top: 2em; border-bottom: 1px solid #ccc } h3 { font-size: 1em; margin-bottom: .3em }
table { border-collapse: collapse } td, th { padding: .2em .8em; border: 1px solid #ddd; text-align: left; vertical-align: top }
pre, code { font: 13px/1.4 ui-monospace, monospace } pre { background: #f6f6f6; padding: .6em; overflow-x: auto }
ul.tree, ul.tree ul { list-style: none; padding-left: 1.2em; border-left: 1px solid #eee }
.captured, .eager, .opaque, .constant { padding: 0 .4em; border-radius: .3em; font-size: .85em }
.captured { background: #cfe8cf } .eager { background: #fff; outline: 1px solid #bbb } .opaque { background: #ccc } .constant { background: #d5e3f7 }
.where { color: #777; font-size: .85em }
"""


def page(chapters: Iterable[Chapter]) -> str:
    """Returns the page: a table of all functions, then for each the breaks and recompiles, the calls, the graphs and the programs."""
    known = [(title, list(explanations)) for title, explanations in chapters]
    functions = [(title, explanation) for title, explanations in known for explanation in explanations]
    body = ["<h1>fineline: what became of each compiled function</h1>", *_summary(functions)]
    for i, (title, explanation) in enumerate(functions):
        body += _function(f"f{i}", title, explanation)
    head = f'<meta charset="utf-8"><title>fineline</title><style>{_STYLE}</style>'
    return "\n".join(["<!DOCTYPE html>", f'<html lang="en"><head>{head}</head><body>', *body, "</body></html>", ""])


def _summary(functions: list[tuple[str, Explanation]]) -> Iterator[str]:
    if not functions:
        yield "<p>No compiled function was called.</p>"
        return
    titles = ("function", "process", "graphs", "operators", "operators outside of graphs", "graph breaks", "recompiles")
    yield f"<table><tr>{''.join([f'<th>{title}</th>' for title in titles])}</tr>"
    for i, (title, e) in enumerate(functions):
        cells = [f'<a href="#f{i}">{escape(e.name)}</a>', escape(title)]
        cells += map(str, (len(e.graphs_kept), e.operators, e.eager_operators, len(e.breaks), len(e.recompiles)))
        yield f"<tr>{''.join([f'<td>{cell}</td>' for cell in cells])}</tr>"
    yield "</table>"


def _function(anchor: str, title: str, e: Explanation) -> Iterator[str]:
    yield f'<h2 id="{anchor}">{escape(e.name)}{escape(f" in {title}" if title else "")}</h2>'
    yield f"<p>{escape(e.headline)}</p>"
    for heading, kind in SECTIONS:
        events = [event for event in e.events if event.kind == kind]
        if events:
            yield f"<h3>{escape(heading)}</h3>"
            yield from _events(events)
    if e.tree is not None:
        yield '<h3>calls</h3><ul class="tree">'
        yield from _call(e.tree)
        yield "</ul>"
    if e.graphs_kept:
        yield "<h3>graphs</h3><ul>"
        yield from [f"<li>{escape(event.reason)} {_where(event.where)}</li>" for event in e.graphs_kept]
        yield "</ul>"
    for heading, texts in (("code of the graphs", e.codes), ("programs", e.programs), ("guards", ["\n".join(e.guards)] if e.guards else [])):
        if texts:
            yield f"<details><summary>{heading}</summary>"
            yield from [f"<pre>{escape(text.strip())}</pre>" for text in texts]
            yield "</details>"
    if e.rules:
        yield "<details><summary>rules</summary><table><tr><th>times</th><th>rule</th></tr>"
        yield from [f"<tr><td>{times}</td><td>{escape(str(rule))}</td></tr>" for rule, times in e.rules.items()]
        yield "</table></details>"


def _events(events: list[Event]) -> Iterator[str]:
    yield "<table><tr><th>id</th><th>what</th><th>where</th><th>rule</th><th>next</th></tr>"
    times: dict[tuple[str, ...], int] = {}
    for event in events:
        way = "<br>".join(map(escape, folded(event.stack))) or escape(event.where)
        row = (escape(event.id), escape(event.reason), f"<code>{way}</code>", escape(event.rule), escape(event.next_step))
        times[row] = times.get(row, 0) + 1
    for (id_, reason, *rest), n in times.items():
        often = f" ({n} times)" if n > 1 else ""
        yield f"<tr>{''.join([f'<td>{cell}</td>' for cell in (id_, reason + often, *rest)])}</tr>"
    yield "</table>"


def _call(node: Node, times: int = 1) -> Iterator[str]:
    operators = f", {node.operators} operator{'' if node.operators == 1 else 's'}" if node.operators else ""
    often = f" ({times} times)" if times > 1 else ""
    where = _where(f"{node.file}:{node.line}")
    yield f'<li><span class="{node.colour}">{node.colour}</span> {escape(node.name)}{operators}{often} {where}'
    if node.children:
        yield "<ul>"
        for child, n in node.folded_children():
            yield from _call(child, n)
        yield "</ul>"
    yield "</li>"


def _where(place: str) -> str:
    return f'<span class="where">{escape(place)}</span>'
