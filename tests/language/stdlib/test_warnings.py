"""What a call is told of where it is made: warnings, once per place or always, log records, ``sys._getframe``."""

from __future__ import annotations

import contextlib
import io
import logging
import math
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import fineline
from fineline.report.events import LISTENERS
from tests.oracle import Program, Table, check, t

table = Table()


@table.snippet(grad=True, breaks=True, recompiles=(1, 2))
def scalars_of_tensors_with_gradients(x):
    s = x.sum()
    y = x * float(s)
    n = int(s * 10)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        f = float(s), s.item(), s.detach().item()
    return y + n, len(told), f, bool(s), math.floor(s), [1, 2, 3][torch.tensor(1)], complex(s)


def deeper(x):
    warnings.warn("deeper", DeprecationWarning, stacklevel=2)
    return x * 2


@table.snippet(grad=True, breaks=True, recompiles=(1, 2))
def warned_once_per_place(x):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        for _ in range(3):
            x = x * 2
            warnings.warn("here")
            x = deeper(x) + float(x.sum())
        warnings.warn("here")
        x = deeper(x)
    return x, [(str(w.message)[:12], w.lineno, os.path.basename(w.filename), w.category) for w in told]


@table.snippet(breaks=True)
def warned_by_operators(x):
    return x[0, 0].std() + x.std()


@table.snippet(breaks=True)
def warnings_made_errors(x):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            warnings.warn("bad")
        except UserWarning as error:
            return x * 2, str(error)


def between(x):
    y = x * 2
    line = sys._getframe(0).f_lineno
    return y, line, sys._getframe(0).f_code.co_name, sys._getframe(1).f_code.co_name, sys._getframe(0).f_globals["table"] is table


class Keep(logging.Handler):
    def __init__(self, records: list[Any]) -> None:
        super().__init__()
        self.records = records

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append((record.getMessage(), record.filename, record.lineno, record.funcName))


def test_log_records_and_frames_name_the_user() -> None:
    log = logging.getLogger("tests.language.stdlib.test_warnings")
    log.propagate = False
    log.setLevel("INFO")

    def fn(x):
        x, *told = between(x)
        log.info("seen %s", x.shape)
        return told

    def run(call: Any) -> list[Any]:
        records: list[Any] = []
        log.handlers = [Keep(records)]
        return [call(t(i)) for i in range(3)] + records

    assert run(fineline.compile(fn, backend="eager")) == run(fn)


def test_a_warning_is_shown_where_the_user_is() -> None:
    def fn(x):
        return x * float(x.sum())

    compiled = fineline.compile(fn, backend="eager")
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for i in range(3):
                compiled(t(i, grad=True))
    finally:
        torch.set_warn_always(False)
    assert [(w.filename, w.lineno) for w in told] == [(__file__, fn.__code__.co_firstlineno + 1)] * 3


ONCE = """
import warnings, torch, fineline, fineline.errors
def fn(x):
    return x * float(x.sum())
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    compiled = fineline.compile(fn, backend="eager", fullgraph=True)
    for i in range(3):
        compiled(torch.ones(i + 1, requires_grad=True))
    print([(w.filename, w.lineno, "requires_grad" in str(w.message)) for w in told if w.filename == __file__])
torch.set_warn_always(True)
try:
    compiled(torch.ones(2, requires_grad=True))
except fineline.errors.Unsupported as e:
    print("warns at each call" in str(e))
"""


def test_what_pytorch_tells_once_in_a_process(tmp_path: Path) -> None:
    script = tmp_path / "once.py"
    script.write_text(ONCE)
    told = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=120).stdout
    assert told == f"[({str(script)!r}, 4, True)]\nTrue\n"


def test_fakes_where_warnings_are_errors() -> None:
    """PyTorch reads the gradient of what it makes a fake of, and warns where that has a history."""
    heard: list[str] = []
    before, LISTENERS.all = LISTENERS.all, (*LISTENERS.all, lambda event: heard.append(event.kind))
    compiled = fineline.compile(lambda x: (x * 2, x[1:] * x.shape[0]), backend="eager", dynamic=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            filters = warnings.filters
            for rows in (3, 4):
                x = t(0, rows, 2, grad=True) * 2
                assert torch.equal(compiled(x)[1], x[1:] * rows)
            assert warnings.filters is filters
    finally:
        LISTENERS.all = before
    assert heard.count("graph") == 1 and "restart" not in heard


# -- one graph where Python shows a warning at most once ------------------------------------------------------------------------------
def outer(x):
    return inner(x * 2) + 1


def inner(x):
    warnings.warn("inner", FutureWarning, stacklevel=2)
    warnings.warn(message="here", category=None)
    return x * 3


def shown(call: Any, filters: Any) -> list[str]:
    """Returns what each call shows, or raises, if these filters are set one after the other; three calls under each."""
    globals().pop("__warningregistry__", None)
    seen = []
    with warnings.catch_warnings():
        for action, options in filters:
            warnings.filterwarnings(action, **options)
            for k in range(3):
                with contextlib.redirect_stderr(io.StringIO()) as err:
                    try:
                        seen.append(str(call(t(k)).tolist()))
                    except FutureWarning as error:
                        seen.append(repr(error))
                seen.append(err.getvalue())
    return seen


FILTERS: dict[str, Any] = {
    "once": [(action, {}) for action in ("default", "module", "once", "ignore", "default")],
    "always": [("default", {}), ("always", {}), ("ignore", {})],
    "error": [("ignore", {}), ("error", {}), ("default", {})],
    "by text": [("error", {"message": "other"}), ("error", {"category": UserWarning, "message": "inn"}), ("ignore", {"message": "inn"})],
    "by module": [("error", {"module": "elsewhere"}), ("ignore", {"module": __name__.replace(".", r"\.")}), ("default", {"lineno": 1})],
}
WAYS: dict[str, Any] = {
    "live": {}, "fake": {"options": {"first_call": "compiled"}}, "dynamic": {"dynamic": True}, "reference": {"options": {"evaluator": "reference"}},
    "background": {"wait": False},
}  # fmt: skip


@pytest.mark.usefixtures("shown_warnings")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", FILTERS)
def test_warnings_are_shown_as_in_eager_calls(case: str, way: str) -> None:
    compiled = fineline.compile(outer, backend="eager", **WAYS[way])

    def call(x):
        result = compiled(x)
        fineline.wait()
        return result

    assert shown(call, FILTERS[case]) == shown(outer, FILTERS[case])
    # A call that raises is not captured in the background.
    assert bool(fineline.report(compiled).breaks) is (case == "always" or (case == "error" and way != "background"))


@pytest.mark.usefixtures("shown_warnings")
def test_one_graph_for_a_warning_that_is_shown_once() -> None:
    compiled = fineline.compile(outer, backend="eager", fullgraph=True)
    texts = [text for text in shown(compiled, FILTERS["once"][:1])[1::2] if text]
    assert len(texts) == 1 and texts[0].count("Warning: ") == 2 and len(fineline.report(compiled).graphs) == 1


def written_and_read(x, i):
    warnings.warn("written")
    x.add_(1)
    return (x * 2)[i]


@pytest.mark.usefixtures("shown_warnings")
def test_a_graph_that_fails_warns_as_eager_code_does() -> None:
    seen = []
    for call in (written_and_read, fineline.compile(written_and_read, backend="eager")):
        globals().pop("__warningregistry__", None)
        with warnings.catch_warnings():
            for place in (0, 1, 7, 1):
                warnings.simplefilter("default" if place == 7 else "once")
                x = t()
                with contextlib.redirect_stderr(io.StringIO()) as err, contextlib.suppress(IndexError):
                    call(x, torch.tensor([place]))
                seen.append((x.tolist(), err.getvalue()))
    assert seen[:4] == seen[4:] and seen[2][1]


def replaced_show(*args: Any, **kwargs: Any) -> None:
    pass


@pytest.mark.usefixtures("shown_warnings")
@pytest.mark.parametrize("name", ["showwarning", "formatwarning", "filters"])
def test_what_code_of_the_users_may_see_breaks_the_graph(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    globals().pop("__warningregistry__", None)
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("default")
        compiled = fineline.compile(outer, backend="eager")
        compiled(t())
        assert not fineline.report(compiled).breaks
        monkeypatch.setattr(warnings, name, [("ignore", None, Warning, replaced_show, 0)] if name == "filters" else replaced_show)
        with contextlib.suppress(AttributeError, TypeError):
            compiled(t())
    assert {event.id for event in fineline.report(compiled).breaks} == {"FL411"}


def warns_of_its_size(x):
    warnings.warn(f"{x.shape[0]} rows")
    return x * 2


def warns_by_its_callers_module(x):
    warnings.warn("far away", stacklevel=5)
    return x * 2


class Own(UserWarning):
    pass


def warns_by_a_class_of_its_own(x):
    warnings.warn("own", Own)
    return x * 2


@pytest.mark.usefixtures("shown_warnings")
@pytest.mark.parametrize("fn, ids", [(warns_of_its_size, {"FL417", "FL448"}), (warns_by_its_callers_module, {"FL411"}), (warns_by_a_class_of_its_own, {"FL411"})])
def test_other_warnings_break_the_graph(fn: Any, ids: set[str]) -> None:
    compiled = fineline.compile(fn, backend="eager", dynamic=fn is warns_of_its_size)
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("default")
        for rows in (3, 4):
            assert torch.equal(compiled(t(0, rows, 2)), t(0, rows, 2) * 2)
    assert {event.id for event in fineline.report(compiled).breaks} == ids


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_warnings(program: Program, twin: str) -> None:
    check(program, twin)
