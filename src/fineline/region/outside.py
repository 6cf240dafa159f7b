"""What no program can make again at a graph break: from the next call on, it is made outside of the graphs."""

from __future__ import annotations

from typing import Any

from fineline.capture.frame import Frame
from fineline.capture.places import is_own, user_stack
from fineline.capture.signals import Border, Retreat
from fineline.region.options import Options
from fineline.region.restart import may_restart
from fineline.report.events import Event

# What would only be met again at the next capture.
HOPELESS = frozenset({"FL427", "FL428"})


def make_outside(region: Any, site: Any, called_at: Any) -> bool:
    """What the call at ``called_at`` makes is made, and runs, outside of the graphs; -> whether that is known to help."""
    if called_at is None or called_at in region.options.opaque:
        return False
    region.options.opaque.add(called_at)
    if site is not region.entry:
        # The way here leads through programs that make it inside.
        start_anew(region)
    return True


def given_up(region: Any, error: str, text: str) -> None:
    """A capture has been given up because of ``error``: what that means for the next ones."""
    if text and error in HOPELESS and not region.options.opaque:
        region.eager_reason = text
    if error == "FL439":
        start_anew(region)


def start_anew(region: Any) -> None:
    """The next call is captured from its start; graphs that it has in common with this one are not compiled again."""
    region.entry.segments.clear()
    region.entry.dispatcher.set_entries([])
    # Else the new programs would go on with those behind the old ones.
    region.sites = [region.entry]
    region.loops.clear()


def stop_in_debugger(run: Any, border: Border, place: tuple[str, int]) -> Any:
    """The call goes on in Python, from its start if nothing has happened yet that could be seen, and so do all later ones.

    Else the debugger sees frames that stand for the user's, with their variables.
    """
    region, vm = run.region, run.vm
    region.eager_reason = border.reason
    # No program leads here any more.
    start_anew(region)
    stack = {"stack": user_stack(vm.frame)}
    region._note(Event("eager", border.error, f"{border.reason}; from here on calls run eagerly", *place, detail=stack))
    if vm.fakes is not None or (run.site is run.start is region.entry and may_restart(run)):
        raise Retreat(border.error, border.reason)
    vm.fail(border.error, border.reason, False)
    run.ended = True
    return vm.beyond(border)


def move_out(options: Options, f: Frame | None) -> None:
    """Nobody knows what made it: the innermost call around that is the user's own runs eagerly as a whole."""
    while f is not None and f.back is not None:
        caller = f.back
        key = (caller.info.code, caller.ip - 1)
        called = caller.info.instructions[caller.ip - 1].name in ("CALL", "CALL_FUNCTION_EX")
        if called and key not in options.opaque and not is_own(caller.info.code):
            options.opaque.add(key)
            return
        f = caller
