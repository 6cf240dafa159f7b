"""Options of the suite: which twins run, and ``--self-check``, in which no compiler takes part (the programs themselves are tested)."""

from __future__ import annotations

import gc
import importlib
import itertools
import sys
import warnings
import weakref
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from hypothesis import settings  # noqa: E402

from fineline.region.sharing import shared_programs  # noqa: E402
from tests import golden, oracle, slow_tests  # noqa: E402
from tests.gaps import AOT, GAPS  # noqa: E402

settings.register_profile("suite", derandomize=True, deadline=None, database=None, max_examples=60)
settings.load_profile("suite")
torch.set_num_threads(1)
# These change what programs guard: torch.compile replaces methods of optimizers and others at its first use, and PyTorch's test utilities
# those of scripted modules. Here before all of them.
torch.compile(torch.sin)
importlib.import_module("torch.testing._internal.common_utils")
# Python's own function, which pytest has replaced by now. It is not found after the objects are frozen. From Python 3.14 on, another module defines it.
SHOW_WARNING = next(f for f in gc.get_referrers(warnings.simplefilter.__globals__) if isinstance(f, FunctionType) and f.__name__ == "_showwarnmsg_impl")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fineline")
    group.addoption("--twins", default="fast", help="fast, all, or a list with commas: " + ", ".join(oracle.TWINS))
    group.addoption("--self-check", action="store_true", help="compile nothing: shows that each program is valid and deterministic")
    group.addoption("--write-golden", action="store_true", help="write the lines of the golden files instead of comparing with them")
    group.addoption("--engine", default="fineline", choices=["fineline", "identity", "dynamo"], help="what compiles the programs")
    group.addoption("--share", default="0/1", metavar="K/N", help="the K-th of N equal parts of the tests, K from 0")
    group.addoption("--later", action="store_true", help="the tests that take long, which the default run leaves out (tests/slow_tests.py), and no others")
    group.addoption("--processes", action="store_true", help="the tests that start several processes for each program, and no others")
    group.addoption("--strict-graphs", action="store_true", help="programs without the mark `breaks` must give one graph per capture")


def engine(config: pytest.Config) -> str:
    return "identity" if config.getoption("--self-check") else str(config.getoption("--engine"))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "oracle: tests the oracle itself; needs no compiler")
    config.addinivalue_line("markers", "defects: makes fineline fail inside")
    config.addinivalue_line("markers", "processes: starts several processes; runs with --processes")
    config.addinivalue_line("markers", "later: takes long: runs with --later, or with other twins than the default ones")
    oracle.STRICT = bool(config.getoption("--strict-graphs"))
    oracle.WRITE_GOLDEN = bool(config.getoption("--write-golden"))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("--write-golden") and not hasattr(session.config, "workerinput"):
        golden.finish()


def chosen_twins(config: pytest.Config) -> list[str]:
    """Returns the twins of --twins."""
    chosen = str(config.getoption("--twins"))
    return oracle.CHOICES.get(chosen) or chosen.split(",")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "twin" in metafunc.fixturenames:
        other = engine(metafunc.config)
        metafunc.parametrize("twin", chosen_twins(metafunc.config) if other == "fineline" else [other])
    if "evaluator" in metafunc.fixturenames:
        # The native one as a rule; the Python one, which takes as long again, with the other twins.
        chosen, other = str(metafunc.config.getoption("--twins")), engine(metafunc.config)
        evaluators = {"fast": ["captured"], "all": ["captured", "reference"]}.get(chosen, ["reference"])
        metafunc.parametrize("evaluator", evaluators if other == "fineline" else [other])


@pytest.fixture(autouse=True)
def no_defects(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever a test is about: what goes on eagerly because of a defect inside (FL901) is right, and would go unseen."""
    with oracle.defects() as heard:
        yield
    if "defects" not in request.keywords:
        assert heard == []


@pytest.fixture(autouse=True)
def no_programs_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A region of an earlier test may be alive as garbage: a test must not run its programs, because it counts what it captures."""
    monkeypatch.setattr(shared_programs, "_BY_KIND", weakref.WeakValueDictionary())


def meant(item: pytest.Item) -> bool:
    """Returns whether the item is for the chosen twins, and its program, or its file, for the item's twin."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    chosen = chosen_twins(item.config)
    if "captured" not in chosen and not {"twin", "evaluator", "later"} & {*getattr(item, "fixturenames", ()), *item.keywords}:
        # It has no twins: the run with the default ones has it.
        return False
    if params.get("twin") in ("borders", "limit1") and getattr(params.get("program"), "options", {}).get("fullgraph"):
        return False
    if str(params.get("twin")).startswith("aot") and getattr(params.get("program"), "name", None) in AOT:
        return False
    only = getattr(params.get("program"), "twins", None) or getattr(getattr(item, "module", None), "IN_TWINS", None)
    if params.get("twin") == "reference" and "reported" in chosen and "captured" not in chosen:
        # `reported` evaluates guards in Python too.
        return only is not None and "reference" in only and "reported" not in only
    return only is None or params.get("twin") not in oracle.TWINS or params["twin"] in only


def in_share(config: pytest.Config, item: pytest.Item) -> bool:
    """Returns whether the item lies in the part of the tests that --share names. The names decide, so a part is the same on each machine."""
    part, parts = map(int, str(config.getoption("--share")).split("/"))
    return zlib.crc32(item.nodeid.encode()) % parts == part


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    slow = slow_tests.listed()
    for item in items:
        if slow_tests.name_of(item.nodeid) in slow:
            item.add_marker(pytest.mark.later)
    later = bool(config.getoption("--later"))
    processes = bool(config.getoption("--processes"))
    chosen = [meant(item) and in_share(config, item) and ("later" in item.keywords or not later) for item in items]
    chosen = [runs and ("processes" in item.keywords) is processes for runs, item in zip(chosen, items, strict=True)]
    config.hook.pytest_deselected(items=[item for item, runs in zip(items, chosen, strict=True) if not runs])
    items[:] = itertools.compress(items, chosen)
    if config.getoption("--twins") == "fast" and not later:
        for item in items:
            if "later" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="takes long: runs in the second half of CI, and with --later"))
    if engine(config) == "fineline":
        for item in items:
            twin, _, name = getattr(getattr(item, "callspec", None), "id", "").partition("-")
            if (name, twin) in GAPS and "language" in item.nodeid:
                reason = f"{GAPS[name, twin]} It passes now? Then its line in tests/gaps.py goes."
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True, raises=oracle.NotCaptured))
        return
    for item in items:
        if not {"twin", "evaluator"} & set(getattr(item, "fixturenames", ())) and "oracle" not in item.keywords:
            item.add_marker(pytest.mark.skip(reason="needs fineline"))


def pytest_collection_finish() -> None:
    """Takes what the imports and the collection have made out of the collector's sight: a collection took a second with it, and many tests ask for one."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if oracle.REPORT and (oracle.STRICT or config.getoption("verbose") > 0):
        terminalreporter.section("programs with more than one graph per capture")
        for line in oracle.REPORT:
            terminalreporter.line(line)


@pytest.fixture
def shown_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets Python write warnings to the standard error; pytest records them in a list."""
    monkeypatch.setattr(warnings, "_showwarnmsg_impl", SHOW_WARNING)


@pytest.fixture(scope="module")
def derivatives_told() -> None:
    """What PyTorch says when it first loads its rules for derivatives has been said."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.func.jvp(torch.sin, (torch.ones(1),), (torch.ones(1),))
