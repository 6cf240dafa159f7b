"""The ledger's file: TOML that people read in reviews, and may annotate. An update changes the entries that differ, and no other line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from fineline.errors import BadLedger
from fineline.ledger.findings import KINDS, Finding, Key
from fineline.ledger.reasons import stable_reason
from fineline.refusals import REFUSALS
from fineline.toml_file import TomlFile, toml_library, toml_type

VERSION = 1
HEAD = f"""\
# Graph breaks, eager stretches and recompiles that are accepted; fineline compares runs with this list.
# An entry may have a note. Updates keep notes, comments and the order.

version = {VERSION}
"""
# The keys of an entry, and whether it needs them.
_NEEDED: Mapping[str, bool] = MappingProxyType({"function": True, "id": True, "reason": True, "count": False, "rule": False, "note": False})
_HEADER = re.compile(rf"\[\[\s*(?:{'|'.join(KINDS)})\s*\]\]")


@dataclass
class Entry:
    """An entry of a ledger. ``count``: the most places that it accepts; ``line``: where it is in the file."""

    key: Key
    count: int
    rule: str
    line: int


@dataclass
class Block:
    """A part of the file's text. ``key``: that of the entry in it; None: text between entries."""

    text: str
    key: Key | None = None


class Ledger:
    """The entries of a ledger, and its text."""

    def __init__(self, path: Path, text: str, entries: list[Entry]) -> None:
        self.path = path
        self.entries = {entry.key: entry for entry in entries}
        self._text = text
        self._headers = {entry.line: entry.key for entry in entries}

    @classmethod
    def read(cls, path: Path, missing: str = "") -> Ledger:
        """Reads a ledger; raises `BadLedger` for a wrong one. ``missing``: how to make one; "": an absent file is an empty ledger."""
        if not path.exists():
            if missing:
                raise BadLedger(f"there is no file {path}", id="FL219", where=str(path), next_step=missing)
            return cls(path, "", [])
        file = TomlFile(path, _wrong)
        return cls(path, file.text, _entries(file))

    def updated(self, findings: Iterable[Finding], keep: bool = False) -> str:
        """Returns the text with an entry for each finding. ``keep``: entries that were not met stay, as do their counts."""
        found = {finding.key: finding for finding in findings}
        blocks: list[Block] = []
        for block in self._blocks():
            finding = found.get(block.key) if block.key is not None else None
            if block.key is not None and finding is not None:
                block.text = self._with_facts(block.text, self.entries[block.key], finding, keep)
            if block.key is None or finding is not None or keep:
                blocks.append(block)
        for key in sorted(found.keys() - self.entries.keys()):
            after = [i for i, block in enumerate(blocks) if block.key is not None and block.key < key]
            first = next((i for i, block in enumerate(blocks) if block.key is not None), len(blocks))
            blocks.insert(after[-1] + 1 if after else first, Block(_text(found[key]), key))
        text = ""
        for block in blocks:
            # An entry that is new, or that was the last one, has no empty line after it.
            text += "\n" * bool(text and not text.endswith("\n\n")) + (block.text.lstrip("\n") if text else block.text)
        return text.rstrip("\n") + "\n"

    def write(self, text: str) -> None:
        """Writes the file, unless it has this text."""
        if text == self._text:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(text, encoding="utf-8")
        except OSError as e:
            raise BadLedger(f"{self.path} can't be written: {e}", where=str(self.path)) from None

    # -- text ----------------------------------------------------------------------------------------------------------
    def _blocks(self) -> list[Block]:
        """Returns the text in parts: an entry has the comments right above it and in it, and not those that stand alone."""
        lines = _lines(self._text or HEAD)
        blocks: list[Block] = []
        at = 0
        for number, key in sorted(self._headers.items()):
            start = number - 1
            while start > at and lines[start - 1].lstrip().startswith("#"):
                start -= 1
            _add_rest(blocks, lines[at:start])
            blocks.append(Block("".join(lines[start:number]), key))
            at = number
        _add_rest(blocks, lines[at:])
        return blocks

    @staticmethod
    def _with_facts(text: str, entry: Entry, finding: Finding, keep: bool) -> str:
        """Returns the text of an entry with the count and the rule of a finding."""
        count = max(len(finding.places), entry.count if keep else 0)
        if (count, finding.rule) == (entry.count, entry.rule):
            return text
        document = toml_library().parse(text)
        table = document[entry.key.kind][0]
        for name, value, usual in (("count", count, 1), ("rule", finding.rule, "")):
            if value != usual:
                table[name] = value
            elif name in table:
                del table[name]
        return str(toml_library().dumps(document))


def _lines(text: str) -> list[str]:
    """Returns the lines of TOML, in which only a line feed ends one."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _add_rest(blocks: list[Block], lines: list[str]) -> None:
    """Adds the lines up to the next entry: the keys of the last one, and comments that stand alone after them."""
    end = max((i for i, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#")), default=-1) + 1
    # A comment in the line after the keys belongs to them.
    while blocks and end < len(lines) and lines[end].strip():
        end += 1
    if not blocks:
        end = 0
    elif not any([line.strip() for line in lines[end:]]):
        end = len(lines)
    if blocks:
        blocks[-1].text += "".join(lines[:end])
    if lines[end:]:
        blocks.append(Block("".join(lines[end:])))


def _text(finding: Finding) -> str:
    """Returns a new entry."""
    key, places = finding.key, len(finding.places)
    values = {"function": key.function, "id": key.id, "reason": key.reason, "count": places if places > 1 else "", "rule": finding.rule}
    lines = [f"{name} = {toml_library().item(value).as_string()}\n" for name, value in values.items() if value != ""]
    return f"[[{key.kind}]]\n{''.join(lines)}"


# -- reading ---------------------------------------------------------------------------------------------------------------
def _wrong(reason: str, where: str) -> BadLedger:
    return BadLedger(reason, where=where)


def _entries(file: TomlFile) -> list[Entry]:
    """Checks the document, and returns its entries."""
    plain = file.document.unwrap()
    for name in plain:
        if name != "version" and name not in KINDS:
            raise file.wrong(f"there is no key {name!r}; the keys are version, {', '.join(KINDS)}", name)
    if "version" not in plain:
        raise _wrong(f"it has no version; a ledger begins with version = {VERSION}", file.name)
    version = plain["version"]
    if version != VERSION or isinstance(version, bool):
        raise file.wrong(f"version is {VERSION} for this fineline, not {version!r}", "version")
    entries: list[Entry] = []
    seen: dict[Key, int] = {}
    lines = _header_lines(file.text, sum([len(plain[kind]) for kind in KINDS if isinstance(plain.get(kind), list)]))
    for kind in KINDS:
        if kind in plain and not isinstance(file.document[kind], toml_library().items.AoT):
            raise file.wrong(f"{kind} is an array of tables: each entry begins with [[{kind}]]", kind)
        for i, table in enumerate(plain.get(kind, [])):
            entry = _entry(file, kind, i, table, lines)
            if entry.key in seen:
                raise file.wrong(f"this entry occurs twice, first at line {seen[entry.key]}", kind, i)
            seen[entry.key] = entry.line
            entries.append(entry)
    return entries


def _entry(file: TomlFile, kind: str, i: int, table: Mapping[str, object], lines: Mapping[str, list[int]]) -> Entry:
    for name, value in table.items():
        if name not in _NEEDED:
            raise file.wrong(f"there is no key {name!r} in an entry; its keys are {', '.join(_NEEDED)}", kind, i, name)
        if name != "count" and not isinstance(value, str):
            raise file.wrong(f"{name} is a text, not {toml_type(value)}", kind, i, name)
        if name == "count" and not (isinstance(value, int) and not isinstance(value, bool) and value > 0):
            raise file.wrong(f"count is an integer from 1 on, not {value if isinstance(value, int) else toml_type(value)}", kind, i, name)
    for name, needed in _NEEDED.items():
        if needed and not table.get(name):
            raise file.wrong(f"an entry needs {name}", kind, i)
    if table["id"] not in REFUSALS:
        # Ids are never dropped: no other version has it.
        raise file.wrong(f"there is no id {table['id']!r}; docs/errors.md has all", kind, i, "id")
    # People may copy a reason from a message.
    key = Key(kind, str(table["function"]), str(table["id"]), stable_reason("limit" if table["id"] == "FL104" else kind, str(table["reason"])))
    count = table.get("count", 1)
    return Entry(key, count if isinstance(count, int) else 1, str(table.get("rule", "")), lines[kind][i])


def _header_lines(text: str, entries: int) -> Mapping[str, list[int]]:
    """Returns the line of each entry's header, by the kind of entry."""
    found: list[tuple[str, int]] = []
    lines = _lines(text)
    for number, line in enumerate(lines, 1):
        match = _HEADER.match(line.strip())
        if match is not None:
            found.append((match[0].strip("[] \t"), number))
    if len(found) != entries:
        # Some are lines of a text: only before a header, the file is complete.
        found = [(kind, number) for kind, number in found if _is_complete("".join(lines[: number - 1]))]
    return {kind: [number for k, number in found if k == kind] for kind in KINDS}


def _is_complete(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True
