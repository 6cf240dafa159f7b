"""The commands: ``fineline run``, ``fineline why``, ``fineline audit``."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from fineline import __version__
from fineline.api import set_policy
from fineline.capture.why import why as decide
from fineline.cli.audit import Audit
from fineline.cli.program import Program
from fineline.cli.workers import Report, RunOptions, own_file
from fineline.errors import FinelineError
from fineline.install import install
from fineline.policy.files import PolicyFile, find_policy
from fineline.policy.marks import MARKS
from fineline.region.options import Breaks
from fineline.report.events import LISTENERS

PATH = click.Path(path_type=Path, dir_okay=False)
POLICY = click.option("--policy", type=PATH, help="TOML with the rules; else the nearest pyproject.toml with a [tool.fineline].")
MODULE = click.option("-m", "module", is_flag=True, help="PROGRAM is a module, as in python -m.")
PROGRAM = click.argument("program", metavar="PROGRAM")
ARGS = click.argument("args", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
# What stands behind the program's name is the program's.
THEIRS = {"ignore_unknown_options": False, "allow_interspersed_args": False}


class Refused(click.ClickException):
    """A refusal of fineline's, as it is."""

    exit_code = 2

    def show(self, file: object = None) -> None:
        click.echo(self.message, err=True)


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except FinelineError as e:
        if e.where is not None and e.where.startswith(os.path.dirname(click.__file__)):
            e.where = None  # the command line
        raise Refused(str(e)) from None


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def cli() -> None:
    """The line between compiled and eager PyTorch code."""


@cli.command(context_settings=THEIRS)
@POLICY
@click.option("--explain", "out", type=PATH, help="Write what became of each compiled function; JSON if the name ends in .json.")
@click.option("--breaks", type=click.Choice(["any", "declared", "none"]), help="Which graph breaks may be.")
@click.option("--without", hidden=True, default="", help="Leave out one rule or mark, for the audit.")
@MODULE
@PROGRAM
@ARGS
@click.pass_obj
def run(
    jobs: list[Callable[[], None]], policy: Path | None, out: Path | None, breaks: Breaks | None, without: str, module: bool, program: str,
    args: tuple[str, ...],
) -> None:  # fmt: skip
    """Runs a script, unmodified, with torch.compile on fineline."""
    made = Program(program, args, module)
    MARKS.without = without
    out = out and out.resolve()
    if out is not None and not out.parent.is_dir():
        raise click.BadParameter(f"there is no folder {out.parent}", param_hint="--explain")
    with _refusals():
        file = _policy_file(policy, early=True)
        install(breaks=breaks)
    jobs.append(functools.partial(_run, made, file, breaks, out and own_file(out)))


def _run(program: Program, file: PolicyFile | None, breaks: Breaks | None, out: Path | None) -> None:
    report = Report() if out is not None else None
    if report is not None:
        LISTENERS.all = (*LISTENERS.all, report.hear)
    policy, events = (str(file.path.resolve()) if file is not None else None), (str(report.folder) if report is not None else None)
    RunOptions(policy, breaks, MARKS.without, events).pass_on()
    try:
        program.run()
    finally:
        if report is not None and out is not None:
            report.write(out)
        for wrong in file.still_wrong() if file is not None else ():
            print(f"fineline: {wrong}", file=sys.stderr)


@cli.command()
@POLICY
@click.argument("name")
def why(policy: Path | None, name: str) -> None:
    """Says what becomes of NAME (a dotted name, a file or an operator) when it is met, by which rule, and where that is written."""
    sys.path.insert(0, os.getcwd())
    with _refusals():
        # Operators that a rule names may come with a library that NAME has nothing to do with.
        _policy_file(policy, early=True)
        # So that PyTorch's own marks say where they are, as they do in a run.
        install()
        click.echo(str(decide(name)))


@cli.command(context_settings=THEIRS)
@POLICY
@MODULE
@PROGRAM
@ARGS
def audit(policy: Path | None, module: bool, program: str, args: tuple[str, ...]) -> None:
    """Tells which rules and marks a program needs: runs it twice, and once more without each rule that fired."""
    command = [*(["--policy", str(policy)] if policy is not None else []), *(["-m"] if module else []), program, *args]
    checked = Audit(command, main)
    table = Table("rule", "declared at", "fired", "verdict")
    for column in table.columns:
        column.overflow = "fold"
    verdicts = list(checked.verdicts())
    for verdict in verdicts:
        rule = verdict.rule
        table.add_row(f"{rule['verb']}({rule['selector']})", rule["place"], str(rule["times"]), verdict.text)
    console = Console()
    console.print(table)
    base = checked.base
    unused = sum(verdict.removable for verdict in verdicts)
    console.print(
        f"exit status {base.status}, {base.graphs} graphs, {base.breaks} graph breaks; {len(verdicts)} rules and marks, {unused} not needed",
        highlight=False,
    )
    if not checked.repeatable:
        console.print("Two runs print different things: what the program prints was not compared.")
    if base.status:
        click.echo(base.errors, err=True)
        sys.exit(base.status)


def _policy_file(path: Path | None, early: bool = False) -> PolicyFile | None:
    """Makes a policy file's rules those of the process."""
    path = path or find_policy(Path.cwd())
    if path is None:
        return None
    file = PolicyFile(path)
    set_policy(file.policy(early))
    return file


def main() -> None:
    """The console script. A program runs when the command line has been left: what it raises is Python's to show."""
    jobs: list[Callable[[], None]] = []
    try:
        cli.main(obj=jobs, prog_name="fineline")
    except SystemExit as e:
        if e.code or not jobs:
            raise
    jobs[0]()
