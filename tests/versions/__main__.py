"""Tests on other Pythons and other releases of PyTorch.

    python -m tests.versions run                                            all usual environments, all sets of tests
    python -m tests.versions run -e 3.12-torch-2.13 -t guards language:0/3  guards, and the first third of language
    python -m tests.versions run -e 3.12-torch-2.13 -- tests/guards -k dict  pytest with these arguments, which leaves no record
    python -m tests.versions make                                           the environments alone
    python -m tests.versions table                                          README's table, with the runs since

Environments are made under .environments/ and kept. One that cannot be made counts as a failure.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from tests.versions import runs, table
from tests.versions.environments import ALL, USUAL, Environment
from tests.versions.interpreters import Unavailable


def _arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.versions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    environments = argparse.ArgumentParser(add_help=False)
    environments.add_argument("-e", "--environments", nargs="+", choices=ALL, default=USUAL, metavar="NAME", help=", ".join(ALL))
    run = commands.add_parser("run", parents=[environments], help="makes environments and runs tests in them")
    run.add_argument("-t", "--tests", nargs="+", type=runs.Chosen.parse, default=[runs.Chosen(name) for name in runs.SETS], metavar="SET[:K/N]",
                     help=f"sets of tests, or the K-th of N parts of one; usual: {' '.join(runs.SETS)}; others: {' '.join(runs.OTHERS)}")  # fmt: skip
    run.add_argument("-n", "--processes", default="auto", help="of pytest-xdist")
    commands.add_parser("make", parents=[environments], help="makes environments")
    commands.add_parser("table", help="writes the table of README")
    own = words.index("--") if "--" in words else len(words)
    return parser.parse_args(words[:own], argparse.Namespace(others=words[own + 1 :]))


def _make(environments: list[Environment]) -> dict[str, str]:
    """Makes environments, two at once; returns the reasons why some could not be made, by their names."""
    by_python = sorted(environments, key=lambda environment: environment.version)
    groups = [list(group) for _, group in itertools.groupby(by_python, key=lambda environment: environment.version)]
    # Most of the time pip unpacks files, on one core. All environments of a Python need the one in which its core is built.
    with ThreadPoolExecutor(2) as pool:
        return {name: reason for failed in pool.map(_make_in_order, groups) for name, reason in failed.items()}


def _make_in_order(environments: Iterable[Environment]) -> dict[str, str]:
    """Makes environments one after the other; returns the reasons as `_make` does."""
    failed = {}
    for environment in environments:
        try:
            environment.make()
        except Unavailable as error:
            failed[environment.name] = str(error)
    return failed


def _run(environment: Environment, chosen: list[runs.Chosen], processes: str, others: list[str]) -> list[str]:
    """Runs tests in an environment; returns a line for each set that failed."""
    if others:
        return [] if runs.run_others(environment, others) else [f"{environment.name}: failed"]
    failed = []
    for tests in chosen:
        print(f"\n{environment.name}: tests/{tests.name} {tests.share}", flush=True)
        try:
            record = runs.run_set(environment, tests, processes)
        except Unavailable as error:
            failed.append(f"{environment.name}: {tests.name}: {error}")
            continue
        runs.keep(environment, tests, record)
        failed += [f"{environment.name}: {test}: {text}" for test, text in record["failed"].items()]
    return failed


def main(words: list[str]) -> int:
    arguments = _arguments(words)
    if arguments.command == "table":
        results = runs.newest(runs.read(table.KEPT), runs.read(runs.RESULTS))
        runs.write(table.KEPT, results)
        table.update(results)
        return 0
    environments = [Environment(name) for name in arguments.environments]
    missing = _make(environments)
    failed = [f"{name} could not be made: {reason}" for name, reason in missing.items()]
    for environment in environments:
        if arguments.command == "run" and environment.name not in missing:
            failed += _run(environment, arguments.tests, arguments.processes, arguments.others)
    if arguments.command == "run" and not arguments.others:
        results = runs.read(runs.RESULTS)
        print("\nPassed / failed / skipped:\n\n" + table.table({name: results[name] for name in arguments.environments if name in results}))
    print(*["", "FAILED:", *failed] if failed else ["", "All passed."], sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
