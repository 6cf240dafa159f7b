"""The actions of the commands, after click has parsed the arguments."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from fineline import install, set_policy
from fineline.builtins.why import why as decide
from fineline.cli.audit import Audit, Verdict
from fineline.cli.bisection import find
from fineline.cli.forked_run import run_in_copy
from fineline.cli.ledger_check import LedgerCheck, LedgerOptions, ledger_check
from fineline.cli.program import Program
from fineline.cli.suspect_run import SuspectRun
from fineline.cli.workers import Report, RunOptions, Waiting, add_policy, own_file
from fineline.errors import FinelineError
from fineline.policy.files import PolicyFile, find_policy
from fineline.policy.marks import MARKS
from fineline.region.options import Breaks
from fineline.report.costs import count_text
from fineline.report.events import LISTENERS
from fineline.report.streams import STREAMS

# The columns of a table that is not printed on a terminal.
_WIDE = 200
_REMOVABLE = (
    '"could be removed": without the rule the program prints the same, and has no more graph breaks and stretches without a graph. '
    "Numbers that it does not print are not compared: keep a rule that keeps a wrong result out."
)


class Refused(click.ClickException):
    """Ends a command with the text of a fineline error."""

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


def run(
    jobs: list[Callable[[], None]], policy: Path | None, out: Path | None, breaks: Breaks | None, hidden: tuple[str, Path | None],
    ledger: LedgerOptions, module: bool, program: str, args: tuple[str, ...],
) -> None:  # fmt: skip
    """Sets up a program and adds its run to the jobs. ``hidden``: the rule to leave out, and the folder of a bisection."""
    without, suspects = hidden
    out = _target(out, "--report")
    with _refusals():
        check = ledger_check(ledger, lambda path: _target(path, "--ledger-output"))
    made = Program(program, args, module)
    MARKS.without = without
    with _refusals():
        file = _policy_file(policy)
        if suspects is not None:
            add_policy(SuspectRun(suspects).begin())
        install(breaks=breaks)
    jobs.append(functools.partial(_run, made, file, breaks, out and own_file(out), check, suspects))


def _target(path: Path | None, option: str) -> Path | None:
    """Returns the absolute path to write to, because the program may change its folder. Links stay, because the target may be a pipe."""
    if path is None or str(path) in STREAMS:
        return path
    if not path.absolute().parent.is_dir():
        raise click.BadParameter(f"there is no folder {path.absolute().parent}", param_hint=option)
    return path.absolute()


def _run(
    program: Program, file: PolicyFile | None, breaks: Breaks | None, out: Path | None, check: LedgerCheck | None, suspects: Path | None
) -> None:
    report = Report(out is not None, check.findings if check is not None else None) if out is not None or check is not None else None
    if report is not None:
        LISTENERS.all, LISTENERS.trees = (*LISTENERS.all, report.hear), report.explains
    policy, events = (str(file.path.resolve()) if file is not None else None), (str(report.folder) if report is not None else None)
    waiting = Waiting(file) if file is not None and file.waiting else None
    waits_in, suspects_in = (str(waiting.folder) if waiting is not None else None), (str(suspects) if suspects is not None else None)
    RunOptions(policy, breaks, MARKS.without, events, waits_in, out is not None, suspects_in).pass_on()
    failed, status = True, 0
    try:
        try:
            program.run()
        except SystemExit as e:
            if e.code is not None and e.code != 0:
                raise
        failed = False
    finally:
        if report is not None and report.settle(out) and check is not None:
            status = check.settle(failed)
        wrong = waiting.settle() if waiting is not None else []
        for text in wrong:
            print(f"fineline: {text}", file=sys.stderr)
    if wrong or status:
        sys.exit(Refused.exit_code if wrong else status)


def why(policy: Path | None, name: str) -> None:
    """Prints the decision on a name."""
    sys.path.insert(0, os.getcwd())
    with _refusals():
        # Rules for unknown operators are accepted: a library that NAME does not load may define them.
        _policy_file(policy)
        # With this, PyTorch's marks record their places, as in a run.
        install()
        click.echo(str(decide(name)))


def audit(command: list[str], main: Callable[[], None], as_json: bool, check: bool) -> None:
    """Prints a verdict on each rule; exits with the program's status, or with 1 if ``check`` is set and a rule is not needed."""
    checked, verdicts = _judge(command, main)
    base = checked.base
    if as_json:
        click.echo(json.dumps(checked.as_dict(verdicts), indent=1))
    else:
        _print_verdicts(checked, verdicts)
    if base.status:
        click.echo(base.errors, err=True)
        sys.exit(base.status)
    if check and any(verdict.removable for verdict in verdicts):
        sys.exit(1)


def bisect(
    policy: Path | None, command: list[str], program: str, check: str | None, main: Callable[[], None], log: Path | None, module: bool
) -> None:
    """Prints what makes a program's backend wrong, and the rules that mend it; exits with status 1 if there is nothing, or no rule mends it."""
    log = _target(log, "--log")
    if not module and not Path(program).exists():
        raise click.UsageError(f"can't open file {program!r}: no such file")
    path = policy or find_policy(Path.cwd())
    if path is not None:
        # A wrong file is an error before anything runs.
        _check_policy(path, program, module)
    with _refusals():
        found = find(command, program, check, main, log)
    click.echo(str(found))
    if found.policy_text:
        click.echo(f"\nput this into the policy file:\n\n{found.policy_text}", nl=False)
    if found.status != "mended":
        sys.exit(1)


def _judge(command: list[str], main: Callable[[], None]) -> tuple[Audit, list[Verdict]]:
    """Runs the audit, and shows its progress on a terminal."""
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed} of {task.total} runs")
    # The runs are forks: no thread may hold a lock at a fork, and their output must not be redirected.
    progress = Progress(
        *columns, console=console, transient=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False,
        disable=not console.is_terminal,
    )  # fmt: skip
    with progress:
        task = progress.add_task("as it is", total=2)
        progress.refresh()
        checked = Audit(command, main)
        rules = checked.rules()
        verdicts = []
        progress.update(task, completed=2, total=2 + sum(bool(rule["times"]) for rule in rules))
        for rule in rules:
            if rule["times"]:
                progress.update(task, description=f"without {rule['verb']}({rule['selector']})", refresh=True)
            verdicts.append(checked.verdict(rule))
            progress.advance(task, bool(rule["times"]))
    return checked, verdicts


def _print_verdicts(checked: Audit, verdicts: list[Verdict]) -> None:
    table = Table("rule", "declared at", "fired", "verdict", "costs or saves")
    for column in table.columns:
        column.overflow = "fold"
    for verdict in verdicts:
        rule = verdict.rule
        place = rule["place"].removeprefix(str(Path.cwd()) + os.sep)
        table.add_row(f"{rule['verb']}({rule['selector']})", place, str(rule["times"]), verdict.text, str(verdict.cost) if rule["times"] else "")
    # In a file or a pipe, no line is as wide as a terminal: names stay whole.
    console = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDE)
    console.print(table)
    base = checked.base
    unused = sum(verdict.removable for verdict in verdicts)
    console.print(
        f"exit status {base.status}, {count_text(base.graphs, 'graph')}, {count_text(base.breaks, 'graph break')}; "
        f"{'1 rule or mark' if len(verdicts) == 1 else f'{len(verdicts)} rules and marks'}, {unused} not needed",
        highlight=False, soft_wrap=True,
    )
    if any(verdict.removable and verdict.rule["times"] for verdict in verdicts):
        console.print(_REMOVABLE, soft_wrap=True)
    if not checked.repeatable:
        console.print("Two runs print different things: what the program prints was not compared.")
    if base.status:
        console.print("The program failed: code that it did not reach was not judged.")


def _check_policy(path: Path, program: str, module: bool) -> None:
    """Refuses a wrong policy file. In a copy of this process: names are looked up beside the program, which imports its modules."""

    def check() -> None:
        try:
            Program(program, (), module)
            with _refusals():
                PolicyFile(path).policy(early=True)
        except click.ClickException as e:
            click.echo(e.format_message(), err=True)
            sys.exit(Refused.exit_code)

    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        if run_in_copy(check, out, errors):
            errors.seek(0)
            raise Refused(errors.read().decode(errors="replace").rstrip())


def _policy_file(path: Path | None) -> PolicyFile | None:
    """Sets the rules of a policy file for the process; returns the file, or None if there is none."""
    path = path or find_policy(Path.cwd())
    if path is None:
        return None
    file = PolicyFile(path)
    set_policy(file.policy(early=True))
    return file
