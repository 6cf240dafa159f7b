"""Draws how_it_works.svg: the life of a compiled call, from the first one to the program that later ones run.

    python docs/pictures/how_it_works.py
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

WIDTH, HEIGHT = 880, 240
FONT = "font-family='system-ui, sans-serif'"


class Box(NamedTuple):
    x: int
    y: int
    w: int
    title: str
    lines: tuple[str, ...]
    color: str


FIRST = (
    Box(20, 44, 190, "your function", ("Python bytecode,", "real tensors"), "#e8eef7"),
    Box(250, 44, 190, "interpreter", ("runs it, returns its result,", "records what it does"), "#dcefe1"),
    Box(480, 20, 170, "guards", ("what the code read",), "#fdf1d6"),
    Box(480, 92, 170, "FX graphs", ("one between graph breaks",), "#fdf1d6"),
    Box(690, 44, 150, "program", ("compiled graphs,", "writes, results"), "#f3e1ea"),
)
LATER = (
    Box(20, 176, 190, "a later call", ("arguments",), "#e8eef7"),
    Box(250, 176, 190, "guards, in C++", ("a few microseconds",), "#fdf1d6"),
    Box(690, 176, 150, "program", ("the same",), "#f3e1ea"),
)
ARROWS = ((210, 74, 250, 74), (440, 64, 480, 44), (440, 84, 480, 116), (650, 44, 690, 66), (650, 116, 690, 84), (210, 202, 250, 202), (440, 202, 690, 202))
LABELS = ((545, 196, "all hold"), (355, 150, "one fails: that call is captured again"), (672, 32, "backend: inductor, aot_eager, yours"))


def drawn(box: Box) -> str:
    height = 30 + 16 * len(box.lines)
    parts = [f"<rect x='{box.x}' y='{box.y}' width='{box.w}' height='{height}' rx='6' fill='{box.color}' stroke='#555'/>"]
    parts += [f"<text x='{box.x + 10}' y='{box.y + 20}' {FONT} font-size='14' font-weight='600' fill='#222'>{box.title}</text>"]
    parts += [f"<text x='{box.x + 10}' y='{box.y + 38 + 16 * n}' {FONT} font-size='12' fill='#333'>{line}</text>" for n, line in enumerate(box.lines)]
    return "\n".join(parts)


def picture() -> str:
    arrows = [f"<line x1='{a}' y1='{b}' x2='{c}' y2='{d}' stroke='#555' stroke-width='1.5' marker-end='url(#tip)'/>" for a, b, c, d in ARROWS]
    labels = [f"<text x='{x}' y='{y}' {FONT} font-size='12' fill='#333'>{text}</text>" for x, y, text in LABELS]
    # A miss leads from the guards back to the interpreter; the backend stands between graphs and program.
    back = "<path d='M 345 176 L 345 106' stroke='#555' stroke-width='1.5' stroke-dasharray='4 3' fill='none' marker-end='url(#tip)'/>"
    tip = "<marker id='tip' viewBox='0 0 8 8' refX='8' refY='4' markerWidth='8' markerHeight='8' orient='auto'><path d='M0 0 L8 4 L0 8z' fill='#555'/></marker>"
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' role='img' aria-label='How a call is captured, and how later calls run'>"
    background = f"<rect width='{WIDTH}' height='{HEIGHT}' fill='white'/>"
    return "\n".join([head, f"<defs>{tip}</defs>", background, *map(drawn, (*FIRST, *LATER)), *arrows, back, *labels, "</svg>", ""])


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(picture())
