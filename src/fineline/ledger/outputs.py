"""A comparison as text for people, as annotations of GitHub's, and as SARIF."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote

from fineline import __version__
from fineline.ledger.comparison import Comparison
from fineline.ledger.file import Entry
from fineline.ledger.findings import KINDS, Finding
from fineline.refusals import REFUSALS


class Paths:
    """Paths as messages show them. Made when a run begins: the program may change its folder."""

    def __init__(self) -> None:
        working = Path.cwd()
        self._working = working
        # Annotations are relative to the repository.
        self.repository = next((folder for folder in (working, *working.parents) if (folder / ".git").exists()), working)

    def shown(self, file: str | Path) -> str:
        """Returns a path from the working folder, if it is in there."""
        return _below(str(file), self._working)

    def in_repository(self, file: str | Path) -> str:
        return _below(str(file), self.repository)


def _below(file: str, folder: Path) -> str:
    path = Path(file)
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.as_posix()


# -- text ------------------------------------------------------------------------------------------------------------------
def as_text(comparison: Comparison, paths: Paths, accept: str) -> str:
    """Returns the differences for people. ``accept``: what writes the list."""
    name = paths.shown(comparison.ledger.path)
    new, gone, fewer = comparison.new, comparison.gone, comparison.fewer
    if not (new or gone or fewer):
        return f"{name}: as listed, {len(comparison.findings)} of {len(comparison.ledger.entries)} entries\n"
    numbers = [(len(new), "new"), (len(gone), "gone"), (len(fewer), "at fewer places")]
    lines = [f"{name}: {', '.join([f'{n} {word}' for n, word in numbers if n])}"]
    for finding in new:
        lines += finding_lines(comparison, finding, paths)
    lines += [f"  gone:  {_entry_text(entry)}" for entry in gone]
    lines += [f"  fewer: {_entry_text(entry)}: at {len(found.places)} of {entry.count} places" for entry, found in fewer]
    lines.append(f"  {'Accept what is new, and remove what is gone' if new else 'Remove what is gone'}: {accept}")
    return "\n".join(lines) + "\n"


def finding_lines(comparison: Comparison, finding: Finding, paths: Paths) -> list[str]:
    """Returns the lines about a finding that the ledger does not list."""
    key, listed = finding.key, comparison.listed(finding)
    label = "more:  " if listed else "new:   "
    lines = [f"  {label}{KINDS[key.kind]} {key.id} in {key.function}: {finding.said}"]
    if listed:
        lines.append(f"    now  at {len(finding.places)} places; the ledger lists {listed}")
    lines.append(f"    at   {paths.shown(finding.file)}:{finding.line}" + (f" and {_others(finding)}" if len(finding.places) > 1 and not listed else ""))
    if finding.callers:
        lines.append("    from " + "\n         ".join([paths.shown(line) for line in finding.callers]))
    if finding.rule:
        lines.append(f"    rule {finding.rule}")
    return [*lines, f"    next {finding.next_step}"]


def _others(finding: Finding) -> str:
    n = len(finding.places) - 1
    return f"{n} other place{'' if n == 1 else 's'}"


def _entry_text(entry: Entry) -> str:
    return f"{KINDS[entry.key.kind]} {entry.key.id} in {entry.key.function}: {entry.key.reason}"


def written_text(comparison: Comparison, paths: Paths) -> str:
    """Returns what an update has done."""
    n = len(comparison.findings)
    more = sum([comparison.listed(finding) > 0 for finding in comparison.new])
    numbers = [(len(comparison.new) - more, "new"), (more, "at more places"), (len(comparison.gone), "gone"), (len(comparison.fewer), "at fewer places")]
    changes = ", ".join([f"{n} {word}" for n, word in numbers if n]) or "nothing has changed"
    return f"{paths.shown(comparison.ledger.path)}: {n} entr{'y' if n == 1 else 'ies'} met; {changes}\n"


# -- GitHub ----------------------------------------------------------------------------------------------------------------
def as_github(comparison: Comparison, paths: Paths, accept: str) -> str:
    """Returns workflow commands: an error at each place that is new, and a notice for each entry that is gone."""
    lines = []
    for finding in comparison.new:
        title = f"{KINDS[finding.key.kind]} {finding.key.id}: {finding.title}"
        message = f"{_message(comparison, finding)}\n{finding.next_step}\nAccept it: {accept}"
        # Code without a file has no place.
        place = {} if finding.file.startswith("<") else {"file": paths.in_repository(finding.file), "line": str(finding.line)}
        lines.append(_command("error", message, **place, title=title))
    ledger = paths.in_repository(comparison.ledger.path)
    for entry in comparison.gone:
        lines.append(_command("notice", f"{_entry_text(entry)}", file=ledger, line=str(entry.line), title="gone from the program, still in the ledger"))
    for entry, found in comparison.fewer:
        text = f"{_entry_text(entry)}: at {len(found.places)} of {entry.count} places"
        lines.append(_command("notice", text, file=ledger, line=str(entry.line), title="at fewer places than the ledger lists"))
    return "".join([f"{line}\n" for line in lines])


def _command(name: str, message: str, **properties: str) -> str:
    escaped = ",".join([f"{key}={_escaped(value).replace(':', '%3A').replace(',', '%2C')}" for key, value in properties.items()])
    return f"::{name} {escaped}::{_escaped(message)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _message(comparison: Comparison, finding: Finding) -> str:
    listed = comparison.listed(finding)
    more = f"; at {len(finding.places)} places, and the ledger lists {listed}" if listed else ""
    return f"{KINDS[finding.key.kind]} in {finding.key.function}: {finding.said}{more}"


# -- SARIF -----------------------------------------------------------------------------------------------------------------
def as_sarif(comparison: Comparison, paths: Paths, accept: str) -> str:
    """Returns a log of SARIF 2.1.0: a result for each finding that is new, and a notification for each entry that is gone."""
    ids = sorted({finding.key.id for finding in comparison.new})
    gone = [f"gone: {_entry_text(entry)}" for entry in comparison.gone]
    gone += [f"at {len(found.places)} of {entry.count} places: {_entry_text(entry)}" for entry, found in comparison.fewer]
    run = {
        "tool": {"driver": {"name": "fineline", "version": __version__, "rules": [_rule(id) for id in ids]}},
        "originalUriBaseIds": {"REPOSITORY": {"uri": f"{paths.repository.as_uri()}/"}},
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [{"level": "note", "message": {"text": text}} for text in gone],
            }
        ],
        "results": [_result(comparison, finding, ids, paths, accept) for finding in comparison.new],
    }
    return json.dumps({"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _rule(id: str) -> dict[str, object]:
    words = REFUSALS[id]
    texts = {"shortDescription": words.title, "fullDescription": words.explanation or words.title, "help": words.next_step}
    return {"id": id, **{name: {"text": text} for name, text in texts.items()}}


def _result(comparison: Comparison, finding: Finding, ids: list[str], paths: Paths, accept: str) -> dict[str, object]:
    key = finding.key
    uri = paths.in_repository(finding.file)
    # A file outside of the repository has its own place; code without a file has none.
    file: dict[str, object] = {"uri": quote(uri), "uriBaseId": "REPOSITORY"}
    if os.path.isabs(uri):
        file = {"uri": Path(uri).as_uri()}
    location: dict[str, object] = {"logicalLocations": [{"fullyQualifiedName": key.function, "kind": "function"}]}
    if not uri.startswith("<"):
        location["physicalLocation"] = {"artifactLocation": file, "region": {"startLine": max(finding.line, 1)}}
    return {
        "ruleId": key.id,
        "ruleIndex": ids.index(key.id),
        "level": "error",
        "baselineState": "new",
        "message": {"text": f"{_message(comparison, finding)}. {finding.next_step} Accept it: {accept}"},
        "locations": [location],
        "partialFingerprints": {"finelineLedger/v1": hashlib.sha256("\0".join(key).encode()).hexdigest()},
    }


FORMATS: Mapping[str, Callable[[Comparison, Paths, str], str]] = MappingProxyType({"text": as_text, "github": as_github, "sarif": as_sarif})
