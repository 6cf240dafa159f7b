"""The backends by name: fineline's own, those registered in this process, and those that installed packages bring.

A backend is a callable ``(GraphModule, example_inputs) -> callable``. All but the ones registered in this process are
entry points, imported when first needed: a region with backend ``eager`` loads neither AOTAutograd nor Inductor.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import TypedDict, TypeVar, overload

from fineline.bytecode.asynchronous import let_pass
from fineline.errors import BackendFailed, BadArgument
from fineline.import_thread import apart

log = logging.getLogger("fineline")

BackendFn = Callable
F = TypeVar("F", bound=BackendFn)

# The group under which packages announce backends to PyTorch; they work here unchanged.
PLUGIN_GROUP = "torch_dynamo_backends"


@functools.cache
def _imported(source: EntryPoint) -> object:
    """Imports one of fineline's own backends, once, because an import starts a thread. A failed import is tried again."""
    return apart(source.load)


@dataclass(frozen=True)
class Registered:
    """A backend under its name: a callable, or the entry point that leads to one.

    ``builtin``: one of fineline's own, whose calls are not counted. ``min_graph_operators``: a segment between two graph
    breaks with fewer operators runs eagerly, unless an option of the region overrides this.
    """

    name: str
    source: BackendFn | EntryPoint
    tags: frozenset[str] = frozenset()
    builtin: bool = False
    min_graph_operators: int = 1

    def load(self) -> BackendFn:
        """Returns the callable itself."""
        if not isinstance(self.source, EntryPoint):
            return self.source
        try:
            fn = _imported(self.source) if self.builtin else self.source.load()
        except Exception as error:
            let_pass(error)
            raise BackendFailed(f"{self.name!r} ({self.source.value}): {error}", id="FL303") from error
        if not callable(fn):
            raise BackendFailed(f"{self.name!r} ({self.source.value}) is a {type(fn).__name__}, not a callable", id="FL303")
        return fn


BUILTIN = (
    Registered("eager", EntryPoint("eager", "fineline.backends.eager:eager", "fineline"), builtin=True),
    Registered("aot_eager", EntryPoint("aot_eager", "fineline.backends.aot_eager:aot_eager", "fineline"), builtin=True),
    # On small data, a call of a compiled graph costs as much as two operators run eagerly: 12.6 µs against 12.8 µs (four: 16.0 µs).
    # Compiling takes seconds if the C++ code is not cached.
    Registered("inductor", EntryPoint("inductor", "fineline.backends.inductor:inductor", "fineline"), builtin=True, min_graph_operators=3),
)


class BackendArguments(TypedDict, total=False):
    """The keyword arguments that ``compile`` passes on to a backend."""

    mode: str
    options: dict[str, object]


@dataclass(frozen=True)
class Backend:
    """A registered backend together with the keyword arguments that ``compile`` got for it."""

    name: str
    source: Registered
    kwargs: BackendArguments = field(default_factory=BackendArguments)

    @property
    def builtin(self) -> bool:
        return self.source.builtin

    @property
    def min_graph_operators(self) -> int:
        return self.source.min_graph_operators

    @property
    def sees_graphs(self) -> bool:
        """Returns whether the backend may inspect graphs: all do except ``eager``, which runs them as they are."""
        return self.source is not BUILTIN[0]

    def __call__(self, gm: object, example_inputs: Sequence[object]) -> object:
        return self.source.load()(gm, list(example_inputs), **self.kwargs)

    def settings(self) -> object:
        """Returns the backend's own settings for its keyword arguments; None if it has no ``get_compiler_config``."""
        read = getattr(self.source.load(), "get_compiler_config", None)
        return read(**self.kwargs) if read is not None else None


class BackendRegistry:
    """Names to backends; the process has one, ``BACKENDS``."""

    def __init__(self, builtin: Iterable[Registered], plugin_group: str) -> None:
        self._known = {backend.name: backend for backend in builtin}
        self._plugin_group = plugin_group
        self._stand_in: Callable[[Registered], Registered] | None = None

    def replace_by(self, stand_in: Callable[[Registered], Registered] | None) -> None:
        """Sets what regions that are made from now on get instead of a backend; None: the backend itself."""
        self._stand_in = stand_in

    @overload
    def register(self, fn: F, name: str | None = None, tags: Sequence[str] = ()) -> F: ...
    @overload
    def register(self, fn: None = None, name: str | None = None, tags: Sequence[str] = ()) -> Callable[[F], F]: ...
    @overload
    def register(self, *, name: str | None = None, tags: Sequence[str] = (), compiler_fn: F) -> F: ...
    def register(
        self, fn: BackendFn | None = None, name: str | None = None, tags: Sequence[str] = (), *, compiler_fn: BackendFn | None = None
    ) -> Callable:
        """Registers ``fn`` (PyTorch's name: ``compiler_fn``) under ``name``, or its own, and returns it; without ``fn``, a decorator."""
        fn = fn or compiler_fn
        if fn is None:
            return functools.partial(self.register, name=name, tags=tags)
        if not callable(fn):
            raise BadArgument(f"a {type(fn).__name__}", id="FL203")
        name = name or getattr(fn, "__name__", None)
        if not name:
            raise BadArgument(f"{fn!r} has no __name__: say register_backend(fn, name=...)", id="FL203")
        if name in self._known and self._known[name].source is not fn:
            raise BadArgument(f"{name!r} is {self._known[name].source!r} already", id="FL204")
        self._known[name] = Registered(name, fn, frozenset(tags))
        return fn

    def names(self, exclude_tags: Sequence[str] | None = ("debug", "experimental")) -> list[str]:
        """Returns the names that ``compile(backend=...)`` accepts, without those that have a tag of ``exclude_tags``."""
        hidden = frozenset(exclude_tags or ())
        shown = {known.name for known in self._known.values() if not known.tags & hidden}
        return sorted(shown | set(self._plugins()))

    def lookup(
        self, backend: str | BackendFn | Registered, mode: str | None = None, options: Mapping[str, object] | None = None, own: Collection[str] = ()
    ) -> Backend:
        """Returns the backend of a region; raises `BadArgument` for a wrong name, mode or option here, not at the first call.

        ``own``: the names of fineline's own options, which the message may suggest.
        """
        if mode is not None and options is not None:
            raise BadArgument(f"mode={mode!r} and options={dict(options)!r}", id="FL205")
        found = backend if isinstance(backend, Registered) else self._find(backend)
        kwargs: BackendArguments = {}
        if mode and mode != "default":
            kwargs["mode"] = mode
        if options:
            kwargs["options"] = dict(options)
        if kwargs:
            _check_arguments(found, kwargs, own)
        if self._stand_in is not None:
            found = self._stand_in(found)
        return Backend(found.name, found, kwargs)

    def _find(self, backend: str | BackendFn) -> Registered:
        if not isinstance(backend, str):
            if not callable(backend):
                raise BadArgument(f"backend={backend!r} is a {type(backend).__name__}", id="FL203")
            return Registered(getattr(backend, "__name__", type(backend).__name__), backend)
        known = self._known.get(backend)
        if known is None:
            plugin = self._plugins().get(backend)
            if plugin is None:
                raise self._unknown(backend)
            known = Registered(backend, plugin)
        return known

    def _plugins(self) -> dict[str, EntryPoint]:
        # Read at each call: this happens once a region, and a package may have been installed meanwhile.
        return {entry.name: entry for entry in entry_points(group=self._plugin_group)}

    def _unknown(self, name: str) -> BadArgument:
        names = self.names(exclude_tags=())
        close = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        return BadArgument(f"{name!r}{hint} (known: {', '.join(names)})", id="FL202")


def _check_arguments(backend: Registered, kwargs: BackendArguments, own: Collection[str]) -> None:
    """Raises `BadArgument` for a mode or an option that the backend is known to reject."""
    fn = backend.load()
    hints = [f"; did you mean fineline's {meant!r}?" for option in kwargs.get("options", {}) if (meant := _close(option, own))]
    check = getattr(fn, "check_arguments", None)
    if check is not None:
        try:
            check(**kwargs)
        except BadArgument as e:
            raise BadArgument(f"{e.reason}{''.join(hints)}", id=e.id) from None
        return
    taken = _parameters(fn)
    for name in kwargs:
        if taken is not None and name not in taken:
            given = kwargs["mode"] if name == "mode" else ", ".join(map(repr, kwargs["options"]))
            step = f"Leave {name} out, or have the backend take a parameter of that name."
            raise BadArgument(f"the backend {backend.name!r} takes no {name}: {given}{''.join(hints)}", id="FL206", next_step=step)
    if hints and backend.builtin:
        raise BadArgument(f"the backend {backend.name!r} has no options {', '.join(map(repr, kwargs['options']))}{''.join(hints)}", id="FL206")
    if hints:
        log.warning("fineline: options %s go to the backend %r%s", ", ".join(map(repr, kwargs["options"])), backend.name, "".join(hints))


def _close(option: object, names: Collection[str]) -> str | None:
    return next(iter(difflib.get_close_matches(str(option), names, n=1, cutoff=0.8)), None)


def _parameters(fn: BackendFn) -> Collection[str] | None:
    """Returns the names of the parameters of a backend; None if it accepts any, or has no readable signature."""
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return None
    return None if any(p.kind is p.VAR_KEYWORD for p in parameters.values()) else parameters.keys()


BACKENDS = BackendRegistry(BUILTIN, PLUGIN_GROUP)

register_backend = BACKENDS.register
list_backends = BACKENDS.names
lookup_backend = BACKENDS.lookup
