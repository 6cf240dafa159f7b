"""PyTorch's settings and environment variables: each has a row in the table, and does what its row says."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch._dynamo.config
import torch.compiler.config
from torch._dynamo.testing import CompileCounter

import fineline
from fineline.region.settings import OPTIONS
from fineline.region.torch_settings import COMPILER, DYNAMO, ENVIRONMENT, FIRST_VALUES, REPORTED, SINCE
from fineline.report.logs import CATEGORIES, LOGS
from fineline.torch_support import OLDEST, release
from tests.install.captured import X, f

TORCH = Path(torch.__file__).parent
# Where PyTorch's compiler reads variables.
PARTS = ("_dynamo", "compiler", "_inductor", "_functorch", "_logging", "_subclasses", "fx", "utils", "__init__.py", "_utils_internal.py")
VARIABLE = re.compile(r"[\"']((?:TORCHDYNAMO|TORCH_DYNAMO|TORCH_COMPILE|TORCH_COMPILER|TORCH_LOGS|TORCH_TRACE|TORCH_FAKE_TENSOR|PT2)_?[A-Z0-9_]*)[\"']")


def of_this_release(names):
    """The names of settings and variables that the PyTorch here has."""
    return [name for name in names if SINCE.get(name, OLDEST) <= release(torch.__version__)]


def is_deprecated(name):
    """PyTorch itself says of it that it has no effect."""
    return torch._dynamo.config._config[name].deprecated


# -- the table is whole -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("config, table", [(torch._dynamo.config, DYNAMO), (torch.compiler.config, COMPILER)], ids=["dynamo", "compiler"])
def test_each_public_setting_has_a_row(config, table):
    public = {name for name, entry in config._config.items() if entry.alias is None and name[0] != "_" and name != "TYPE_CHECKING"}
    assert public == set(of_this_release(table))
    for entry in config._config.values():
        assert entry.alias is None or entry.alias.removeprefix("torch._dynamo.config.") in DYNAMO


def test_each_environment_variable_has_a_row():
    files = [file for part in PARTS for file in ([TORCH / part] if part.endswith(".py") else (TORCH / part).rglob("*.py"))]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    # What is no variable: the compiler's name in a profile, and the first bytes of a file.
    read = set(VARIABLE.findall(text)) - {"TORCHDYNAMO", "TORCH_COMPILE", "PT2AOT"}
    rows = {*of_this_release((*FIRST_VALUES, *ENVIRONMENT))}
    assert read - rows == set()
    assert {name for name in rows if f'"{name}"' not in text and f"'{name}'" not in text} == set()


def test_first_values_come_from_the_environment():
    """A process with all these variables set has another value for each of these settings than one without."""
    code = "import torch._dynamo.config as d, torch.compiler.config as c, sys\nfor n in sys.argv[1:]: print(repr(getattr(d if n in d._config else c, n)))"
    names = sorted(of_this_release(set(FIRST_VALUES.values())))
    given = {}
    for variable, setting in [(variable, FIRST_VALUES[variable]) for variable in of_this_release(FIRST_VALUES)]:
        config = torch._dynamo.config if setting in torch._dynamo.config._config else torch.compiler.config
        default = config._config[setting].default
        given[variable] = "0" if default is True else "3" if type(default) is int else "1"
    plain = {name: value for name, value in os.environ.items() if name not in given}
    ran = [subprocess.run([sys.executable, "-c", code, *names], env=env, capture_output=True, text=True) for env in (plain, {**plain, **given})]
    without, with_all = [done.stdout.splitlines() for done in ran]
    assert len(without) == len(with_all) == len(names), [done.stderr for done in ran]
    assert [name for name, a, b in zip(names, without, with_all, strict=True) if a == b] == []


def test_the_document_is_the_table():
    text = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()
    for name, row in (*DYNAMO.items(), *COMPILER.items(), *ENVIRONMENT.items()):
        assert f"| `{name}` | {row.effect} | {row.text} |\n" in text
    for name, setting in FIRST_VALUES.items():
        assert f"| `{name}` | `{setting}` |\n" in text


def test_each_option_of_a_region_is_obeyed():
    assert {name for name, row in DYNAMO.items() if row.effect == "obeyed"} == {*OPTIONS, "assume_static_by_default", "automatic_dynamic_shapes"}


# -- obeyed ----------------------------------------------------------------------------------------------------------------------
def frames(*sizes, **how):
    compiled = torch.compile(f, backend=(counter := CompileCounter()), **how)
    for n in sizes:
        assert torch.equal(compiled(torch.ones(n)), f(torch.ones(n)))
    return counter.frame_count


def test_which_sizes_vary(installed):
    dynamo = torch._dynamo.config
    assert (frames(3, 4, 5, 6), frames(3, 4, 5, 6, dynamic=True), frames(3, 4, 5, 6, dynamic=False)) == (2, 1, 4)
    with dynamo.patch(assume_static_by_default=False):
        assert (frames(3, 4, 5, 6), frames(3, 4, 5, 6, dynamic=False)) == (1, 4)
    with dynamo.patch(automatic_dynamic_shapes=False):
        assert (frames(3, 4, 5, 6), frames(3, 4, 5, 6, dynamic=True)) == (4, 1)
    # Set after the call of torch.compile.
    compiled = torch.compile(f, backend=(counter := CompileCounter()))
    with torch.compiler.config.patch(automatic_dynamic_shapes=False):
        compiled(torch.ones(3)), compiled(torch.ones(4)), compiled(torch.ones(5))
        assert counter.frame_count == 3


SCRIPT = """
import sys, torch
graphs, texts = [], []  # what the backend got, and whether a call raised
def backend(gm, inputs):
    graphs.append(gm)
    if sys.argv[2] == "fails":
        raise ValueError("no")
    return gm.forward
if sys.argv[1] == "fineline":
    import fineline
    fineline.install()
def f(x):
    return x * x.sum().item() + x[x > 0].sum()
compiled = torch.compile(f, backend=backend)
try:
    for n in (3, 4, 5):
        assert torch.equal(compiled(torch.ones(n)), f(torch.ones(n)))
except Exception as e:
    texts.append("raised")
print(compiled is f, len(graphs) > 0, texts)
"""


@pytest.mark.later
@pytest.mark.parametrize(
    "variables, what",
    [
        ({"TORCH_COMPILE_DISABLE": "1"}, "fails"), ({"TORCHDYNAMO_DISABLE": "1"}, "fails"), ({"TORCHDYNAMO_SUPPRESS_ERRORS": "1"}, "fails"),
        ({"TORCHDYNAMO_CAPTURE_SCALAR_OUTPUTS": "1", "TORCHDYNAMO_CAPTURE_DYNAMIC_OUTPUT_SHAPE_OPS": "1"}, "runs"), ({}, "fails"),
    ],
    ids=str,
)  # fmt: skip
def test_the_environment_as_under_torch_compile(variables, what):
    def printed(whose):
        command = [sys.executable, "-c", SCRIPT, whose, what]
        return subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True).stdout.splitlines()[-1:]

    assert printed("fineline") == printed("torch") != []


def test_the_environment_says_that_nothing_is_compiled(installed, monkeypatch):
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    module = torch.nn.Linear(2, 2)
    assert torch.compile(f) is f and torch.compile(module) is module and torch._dynamo.optimize("eager")(f) is f
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "0")
    assert torch.compile(f) is not f


# -- reported ------------------------------------------------------------------------------------------------------------------
def reported(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "fineline"]


@pytest.mark.parametrize("name", sorted(name for name in of_this_release(DYNAMO) if DYNAMO[name].effect in REPORTED and not is_deprecated(name)))
def test_what_has_no_effect_is_reported_once(installed, caplog, name):
    caplog.set_level(logging.WARNING)
    default = torch._dynamo.config._config[name].default
    value = (not default) if isinstance(default, bool) else default + 1 if isinstance(default, (int, float)) else {f} if isinstance(default, set) else "other"
    with torch._dynamo.config.patch(**{name: value}):
        for _ in range(3):
            torch.compile(f, backend="eager")
    [text] = reported(caplog)
    assert f"torch._dynamo.config.{name} = " in text and text.endswith(DYNAMO[name].text)


@pytest.mark.parametrize("name", ["TORCHDYNAMO_REPRO_AFTER", "TORCH_COMPILE_CPROFILE", "TORCHDYNAMO_DEBUG_FUNCTION", "TORCH_COMPILE_DYNAMIC_SOURCES"])
def test_variables_without_effect_are_reported_once(installed, caplog, monkeypatch, name):
    caplog.set_level(logging.WARNING)
    monkeypatch.setenv(name, "1")
    for _ in range(3):
        torch.compile(f, backend="eager")
    [text] = reported(caplog)
    assert f"the environment variable {name}=1" in text and "effect" in text


def test_what_holds_anyway_is_not_reported(installed, caplog, monkeypatch):
    caplog.set_level(logging.WARNING)
    monkeypatch.setenv("TORCHDYNAMO_VERBOSE", "1")
    monkeypatch.setenv("TORCH_COMPILE_CPROFILE", "0")
    with torch._dynamo.config.patch(allow_rnn=True, skip_nnmodule_hook_guards=False, repro_level=3, recompile_limit=3):
        torch.compile(f, backend="eager")
    assert reported(caplog) == []


def test_only_torch_s_names_read_them(installed):
    with torch._dynamo.config.patch(disable=True):
        counter = CompileCounter()
        fineline.compile(f, backend=counter)(X)
        assert counter.frame_count == 1


@pytest.fixture
def asked():
    """Whatever is asked of PyTorch's logs; nothing, afterwards."""
    yield torch._logging.set_logs
    torch._logging.set_logs()


@pytest.mark.parametrize(
    ("topics", "categories"),
    [
        ({"graph_breaks": True}, {"breaks"}), ({"recompiles": True}, {"recompiles"}), ({"guards": True}, {"guards"}), ({"graph_code": True}, {"graphs"}),
        ({"graph": True, "recompiles_verbose": True}, {"graphs", "recompiles"}), ({"dynamo": logging.DEBUG}, set(CATEGORIES)),
        ({"dynamo": logging.INFO}, set(CATEGORIES)), ({"dynamo": logging.ERROR}, set()), ({"aot_graphs": True, "output_code": True}, set()), ({}, set()),
    ],
)  # fmt: skip
def test_logs_follow_torch_s(installed, asked, topics, categories):
    torch._logging.set_logs(**topics)
    assert {name for name, logger in LOGS.loggers.items() if logger.isEnabledFor(logging.DEBUG)} == categories
    torch._logging.set_logs()
    assert not any(logger.isEnabledFor(logging.DEBUG) for logger in LOGS.loggers.values())


def test_logs_that_were_asked_before(asked):
    theirs = torch._logging.set_logs
    theirs(graph_breaks=True)
    fineline.install()
    assert LOGS.loggers["breaks"].isEnabledFor(logging.DEBUG) and torch._logging.set_logs is not theirs
    fineline.uninstall()
    assert not LOGS.loggers["breaks"].isEnabledFor(logging.DEBUG) and torch._logging.set_logs is theirs


def test_a_topic_without_counterpart_is_named_once(installed, asked, caplog):
    for _ in range(2):
        torch._logging.set_logs(bytecode=True)
        torch.compile(f, backend="eager")
    assert len([text for text in caplog.messages if "the topic 'bytecode' of TORCH_LOGS has no effect" in text]) == 1
