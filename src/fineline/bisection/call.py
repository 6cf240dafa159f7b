"""``fineline.bisect``: the hunt for what makes the result of a call differ from that of eager code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fineline.api import check_callable
from fineline.errors import BadArgument
from fineline.import_thread import LateModule
from fineline.policy.policy import Policy

if TYPE_CHECKING:
    from fineline.bisection import call_runner, hunt
    from fineline.bisection.hunt import Bisection
else:
    hunt, call_runner = LateModule("fineline.bisection.hunt"), LateModule("fineline.bisection.call_runner")


def bisect(
    f: Callable, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, *, backend: str | Callable | None = None,
    check: Callable[[Any], object] | None = None, mode: str | None = None, options: dict[str, Any] | None = None, policy: Policy | None = None,
    dynamic: bool | None = None,
) -> Bisection:  # fmt: skip
    """Finds the graph, the function and the operators that make a backend's result differ from eager code's, or make the backend fail.

    Makes a few runs and about 2 · log2(n) more, for n operators: each captures ``f`` anew with another part compiled, while the rest runs as it
    was captured, and calls it two to four times. Every call gets copies of the arguments, and begins with what ``f`` reaches (modules, optimizers,
    closures, objects) and the random states as they are now; what else ``f`` changes stays changed. ``check`` gets the result of ``f``, and
    returns whether it is right (or raises an AssertionError); without it the result, the arguments, the tensors that ``f`` reaches and their
    gradients are compared with those of eager code, within tolerances for each dtype. A compiled callable is captured as it was compiled, and
    ``backend`` may be left out.
    Print the result; its ``policy`` mends the fault. Raises `BadArgument`: FL201 if ``f`` is not callable, FL208 if ``args`` is not a list
    or a tuple, or ``check`` is not callable.
    """
    check_callable(f)
    if not isinstance(args, (tuple, list)):
        step = "Give the arguments of the call in a list or a tuple."
        raise BadArgument(f"args is a list or a tuple, not a {type(args).__name__}", next_step=step)
    if check is not None and not callable(check):
        raise BadArgument(f"check is a function of the result, not a {type(check).__name__}")
    given = {"backend": backend, "mode": mode, "options": options, "policy": policy, "dynamic": dynamic}
    runner = call_runner.CallRunner(f, args, kwargs or {}, check, {name: value for name, value in given.items() if value is not None})
    return runner.judged_eagerly() or hunt.Hunt(runner).go()
