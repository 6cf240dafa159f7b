"""Every refusal: an error with a stable id, the user's place, the reason, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Refusal:
    """What an id stands for: a title of a few words, why fineline refuses, and the next step for the user."""

    title: str
    explanation: str
    next_step: str


REFUSALS: Mapping[str, Refusal] = MappingProxyType(
    {
        "FL100": Refusal(
            "fineline refused",
            "",
            "Report it with the shortest function that shows it.",
        ),
        # -- capture --------------------------------------------------------------------------------------------
        "FL101": Refusal(
            "this cannot be captured",
            "Capture met something that it can neither run through nor split at.",
            "Keep the function out of the region with fineline.disable(fn), or take fullgraph=True away so that it may run eagerly.",
        ),
        "FL102": Refusal(
            "graph break where none is allowed",
            "The region was compiled with fullgraph=True, and here a graph would end.",
            "Move this line out of the region, or take fullgraph=True away; fineline.explain(fn)(*args).breaks lists all breaks at once.",
        ),
        "FL103": Refusal(
            "a disabled function was reached",
            "The region was compiled with fullgraph=True, and a function marked to run eagerly would split its graph.",
            "Take the mark away, or take fullgraph=True away.",
        ),
        "FL104": Refusal(
            "too many programs in one region",
            "Each call that no program fits is captured again; this region has reached its recompile_limit.",
            "Hold constant what those guards name, or pass it as a tensor; otherwise raise recompile_limit.",
        ),
        # -- arguments ------------------------------------------------------------------------------------------
        "FL201": Refusal(
            "not something that can be compiled",
            "fineline.compile takes a function, a method, another callable or an nn.Module.",
            "Pass the callable itself, not its result.",
        ),
        "FL202": Refusal(
            "unknown backend",
            "A backend is a registered name, or a callable (GraphModule, example_inputs) -> callable.",
            "Correct the name, install the plugin that brings it, or register it with fineline.register_backend.",
        ),
        "FL203": Refusal(
            "not a backend",
            "A backend is a registered name, or a callable (GraphModule, example_inputs) -> callable.",
            "Pass a name from fineline.list_backends(), or a callable.",
        ),
        "FL204": Refusal(
            "backend name taken",
            "Two backends cannot share one name, or a region would not say what it runs.",
            "Register it under another name: register_backend(fn, name=...).",
        ),
        "FL205": Refusal(
            "mode and options given together",
            "A mode is a named set of options, so the two could contradict each other.",
            "Give options alone; torch._inductor.list_mode_options(mode) shows what a mode stands for.",
        ),
        "FL206": Refusal(
            "mode or option not known to the backend",
            "The backend has no such mode or option, or the option's value is of another type.",
            "torch._inductor.list_mode_options() and torch._inductor.list_options() list what there is.",
        ),
        # -- backends -------------------------------------------------------------------------------------------
        "FL301": Refusal(
            "the backend failed",
            "The graph was captured, and the backend raised while it compiled it; the cause stands above.",
            'Compile with backend="eager" to see that the capture is sound, then with "aot_eager" to tell autograd from code generation.',
        ),
        "FL302": Refusal(
            "the backend did not return a callable",
            "A backend returns what runs the graph: a callable that takes the graph's inputs and returns its outputs.",
            "Return gm.forward, or a function of the same signature.",
        ),
        "FL303": Refusal(
            "the backend could not be loaded",
            "Its name is registered by an installed package, but importing it raised; the cause stands above.",
            "Repair or reinstall the package that the entry point names.",
        ),
        # -- fineline itself ------------------------------------------------------------------------------------
        "FL901": Refusal(
            "fineline met a state it cannot explain",
            "A check inside fineline failed. This is a defect of fineline, not of the code it captured.",
            "Report it with this text; until then keep the function out of the region with fineline.disable(fn).",
        ),
    }
)


class FinelineError(Exception):
    """Base of all refusals: what (``id`` and title), ``where``, ``reason``, ``rule``, and what to do next.

    ``where`` is the user's ``file:line``; ``rule`` the text of the rule that decided, if one did. Explanation and next
    step come from the table unless given.
    """

    id = "FL100"

    def __init__(
        self,
        reason: str,
        *,
        id: str | None = None,
        where: str | None = None,
        rule: str | None = None,
        next_step: str | None = None,
    ) -> None:
        super().__init__(reason)
        if id is not None:
            self.id = id
        self.reason = reason
        self.where = where
        self.rule = rule
        self.next_step = next_step or self.refusal.next_step

    @property
    def refusal(self) -> Refusal:
        """The table's entry for this error's id."""
        return REFUSALS[self.id]

    def __str__(self) -> str:
        lines = [
            ("", f"{self.id}: {self.refusal.title}: {self.reason}"),
            ("at", self.where),
            ("why", self.refusal.explanation),
            ("rule", self.rule),
            ("next", self.next_step),
        ]
        return "\n".join(f"  {label + ':':<6}{text}" if label else text for label, text in lines if text)


class Unsupported(FinelineError):
    """The code cannot be captured as the region's options ask."""

    id = "FL101"


class RecompileLimit(Unsupported):
    """A region under ``fullgraph`` has captured as many programs as it may."""

    id = "FL104"


class BackendFailed(FinelineError):
    """A backend raised, or broke its contract; what it raised is the ``__cause__``."""

    id = "FL301"


class BadArgument(FinelineError, TypeError, ValueError):
    """An argument of a fineline function is of no use; both ``except TypeError`` and ``except ValueError`` catch it."""

    id = "FL201"


class InternalError(FinelineError):
    """A check inside fineline failed."""

    id = "FL901"
