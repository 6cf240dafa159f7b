"""The commands and their options: ``fineline run``, ``fineline why``, ``fineline audit``, ``fineline bisect``.

`actions` contains their code. A command imports it when it runs, so that help, the version and completion do not load PyTorch.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from fineline import __version__


def _files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Lets the shell complete the name of a file."""
    return [CompletionItem(incomplete, type="file")]


def _one(context: click.Context, parameter: click.Parameter, values: tuple[Path, ...]) -> Path | None:
    """Returns the value of an option that is given at most once, under any of its names."""
    if len(values) > 1:
        raise click.UsageError(f"give {' or '.join(parameter.opts)} only once; it was given for {', '.join(map(str, values))}", context)
    return values[0] if values else None


PATH = click.Path(path_type=Path, dir_okay=False)
POLICY = click.option("--policy", type=PATH, help="TOML file with rules. Default: the nearest pyproject.toml with [tool.fineline].")
BREAKS = click.option("--breaks", type=click.Choice(["any", "declared", "none"]), help="Which graph breaks are allowed.")
MODULE = click.option("-m", "module", is_flag=True, help="Run PROGRAM as a module, as python -m does.")
PROGRAM = click.argument("program", metavar="PROGRAM", shell_complete=_files)
ARGS = click.argument("args", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...", shell_complete=_files)
# All arguments after the program's name belong to the program.
THEIRS = {"ignore_unknown_options": False, "allow_interspersed_args": False}


def _carry_out(action: str, *args: object) -> None:
    getattr(importlib.import_module("fineline.cli.actions"), action)(*args)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def cli() -> None:
    """Captures PyTorch graphs, and controls which code is compiled and which stays eager."""


@cli.command(context_settings=THEIRS)
@POLICY
@click.option(
    "--report", "--explain", "out", type=PATH, multiple=True, callback=_one,
    help="Write a report: a page for .html, JSON for .json, otherwise text; - is standard output.",
)
@BREAKS
@click.option("--ledger", type=PATH, help="TOML file with the accepted graph breaks, eager stretches and recompiles; a new one is exit status 1.")
@click.option("--update", is_flag=True, help="Write the ledger.")
@click.option("--ledger-format", type=click.Choice(["text", "github", "sarif"]), help="How to print what differs from the ledger. Default: text.")
@click.option("--ledger-output", type=PATH, help="Where to print it. Default: standard error for text, standard output otherwise.")
@click.option("--without", hidden=True, default="", help="Leave out one rule or mark, for the audit.")
@click.option("--suspects", hidden=True, type=click.Path(path_type=Path), help="Compile what the folder says, for a bisection.")
@MODULE
@PROGRAM
@ARGS
@click.pass_obj
def run(
    jobs: list[Callable[[], None]], policy: Path | None, out: Path | None, breaks: str | None, ledger: Path | None, update: bool,
    ledger_format: str | None, ledger_output: Path | None, without: str, suspects: Path | None, module: bool, program: str, args: tuple[str, ...],
) -> None:  # fmt: skip
    """Runs an unmodified script with torch.compile routed to fineline."""
    _carry_out("run", jobs, policy, out, breaks, (without, suspects), (ledger, update, ledger_format, ledger_output), module, program, args)


@cli.command()
@POLICY
@click.argument("name", shell_complete=_files)
def why(policy: Path | None, name: str) -> None:
    """Shows the decision on NAME (a dotted name, a file or an operator), the rule that made it, and where the rule was declared."""
    _carry_out("why", policy, name)


@cli.command(context_settings=THEIRS)
@POLICY
@BREAKS
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--check", is_flag=True, help="Exit with status 1 if a rule or mark is not needed.")
@MODULE
@PROGRAM
@ARGS
def audit(policy: Path | None, breaks: str | None, as_json: bool, check: bool, module: bool, program: str, args: tuple[str, ...]) -> None:
    """Shows which rules and marks a program needs: runs it twice, and once more without each rule that fired.

    Rules that only declare graph breaks are needed where breaks must be declared: pass the --breaks option that you run with.
    """
    options = [("--policy", policy), ("--breaks", breaks)]
    command = [word for option, value in options if value is not None for word in (option, str(value))]
    _carry_out("audit", [*command, *(["-m"] if module else []), program, *args], main, as_json, check)


@cli.command()
@click.option("--check", help="A command for the shell: exit status 0 if the run is right. Default: the exit status of the program itself.")
@POLICY
@BREAKS
@click.option("--log", type=PATH, help="Write what the program and the check print in each run.")
@MODULE
@PROGRAM
@ARGS
def bisect(
    check: str | None, policy: Path | None, breaks: str | None, log: Path | None, module: bool, program: str, args: tuple[str, ...]
) -> None:  # fmt: skip
    """Finds the graph, the function and the operators that make a program wrong where they are compiled, and rules that mend it.

    Runs the program about 2 log2(n) times for n operators, and the check after each run. Put -- before arguments of the program that begin with -.
    """
    options = [("--policy", policy), ("--breaks", breaks)]
    command = [word for option, value in options if value is not None for word in (option, str(value))]
    _carry_out("bisect", policy, [*command, *(["-m"] if module else []), program, *args], program, check, main, log, module)


def main() -> None:
    """Runs the console script. A program runs after click has returned, so that Python shows its exceptions."""
    jobs: list[Callable[[], None]] = []
    try:
        cli.main(obj=jobs, prog_name="fineline")
    except SystemExit as e:
        if e.code or not jobs:
            raise
    jobs[0]()
