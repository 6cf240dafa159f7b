"""Writes errors.md: an entry for each id of src/fineline/refusals.toml, with the examples of docs/errors/.

    python docs/errors.py

docs/errors/ has a file for each id. Its cells, which begin with ``# %%`` and a word, are complete programs: "failing" shows the id,
"fixed" does not, and gives the same result as eager code; "event" shows an id for which no action is needed. tests/docs/test_errors_page.py runs them.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

DOCS = Path(__file__).parent
TABLE = DOCS.parent / "src" / "fineline" / "refusals.toml"

# By the first digit of the ids.
SECTIONS = {
    "0": "Events: nothing is refused",
    "1": "Errors: capture",
    "2": "Errors: arguments and rules",
    "3": "Errors: backends",
    "4": "Python code that breaks the graph, or runs eagerly",
    "5": "Tensors: graph breaks, and captures that start again",
    "6": "Export",
    "9": "fineline itself",
}
CELLS = {"event": "An example:", "failing": "A program that shows it:", "fixed": "A program without it:"}

# Ids that need another environment than the one that this page is written in.
ELSEWHERE = {
    "FL014": "It needs a process whose code has changed since another one saved a program: [saving.md](saving.md) shows one.",
    "FL111": "It needs several processes under `torchrun`, and the option `check_ranks` ([distributed.md](distributed.md)).",
    "FL222": "It needs a file that another version of fineline, PyTorch or Python has written ([saving.md](saving.md)).",
    "FL902": "It is the text of an ImportError: `import fineline` raises it in an environment with such a PyTorch.",
    "FL903": "It is a warning, logged once, in an environment with another PyTorch than that which fineline was built with.",
    "FL904": "It is a warning, logged once, in an environment with such a PyTorch.",
    "FL905": "It is the text of an ImportError: `import fineline` raises it on such a Python.",
    "FL906": "It is the text of a ModuleNotFoundError: the first use of a public name raises it in an environment without PyTorch.",
}
# Why no short program shows these ids.
NOT_SHOWN = {
    **ELSEWHERE,
    "FL100": "It is the id of the base class of all errors; each error that is raised has an id of its own.",
    "FL506": "No public operator in PyTorch's build for CPUs returns one; collectives do (`torch.distributed`), and need a process group.",
    "FL517": "It needs an expression for which PyTorch's symbolic sizes have no source, and none is known in a short program.",
    "FL601": "It is the id of the class `NotExported`; each refusal of export has an id of its own.",
    "FL901": "It shows a defect of fineline, and a defect that is known is corrected.",
}

INTRODUCTION = """\
# Errors, graph breaks and events

Each id has an entry: what it means, a program that shows it, a program without it, and the next step. An error has its id as `.id`, and its text begins
with it. `print(fineline.explain(fn)(*args))` shows the ids of graph breaks and of code that runs eagerly; `.events` has those of other events too,
except FL002 to FL004, which are for logs and `fineline run --report`.
Where no graph break is allowed (`fullgraph=True`), the error is FL102, and its reason names the id of the graph break.

`docs/errors.py` makes this page from `src/fineline/refusals.toml` and the programs in `docs/errors/`.
"""


def cells(id: str) -> dict[str, str]:
    """Returns the programs that show an id, by their words."""
    file = DOCS / "errors" / f"{id}.py"
    parts = re.split(r"^# %% (\w+)\n", file.read_text(), flags=re.M)[1:] if file.exists() else []
    return {word: program.strip() + "\n" for word, program in zip(parts[::2], parts[1::2], strict=True)}


def escaped(text: str) -> str:
    """Returns plain text as Markdown."""
    return text.replace("*", r"\*").replace("__", r"\_\_")


def entry(id: str, words: dict[str, str]) -> str:
    """Returns the entry for an id."""
    shown = "".join([f"{CELLS[word]}\n\n```python\n{program}```\n\n" for word, program in cells(id).items()])
    shown = shown or f"No short program shows it. {NOT_SHOWN[id]}\n\n"
    meaning = f"**{escaped(words['title'])}.** {escaped(words['explanation'])}".strip()
    return f"### {id}\n\n{meaning}\n\n{shown}**Next step.** {escaped(words['next_step'])}\n"


def page() -> str:
    """Returns the text of errors.md."""
    table = tomllib.loads(TABLE.read_text())
    index = ["| id | title |", "|---|---|", *[f"| [{id}](#{id.lower()}) | {escaped(words['title'])} |" for id, words in sorted(table.items())]]
    parts = [INTRODUCTION, "\n".join(index) + "\n"]
    for digit, title in SECTIONS.items():
        parts += [f"## {title}\n", *[entry(id, words) for id, words in sorted(table.items()) if id[2] == digit]]
    return "\n".join(parts)


if __name__ == "__main__":
    (DOCS / "errors.md").write_text(page())
