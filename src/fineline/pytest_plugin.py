"""The pytest plugin: the fixture ``fineline``, and ``--fineline-ledger``, which compares a whole session with one ledger.

Each pytest run of an environment with fineline imports this module: it imports the others where they are used. It holds no `LateModule`,
because pytest reads an attribute of each object in a plugin, which would load the module.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

_FORMATS = ("text", "github", "sarif")
# Characters of a test's name in the name of its ledger: file systems take 255 bytes.
_LONGEST = 150


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fineline", "graph breaks, eager stretches and recompiles")
    group.addoption("--fineline-ledger", metavar="PATH", help="compare all that fineline captures in this session with the list in PATH; a new one fails.")
    group.addoption("--fineline-ledger-update", action="store_true", help="write the list, and those of the fixture fineline.")
    group.addoption("--fineline-ledger-format", choices=_FORMATS, default="text", help="how to print what differs.")
    group.addoption("--fineline-ledger-output", metavar="PATH", help="where to print it; the terminal unless given.")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--fineline-ledger")
    if path is None:
        if config.getoption("--fineline-ledger-output") is not None:
            raise pytest.UsageError("--fineline-ledger-output needs --fineline-ledger")
        return
    session = importlib.import_module("fineline.pytest_session").SessionLedger(config, config.invocation_params.dir / path)
    config.pluginmanager.register(session, "fineline-session")


class LedgerOfTest:
    """The fixture ``fineline``: ledgers of one test, beside its file."""

    def __init__(self, test: pytest.Item, update: bool) -> None:
        self._test, self._update, self._calls = test, update, 0

    def assert_ledger(self, f: Callable, /, *args: object, **kwargs: object) -> None:
        """Compares a call with the ledger of the test, as `fineline.testing.assert_ledger`; each call in the test has its own file.

        A compiled callable without arguments is not called: what it has done so far is compared.
        """
        __tracebackhide__ = True
        self._calls += 1
        testing = importlib.import_module("fineline.testing")
        testing.assert_ledger(f, args or None, kwargs or None, path=self._path(), update=self._update)

    def _path(self) -> Path:
        """Returns ``test_file.TestClass.test_name[parameters].ledger.toml``; from the second call on with a number."""
        # Parameters may contain any characters.
        name = quote(self._test.nodeid.partition("::")[2].replace("::", "."), safe="[]=,+ ")
        if len(name) > _LONGEST:
            name = f"{name[:_LONGEST]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
        number = f".{self._calls}" if self._calls > 1 else ""
        return self._test.path.with_name(f"{self._test.path.stem}.{name}{number}.ledger.toml")


@pytest.fixture
def fineline(request: pytest.FixtureRequest) -> LedgerOfTest:
    """Compares graph breaks, eager stretches and recompiles with a list beside the test file: ``fineline.assert_ledger(f, *args)``."""
    return LedgerOfTest(request.node, bool(request.config.getoption("--fineline-ledger-update")))
