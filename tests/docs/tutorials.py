"""What tests of the tutorials read: the files that a page shows, its Python session, and its commands with what they print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt

FOLDER = Path(__file__).parent.parent.parent / "docs" / "tutorials"
# The commands that pages run, each with the arguments of Python that it stands for.
PROGRAMS = {"fineline": "-m fineline", "python": "", "pytest": "-m pytest -p no:cacheprovider", "torchrun": "-m torch.distributed.run"}
COMMAND = re.compile(rf"(?:{'|'.join([*PROGRAMS, 'sed'])}) \S+ \S|python \S")
# A block that begins with the name of a file in a comment is that file.
FILE = re.compile(r"# ([\w./]+\.\w+)\n")


class Command(NamedTuple):
    """A line for the shell. ``shown``: what the page says that it prints; None if the page does not say it."""

    line: str
    shown: str | None


class Page(NamedTuple):
    """The code of a page, each kind in its order."""

    files: dict[str, str]
    session: list[str]
    commands: list[Command]


def read(text: str) -> Page:
    """Returns the code of a page. A shell's blocks are those with the prompt ``$``, and indented ones, which show no output.

    Code in a sentence is a command, too, if it begins with the name of a program.
    """
    page = Page({}, [], [])
    for token in MarkdownIt("commonmark").parse(text):
        if token.type == "fence" and token.info == "console":
            for part in re.split(r"^\$ ", token.content, flags=re.M)[1:]:
                line, _, shown = part.partition("\n")
                page.commands.append(Command(line, shown))
        elif token.type == "code_block":
            page.commands.extend([Command(line, None) for line in token.content.splitlines()])
        elif token.type == "fence" and (name := FILE.match(token.content)):
            page.files[name[1]] = token.content
        elif token.type == "fence" and token.info == "python":
            page.session.append(token.content)
        elif token.type == "inline":
            spans = [part.content for part in token.children or () if part.type == "code_inline"]
            page.commands.extend([Command(span, None) for span in spans if COMMAND.match(span)])
    return page


def run(page: Page, folder: Path) -> list[tuple[Command, int, str]]:
    """Runs the commands of a page in a folder with its files; returns the status and the output of each."""
    for name, text in page.files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    programs = folder / "bin"
    programs.mkdir()
    for name, arguments in PROGRAMS.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {arguments} "$@"\n')
        (programs / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "COLUMNS": "160"}
    ran = []
    for command in page.commands:
        done = subprocess.run(
            ["bash", "-c", command.line],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        ran.append((command, done.returncode, done.stdout))
    return ran
