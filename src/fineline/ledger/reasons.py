"""The stable part of an event's reason: what is the same on another machine, after unrelated edits, and for other data."""

from __future__ import annotations

import re

# The places at which a text names a file: with a line, of which the file's name stays, and with folders, of which the last name stays.
_FILE_AND_LINE = re.compile(r"(?:[^\s'\"()\[\],;]*/)?([^\s/'\"()\[\],;]+\.\w+):\d+")
_FOLDERS = re.compile(r"(?<![\w./])(?:/[^\s/'\"(),;:]+)+/([^\s/'\"(),;:]*)")
_TEMPORARY = re.compile(r"\btmp[a-z0-9_]{8}\b")
# Frames of their own up to Python 3.11.
COMPREHENSION = re.compile(r"(?:\.<locals>)?\.<(?:list|dict|set)comp>")
_READ_AT = re.compile(r" \(read at .*\)$")
_NUMBERS = (
    re.compile(r"\b0x[0-9a-fA-F]+\b"),
    re.compile(r"(?<![\w.])\d+(?:x\d+)+\b"),
    # Not digits of a name, such as float32; but the place of a module in a sequence: layers.0.weight.
    re.compile(r"(?<![\w.])-?\d+(?:\.\d+)*\.?(?:[eE][+-]?\d+)?(?![\w])|(?<=\.)\d+(?=\.)"),
)
_SEVERAL = re.compile(r"\bN(?:, ?N)*,?(?=[)\]])")
# The subject of a failed guard, which may hold texts as keys, and what has changed of it.
_SUBJECT = re.compile(r"((?>(?:(?<!\w)'[^']*'|(?<!\w)\"[^\"]*\"|(?!: ).)+)): (.*)", re.S)
# The values at the end of other changes.
_VALUES = re.compile(r", (?:and (?:it is|they are)|for) .*|(?<=as keys), .*", re.S)
_ABSENT = "does not have it"
# What a guard compares of a tensor or a container. Other words before an arrow belong to a value.
ASPECTS = frozenset({"class", "dtype", "device", "layout", "sizes", "strides", "requires_grad", "dispatch", "is_inference", "length", "keys"})
# The guard on PyTorch's state has an aspect always.
_STATE = "PyTorch's state"
# Characters that are read of a reason, which may quote an exception of any length, and those that are kept.
_MOST, _LONGEST = 2000, 200


def stable_reason(kind: str, reason: str) -> str:
    """Returns the part of the reason of an event of a ``kind`` that keys an entry. A stable reason stays as it is."""
    reason = reason[:_MOST]
    if kind == "recompile":
        reason = _guard(_READ_AT.sub("", reason))
    elif kind == "limit":
        reason = reason.partition(";")[0]
    text = COMPREHENSION.sub("", " ".join(reason.split()))
    text = _TEMPORARY.sub("tmpN", _FOLDERS.sub(r"\1", _FILE_AND_LINE.sub(r"\1", text)))
    for numbers in _NUMBERS:
        text = numbers.sub("N", text)
    text = _SEVERAL.sub("N", text)
    return re.sub(r"\bN operator\b", "N operators", text)[:_LONGEST].strip()


def _guard(text: str) -> str:
    """Returns the failed guard of a recompile without the values before and now."""
    found = _SUBJECT.fullmatch(text)
    if found is None:
        return text
    subject, change = found.groups()
    if " -> " in change:
        word = change.partition(" ")[0]
        return f"{subject}: {word} changed" if word in ASPECTS or subject == _STATE else f"{subject} changed"
    if change.startswith("no longer true"):
        return f"{subject} changed"
    if change.endswith(_ABSENT):
        return f"{subject}: {_ABSENT}"
    return f"{subject}: {_VALUES.sub('', change)}"
