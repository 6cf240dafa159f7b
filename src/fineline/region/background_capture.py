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
from fineline.bytecode.asynchronous import let_pass
from fineline.errors import FinelineError
from fineline.exception_slots import error_text
from fineline.frames.graph_breaks import CaptureEnded, RestartSpecialized
from fineline.policy.scope_stack import SCOPE
from fineline.region.capture_state import BackgroundCapture
from fineline.region.interface import CapturingRegion
from fineline.region.session.capture_session import CaptureSession, Mode
from fineline.region.sharing.adoption import adopt
from fineline.report.events import Event
from fineline.torch_facts.thread_state import state_is_plain

# Capturing again with fewer symbols than before.
MOST_RESTARTS = 16
# Seconds before another try, if the process was in another state than the call.
PAUSE = 0.05


class EagerRun(NamedTuple):
    """In place of the result of a call: the call is to run eagerly, and ``job`` captures it after that; None: another call's capture is under way."""

    job: CaptureJob | None = None


def is_possible(region: CapturingRegion) -> bool:
    """Returns whether the capture of a call that is made now, in this thread, can be made in another one."""
    return region.state.background.may_succeed and not SCOPE.blocks and state_is_plain()


def plan(region: CapturingRegion, args: tuple, kwargs: dict) -> EagerRun:
    """Plans the capture of a call, which begins after the call."""
    background = region.state.background
    job = CaptureJob(functools.partial(_capture, weakref.ref(region), background, args, kwargs, GraphState.now()), background.end)
    background.begin(job)
    return EagerRun(job)


def run(region: CapturingRegion, planned: EagerRun, args: tuple, kwargs: dict) -> Any:
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
    """Captures a call in the ``state`` in which it was made, unless its region is gone."""
    turn = CAPTURES.turns.turn()
    # At once: the call that has queued this has not returned yet.
    turn.take()
    region = ref()
    try:
        if region is not None:
            _Attempt(region, args, kwargs, state, turn).make()
    finally:
        background.end()


class _Attempt:
    """One try to capture a call in this thread."""

    def __init__(self, region: CapturingRegion, args: tuple, kwargs: dict, state: GraphState, turn: Turn) -> None:
        self.region, self.args, self.kwargs, self.state, self.turn = region, args, kwargs, state, turn
        self.succeeded = False

    def make(self) -> None:
        """Makes it; notes why it was in vain, if it was."""
        region = self.region
        try:
            # Before the region's lock: the compiler's thread may hold this one for long, and `forget` waits for that one.
            TRACERS.holding_in_background(self._make_alone)
            if self.succeeded and gc.isenabled():
                # Of what the capture has made, here: else a call would collect it.
                gc.collect(0)
            if self.succeeded and region.entry_points.storage is not None:
                region.entry_points.storage.keep(region)
        except OtherState:
            if not self.succeeded:
                self._failed("FL017", "PyTorch's state is not that of the call", region.reports.place)
                time.sleep(PAUSE)
        except TracersBusy as e:
            self._failed("FL017", str(e), region.reports.place)
        except CaptureEnded as e:
            self._failed(e.error, e.text, e.place)
        except FinelineError as e:
            self._failed(e.id, e.reason, region.reports.place)
        except Exception as e:
            let_pass(e)
            self._failed("FL901", error_text(e), region.reports.place)

    def _make_alone(self) -> None:
        """Captures the call unless another thread captures one: a later call plans another try then. Does not wait, as that thread may, for this one."""
        locked: list[bool] = []
        try:
            self.region.state.try_lock(locked)
            if locked[0]:
                self._make_in_state()
        finally:
            if locked and locked[0]:
                self.region.state.unlock()

    def _make_in_state(self) -> None:
        region, args, kwargs = self.region, self.args, self.kwargs
        with self.state.in_this_thread():
            if region.entry.hit(args, kwargs) is not None or adopt(region, region.entry, args, kwargs) is not None:
                self.succeeded = True
                return
            before = region.state.thread
            region.state.begin()
            try:
                for _ in range(MOST_RESTARTS):
                    try:
                        self.succeeded = self._run_session()
                        break
                    except RestartSpecialized:
                        continue
            finally:
                region.state.thread = before
            if not self.succeeded:
                self._failed("FL016", "no program can replace the call", region.reports.place)

    def _run_session(self) -> bool:
        """Runs a session; returns whether it has added a program."""
        with self.turn.profiling():
            session = CaptureSession(self.region, self.region.entry, self.args, self.kwargs, Mode(trial=True, turn=self.turn))
        session.go()
        return session.kept

    def _failed(self, error: str, text: str, place: tuple[str, int]) -> None:
        """Notes why the attempt was in vain."""
        changed, background = error == "FL017", self.region.state.background
        background.fail(for_good=not changed)
        again = "in the background" if background.may_succeed else "while it waits"
        reason = text if error in ("FL016", "FL017") else f"{text} ({error})"
        self.region.reports.note(Event("restart", "FL017" if changed else "FL016", f"{reason}; the next call is captured {again}", *place))
