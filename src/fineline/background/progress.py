"""The lines on a terminal about a graph that takes long to compile in the background.

Whole lines: the user's program prints at the same time, and would break a line that is redrawn.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

# Seconds after which the first line comes.
LONG = 3.0


@contextmanager
def shown(name: str, where: str) -> Iterator[None]:
    """Prints a line on the terminal if the block takes 3 s, and one at its end.

    Whole lines: the user's program prints at the same time, and would break a line that is redrawn.
    """
    console = Console(stderr=True, highlight=False)
    said, began = list[str](), time.monotonic()

    def say(text: str) -> None:
        said.append(text)
        console.print(f"fineline: {name} ({where}) {text}", markup=False, soft_wrap=True)

    timer = threading.Timer(LONG, say, ("is being compiled in the background; its calls run eagerly until then",))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if said:
            say(f"was compiled for {time.monotonic() - began:.0f} s")
