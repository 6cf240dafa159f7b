"""The table of README: what the tests have given on each Python and each PyTorch. docs/versions.json has what it is made from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.versions.environments import ALL
from tests.versions.interpreters import ROOT
from tests.versions.runs import OTHERS, SETS, Record, Results

KEPT = ROOT / "docs" / "versions.json"
README = ROOT / "README.md"
BEGIN, END = "<!-- made by `make versions-table` -->", "<!-- end -->"
_SHARES = {"1": "", "2": "½ ", "3": "⅓ ", "4": "¼ "}


def table(results: Results) -> str:
    """Returns the table of these results, with what failed and what was left out below it."""
    names = [name for name in ALL if results.get(name)]
    rows = [["tests", *[_title(results[name]) for name in names]], ["---"] * (len(names) + 1)]
    for tests in [tests for tests in (*SETS, *OTHERS) if any([tests in results[name] for name in names])]:
        rows.append([tests, *[_cell(results[name].get(tests)) for name in names]])
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([*lines, "", *_failures(results), *_omissions(results)])


def _title(records: dict[str, Record]) -> str:
    newest = max(records.values(), key=lambda record: record["date"])
    return f"Python {newest['python']}, PyTorch {newest['torch'].partition('+')[0]}"


def _cell(record: Record | None) -> str:
    if record is None:
        return "–"
    share = record["share"].partition("/")[2]
    failed = f"**{len(record['failed'])}**" if record["failed"] else "0"
    return f"{_SHARES.get(share, f'1/{share} ')}{record['passed']} / {failed} / {sum(record['skipped'].values())}"


def _records(results: Results) -> Iterable[tuple[str, Record]]:
    return [(name, record) for name in ALL for record in results.get(name, {}).values()]


def _failures(results: Results) -> list[str]:
    failures: dict[str, list[str]] = {}
    for name, record in _records(results):
        for test in record["failed"]:
            failures.setdefault(test, []).append(name)
    return ["Failed:", "", *[f"- `{test}` ({', '.join(names)})" for test, names in sorted(failures.items())], ""] if failures else []


def _omissions(results: Results) -> list[str]:
    reasons = Counter[str]()
    for _, record in _records(results):
        reasons.update(record["skipped"])
    return ["Skipped, over all runs:", "", *[f"- {number}: {reason}" for reason, number in reasons.most_common()]] if reasons else []


def in_readme(text: str, made: str) -> str:
    """Returns README's text with the table between its markers."""
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n{made}\n{END}{after}"


def update(results: Results, readme: Path = README) -> None:
    readme.write_text(in_readme(readme.read_text(), table(results)))
