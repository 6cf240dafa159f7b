"""Completion in a real bash: what it shows and writes after a press of the tabulator, as a user sees it."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from fineline.cli.commands import cli

REFERENCE = (Path(__file__).parent.parent.parent / "docs" / "reference.md").read_text()
# Each list is shown at once and as a whole, without questions and colours.
SETTINGS = ("show-all-if-ambiguous on", "page-completions off", "completion-query-items 0", "bell-style none", "enable-bracketed-paste off")
BEGIN, END, CLEAR = "\x01", "\x05", "\x15"
Complete = Callable[[str], tuple[list[str], str]]


class Shell:
    """A bash at a terminal of its own, in a folder with ``fineline`` on the path."""

    def __init__(self, folder: Path) -> None:
        # As pip installs it.
        script = folder / "bin" / "fineline"
        script.parent.mkdir()
        script.write_text(f"#!{sys.executable}\nimport sys\nfrom fineline.cli.commands import main\nsys.exit(main())\n")
        script.chmod(0o755)
        variables = {**os.environ, "PATH": f"{script.parent}:{os.environ['PATH']}", "TERM": "dumb", "PS1": "$ ", "COLUMNS": "500"}
        self.terminal, theirs = pty.openpty()
        command = ["bash", "--norc", "--noprofile", "-i"]
        self.bash = subprocess.Popen(command, cwd=folder, env=variables, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
        os.close(theirs)
        self.answer("stty -echo columns 500; " + "; ".join(f"bind 'set {setting}'" for setting in SETTINGS))

    def answer(self, keys: str) -> str:
        """Types some keys and then a command that says that they were read; returns what appeared before its words."""
        # The word is not one in what was typed.
        os.write(self.terminal, f"{keys}\necho re''ady\n".encode())
        seen, end = "", time.monotonic() + 60
        while "ready\r\n" not in seen:
            assert select.select([self.terminal], [], [], max(end - time.monotonic(), 0))[0], f"bash does not answer: {seen!r}"
            seen += os.read(self.terminal, 65536).decode()
        return seen.partition("ready\r\n")[0]

    def close(self) -> None:
        os.write(self.terminal, f"{CLEAR}exit\n".encode())
        self.bash.wait(60)
        os.close(self.terminal)


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Complete]:
    """Types the beginning of a line and a tabulator; returns the words that bash shows, and the line that it has made of it."""
    folder = tmp_path_factory.mktemp("completion")
    for name in ("train.py", "policy.toml"):
        (folder / name).touch()
    shell = Shell(folder)
    [command] = re.findall(r'`(eval "\$\(_FINELINE_COMPLETE=bash_source fineline\)")`', REFERENCE)
    shell.answer(command)

    def completed(line: str) -> tuple[list[str], str]:
        # A command in front of the line shows its words, each in brackets.
        seen = shell.answer(f"{line}\t{BEGIN}printf '[%s]' {END}")
        shown = re.findall(r"^(?!\$ )(\S.*)\r$", seen, re.M)
        made = re.findall(r"\[([^]]*)\]", seen)
        return [word for row in shown if not row.startswith("[") for word in row.split()], " ".join(made)

    yield completed
    shell.close()


def options(name: str) -> list[str]:
    return sorted(
        opt
        for found in cli.commands[name].params
        if isinstance(found, click.Option) and not found.hidden
        for opt in found.opts
        if opt[:2] == "--"
    )


def test_commands(complete: Complete) -> None:
    shown, line = complete("fineline ")
    assert sorted(shown) == sorted(cli.commands) == ["audit", "bisect", "run", "why"] and line == "fineline"
    assert complete("fineline bi") == ([], "fineline bisect")


@pytest.mark.parametrize("name", cli.commands)
def test_options(name: str, complete: Complete) -> None:
    shown, _ = complete(f"fineline {name} --")
    assert sorted(shown) == sorted([*options(name), "--help"])


def test_options_with_a_common_beginning(complete: Complete) -> None:
    shown, line = complete("fineline run --led")
    assert shown == ["--ledger", "--ledger-format", "--ledger-output"] and line == "fineline run --ledger"
    assert complete("fineline run --ledger-f") == ([], "fineline run --ledger-format")


def test_values_and_files(complete: Complete) -> None:
    shown, _ = complete("fineline run --ledger-format ")
    assert shown == ["text", "github", "sarif"]
    assert complete("fineline run --policy po") == ([], "fineline run --policy policy.toml")
    assert complete("fineline run --breaks declared tr") == ([], "fineline run --breaks declared train.py")
