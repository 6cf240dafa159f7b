"""The captures of a region in the background (``wait=False``): a call runs eagerly, and after it the call is captured in a thread of its own."""

from __future__ import annotations

import functools
import gc
import time
import weakref
from typing import Any, NamedTuple

from fineline.backends.lock import TRACERS, TracersBusy
from fineline.background.capture_queue import CaptureJob
from fineline.background.graph_state import GraphState, OtherState
from fineline.background.queue import CAPTURES
from fineline.background.turns import Turn
from fineline.errors import FinelineError
from fineline.frames.graph_breaks import CaptureEnded, RestartSpecialized
from fineline.policy.scope_stack import SCOPE
from fineline.region.capture_state import BackgroundCapture
from fineline.region.interface import CapturingRegion
from fineline.region.session.capture_session import CaptureSession, Mode
from fineline.region.sharing.adoption import adopt
from fineline.torch_facts.thread_state import state_is_plain

# Capturing again with fewer symbols than before.
MOST_RESTARTS = 16
# Seconds before another try, if the process was in another state than the call.
PAUSE = 0.05


class Planned(NamedTuple):
    """In place of the result of a call: it is to run eagerly, now, and ``job`` captures it after that; None: another call's capture is under way."""

    job: CaptureJob | None = None


def is_possible(region: CapturingRegion) -> bool:
    """Returns whether the capture of a call that is made now, in this thread, can be made in another one."""
    return region.state.background.may_succeed and not SCOPE.blocks and state_is_plain()


def plan(region: CapturingRegion, args: tuple, kwargs: dict) -> Planned:
    """Plans the capture of a call, which begins after the call."""
    background = region.state.background
    job = CaptureJob(functools.partial(_capture, weakref.ref(region), background, args, kwargs, GraphState.now()), background.end)
    background.begin(job)
    return Planned(job)


def run(region: CapturingRegion, planned: Planned, args: tuple, kwargs: dict) -> Any:
    """Runs a call eagerly, beside which the background's threads take turns; then queues the capture that is planned for it."""
    with CAPTURES.turns.call():
        try:
            out = region.fn(*args, **kwargs)
        except BaseException:
            if planned.job is not None:
                region.state.background.end()
            raise
        if planned.job is not None:
            # In the call, so that the thread waits as soon as it begins.
            CAPTURES.add(planned.job)
        return out


# -- the thread --------------------------------------------------------------------------------------------------------
def _capture(ref: weakref.ref[CapturingRegion], background: BackgroundCapture, args: tuple, kwargs: dict, state: GraphState) -> None:
    """Captures a call in the ``state`` in which it was made."""
    turn = CAPTURES.turns.turn()
    # At once: the call that has queued this has not returned yet.
    turn.take()
    region = ref()
    try:
        if region is not None:
            _capture_region(region, args, kwargs, state, turn)
    finally:
        background.end()


def _capture_region(region: CapturingRegion, args: tuple, kwargs: dict, state: GraphState, turn: Turn) -> None:
    try:
        with region.state:
            TRACERS.holding_in_background(functools.partial(_in_state, region, args, kwargs, state, turn))
        if gc.isenabled():
            # Of what the capture has made, here: else a call would collect it.
            gc.collect(0)
        if region.entry_points.storage is not None:
            region.entry_points.storage.keep(region)
    except OtherState:
        _failed(region, "FL017", "PyTorch's state is not that of the call")
        time.sleep(PAUSE)
    except TracersBusy as e:
        _failed(region, "FL017", str(e))
    except CaptureEnded as e:
        _failed(region, e.error, e.text)
    except FinelineError as e:
        _failed(region, e.id, e.reason)


def _in_state(region: CapturingRegion, args: tuple, kwargs: dict, state: GraphState, turn: Turn) -> None:
    with state.in_this_thread():
        if region.entry.hit(args, kwargs) is not None or adopt(region, region.entry, args, kwargs) is not None:
            return
        for _ in range(MOST_RESTARTS):
            with turn.everywhere():
                session = CaptureSession(region, region.entry, args, kwargs, Mode(trial=True, beside=turn))
            before = region.state.thread
            region.state.begin()
            try:
                session.go()
                break
            except RestartSpecialized:
                continue
            finally:
                region.state.thread = before
        if not session.kept:
            _failed(region, "FL016", "its code has a graph break")


def _failed(region: CapturingRegion, error: str, text: str) -> None:
    """Notes that a capture was in vain, and why."""
    changed = error == "FL017"
    region.state.background.fail(for_good=not changed)
    again = "in the background" if region.state.background.may_succeed else "while it waits"
    reason = text if error in ("FL016", "FL017") else f"{text} ({error})"
    region.reports.note_call("restart", "FL017" if changed else "FL016", f"{reason}; the next call is captured {again}")
