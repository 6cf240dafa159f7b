"""The file of a ledger: what is refused, with its line, and what an update changes and keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from fineline.errors import BadLedger
from fineline.ledger.comparison import compare
from fineline.ledger.file import HEAD, Ledger
from fineline.ledger.findings import Finding, Key

ENTRY = '[[break]]\nfunction = "m.f"\nid = "FL411"\nreason = "print can\'t be captured"\n'


def found(function: str = "m.f", kind: str = "break", reason: str = "print can't be captured", places: int = 1, rule: str = "") -> Finding:
    return Finding(Key(kind, function, "FL411", reason), reason, rule, "/m.py", 1, [], [str(i) for i in range(places)])


def read(tmp_path: Path, text: str) -> Ledger:
    path = tmp_path / "breaks.toml"
    path.write_text(text)
    return Ledger.read(path)


# The text, what is wrong, and the line.
WRONG = {
    "no TOML": ("version = 1\n[[break]\n", "this is not TOML", 2),
    "no version": (ENTRY, "it has no version", 0),
    "an empty file": ("", "it has no version", 0),
    "another version": (f"version = 2\n{ENTRY}", "version is 1 for this fineline, not 2", 1),
    "a version that is no number": (f"version = true\n{ENTRY}", "not True", 1),
    "a text as version": (f"\nversion = '1'\n{ENTRY}", "not '1'", 2),
    "a wrong table": (f"version = 1\n\n{ENTRY.replace('break', 'breaks')}", "there is no key 'breaks'; the keys are version, break, eager, recompile", 3),
    "a wrong key at the top": (f"version = 1\nnote = 'x'\n{ENTRY}", "there is no key 'note'", 2),
    "a wrong key": (f"version = 1\n{ENTRY}line = 3\n", "there is no key 'line' in an entry; its keys are function, id, reason, count, rule, note", 6),
    "a wrong key in the second": (f"version = 1\n{ENTRY}\n{ENTRY.replace('m.f', 'm.g')}fil = 3\n", "there is no key 'fil'", 11),
    "an unknown id": ("version = 1\n\n[[break]]\nfunction = 'f'\nid = 'FL999'\nreason = 'r'\n", "there is no id 'FL999'", 5),
    "a missing key": ("version = 1\n\n[[break]]\nfunction = 'f'\nid = 'FL411'\n", "an entry needs reason", 3),
    "an empty function": (f"version = 1\n{ENTRY.replace('m.f', '')}", "an entry needs function", 2),
    "a wrong type": (f"version = 1\n{ENTRY}note = 3\n", "note is a text, not an integer", 6),
    "a count of texts": (f"version = 1\n{ENTRY}count = 'many'\n", "count is an integer from 1 on, not a text", 6),
    "a count of zero": (f"version = 1\n{ENTRY}count = 0\n", "count is an integer from 1 on, not 0", 6),
    "a boolean as count": (f"version = 1\n{ENTRY}count = true\n", "count is an integer from 1 on, not True", 6),
    "one table": (f"version = 1\n{ENTRY.replace('[[break]]', '[break]')}", "break is an array of tables: each entry begins with [[break]]", 2),
    "inline tables": ("version = 1\nbreak = [{function = 'f', id = 'FL411', reason = 'r'}]\n", "break is an array of tables", 2),
    "a text as table": ("version = 1\neager = 'x'\n", "eager is an array of tables", 2),
    "an entry twice": (f"version = 1\n{ENTRY}\n{ENTRY}note = 'again'\n", "this entry occurs twice, first at line 2", 7),
    "a reason twice, with other numbers": (f"version = 1\n{ENTRY.replace('print', '1')}\n{ENTRY.replace('print', '2')}", "occurs twice", 7),
}


@pytest.mark.parametrize(("text", "reason", "line"), WRONG.values(), ids=WRONG)
def test_wrong_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, reason: str, line: int) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadLedger) as e:
        read(tmp_path, text)
    assert e.value.id == "FL218" and reason in e.value.reason and e.value.where == "breaks.toml" + (f":{line}" if line else "")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    for path in (tmp_path, tmp_path / "bytes.toml"):
        with pytest.raises(BadLedger, match="can't be read"):
            Ledger.read(path)
    with pytest.raises(BadLedger, match="FL219") as e:
        Ledger.read(tmp_path / "none.toml", missing="Write it.")
    assert e.value.next_step == "Write it."
    (tmp_path / "file").write_text("")
    with pytest.raises(BadLedger, match="can't be written"):
        Ledger.read(tmp_path / "file" / "none.toml").write("x")


def test_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "breaks.toml"
    ledger = Ledger.read(path)
    findings = [found(places=2, rule='disable("x")'), found("a.g", reason='a "text" of \\ and \n lines'), found("a.f", "recompile")]
    text = ledger.updated(findings)
    assert text.startswith(HEAD) and text.endswith("\n") and not text.endswith("\n\n")
    ledger.write(text)
    again = Ledger.read(path)
    assert list(again.entries) == sorted([f.key._replace(reason=" ".join(f.key.reason.split())) for f in findings], key=lambda key: (key.kind, key.function))
    assert again.entries[findings[0].key].count == 2 and again.entries[findings[0].key].rule == 'disable("x")'
    assert Ledger.read(tmp_path / "none.toml").updated([]) == HEAD


MANY = f"""\
# our ledger

version = 1   # of the format

# -- the net --------

# why it prints
[[break]]  # a comment
function = "m.b"   # here
id = "FL411"
note = '''
[[break]]
# of 2 lines'''
reason = "print can't be captured"
count = 3
# the last of the net

# -- the others --------

[[break]]
function = "m.a"
id = "FL411"
reason = "print can't be captured"


[[eager]]
function = "m.c"
id = "FL411"
reason = "print can't be captured"

{ENTRY.replace("m.f", "m.d")}"""


def test_an_update_without_differences_changes_nothing(tmp_path: Path) -> None:
    ledger = read(tmp_path, MANY)
    same = [found("m.b", places=3), found("m.a"), found("m.c", "eager"), found("m.d")]
    assert ledger.updated(same) == MANY
    assert [entry.line for entry in ledger.entries.values()] == [8, 20, 31, 26]
    # A part of the tests has run.
    assert ledger.updated([found("m.b")], keep=True) == MANY


def test_an_update_removes_an_entry_with_its_comments(tmp_path: Path) -> None:
    text = read(tmp_path, MANY).updated([found("m.a"), found("m.c", "eager"), found("m.d")])
    begin, end = MANY.index("# why it prints"), MANY.index("# -- the others")
    assert text == MANY[:begin] + MANY[end:]
    text = read(tmp_path, MANY).updated([found("m.b", places=3), found("m.c", "eager")])
    assert "m.a" not in text and "m.d" not in text and "# -- the others" in text and text.endswith('captured"\n')
    assert Ledger.read(read(tmp_path, text).path).updated([found("m.b", places=3), found("m.c", "eager")]) == text
    assert read(tmp_path, MANY).updated([]).count("#") == 4


def test_an_update_changes_counts_and_rules(tmp_path: Path) -> None:
    text = read(tmp_path, MANY).updated([found("m.b"), found("m.a", places=2, rule="disable(x)"), found("m.c", "eager"), found("m.d")])
    old = 'function = "m.a"\nid = "FL411"\nreason = "print can\'t be captured"\n'
    assert text == MANY.replace("count = 3\n", "").replace(old, f'{old}count = 2\nrule = "disable(x)"\n')
    again = read(tmp_path, text).updated([found("m.b", places=3), found("m.a"), found("m.c", "eager"), found("m.d")])
    assert read(tmp_path, again).entries.keys() == read(tmp_path, MANY).entries.keys() and again.count("count") == 1 and "rule" not in again


def test_new_entries_are_sorted_in(tmp_path: Path) -> None:
    ends = [f"m.{letter}" for letter in "bdf"]
    ledger = read(tmp_path, Ledger.read(tmp_path / "none.toml").updated([found(name) for name in ends]))
    for new in ("m.a", "m.c", "m.e", "m.g"):
        text = ledger.updated([found(name) for name in (*ends, new)])
        assert [line for line in text.splitlines() if line.startswith("function")] == [f'function = "{name}"' for name in sorted([*ends, new])]
        # One place of the file has changed.
        assert len(text.splitlines()) == len(ledger.updated([found(name) for name in ends]).splitlines()) + 5
        assert "\n\n\n" not in text
    # People's own order stays.
    text = read(tmp_path, MANY).updated([found("m.b", places=3), found("m.a"), found("m.c", "eager"), found("m.d"), found("m.ba"), found("m.z", "recompile")])
    assert [line.split('"')[1] for line in text.splitlines() if line.startswith("function")] == ["m.b", "m.a", "m.ba", "m.c", "m.d", "m.z"]
    assert read(tmp_path, text).entries.keys() >= {found("m.ba").key, found("m.z", "recompile").key}


def test_reasons_may_be_copied_from_messages(tmp_path: Path) -> None:
    ledger = read(tmp_path, f"version = 1\n{ENTRY}".replace("print can't be captured", "x: sizes (3, 4) -> (4, 4)").replace("break", "recompile"))
    assert [key.reason for key in ledger.entries] == ["x: sizes changed"]
    limit = "8 programs, with a recompile_limit of 8; the guard that fails most: v"
    ledger = read(tmp_path, f"version = 1\n{ENTRY}".replace("print can't be captured", limit).replace("break", "eager").replace("FL411", "FL104"))
    assert [key.reason for key in ledger.entries] == ["N programs, with a recompile_limit of N"]


def test_comparisons(tmp_path: Path) -> None:
    ledger = read(tmp_path, MANY)
    comparison = compare(ledger, [found("m.b", places=4), found("m.c", "eager"), found("m.d", "eager")])
    assert [f.key.function for f in comparison.new] == ["m.b", "m.d"] and [comparison.listed(f) for f in comparison.new] == [3, 0]
    assert [entry.key.function for entry in comparison.gone] == ["m.a", "m.d"] and not comparison.fewer
    comparison = compare(ledger, [found("m.b", places=2)])
    assert [(entry.count, len(f.places)) for entry, f in comparison.fewer] == [(3, 2)] and not comparison.new
    comparison = compare(ledger, [found("m.b", places=2), found("new")], whole=False)
    assert not comparison.gone and not comparison.fewer and len(comparison.new) == 1
