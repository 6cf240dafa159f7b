"""``install`` routes PyTorch's public names to fineline; ``uninstall`` restores them."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from fineline import api, errors, porting
from fineline.backends.registry import list_backends
from fineline.errors import FACES, caller
from fineline.export.call import export_call
from fineline.policy import declare, dim_marks
from fineline.policy.break_settings import error_on_graph_break
from fineline.policy.marks import MARKS
from fineline.policy.policy import Policy
from fineline.policy.rule import MARK, Rule
from fineline.policy.selector import of_object
from fineline.policy.shape_api import marked_shapes
from fineline.policy.stance import STANCES, StanceBlock, set_stance
from fineline.region.compiled import Compiled
from fineline.region.optimized_module import OptimizedModule, TorchOptimizedModule
from fineline.region.options import Breaks
from fineline.region.settings import Settings
from fineline.report.events import LISTENERS, Event
from fineline.report.logs import LOGS

# PyTorch uses its compiler itself (torch.cond, flex_attention, export): calls from its modules stay with PyTorch, except from
# these modules, which only pass on a user's call.
HANDING_ON = frozenset({"torch.compiler", "torch.nn.modules.module", "torch._dynamo.testing"})
# Names that act on both compilers, whichever module calls them.
ANYBODY = frozenset({"reset", "reset_code_caches", "run", "set_stance", "error_on_graph_break", "nested_compile_region"})
MARKS_OF_SIZES = (dim_marks.mark_dynamic, dim_marks.maybe_mark_dynamic, dim_marks.mark_static, dim_marks.mark_unbacked)
# The functions that captured code runs instead of the replacements; for None, and for other names, the graph breaks.
INSIDE: Mapping[str, Callable | None] = types.MappingProxyType(
    {
        "reset": None, "reset_code_caches": None, "run": None, "set_stance": set_stance, "error_on_graph_break": error_on_graph_break,
        "nested_compile_region": porting.nested_compile_region, "dont_skip_tracing": declare.dont_skip_tracing,
        "disable": declare.disable, "patch_dynamo_config": porting.null_context, "override_cudagraphs": porting.null_context,
        "disable_nested_graph_breaks": porting.null_context,
        **{mark.__name__: mark for mark in MARKS_OF_SIZES},
    }
)  # fmt: skip

# The classes of PyTorch (in torch._dynamo.exc, or builtin) from which our errors also derive: by id, then by class.
BY_ID = types.MappingProxyType({"FL202": ("InvalidBackend",), "FL203": ("InvalidBackend",)})
BY_CLASS: Mapping[type, tuple] = types.MappingProxyType(
    {
        errors.RecompileLimit: ("FailOnRecompileLimitHit", "Unsupported"),
        errors.Recompiled: ("RecompileError", "Unsupported"),
        errors.Forbidden: ("Unsupported", AssertionError),
        errors.Unsupported: ("Unsupported",),
        errors.BackendFailed: ("BackendCompilerFailed",),
        errors.InternalError: ("InternalTorchDynamoError",),
        errors.FinelineError: ("TorchDynamoException",),
    }
)


# Arguments of torch._dynamo.export that change nothing here.
EXPORT_UNUSED = (
    "specialize_float", "same_signature", "disable_constraint_solver", "prefer_deferred_runtime_asserts_over_guards", "_log_export_usage",
)  # fmt: skip
# Types of objects that ``disable`` marks, or takes apart, instead of wrapping them.
MARKED_THEMSELVES = (type, nn.Module, list, tuple, staticmethod, classmethod, property)


class Installation:
    """The replacements in PyTorch's modules, with the original objects, so that `uninstall` restores the same ones."""

    def __init__(self) -> None:
        self.active = False
        self.defaults: dict[str, Any] = {}
        self.replaced: list[tuple[Any, str, Any, Any]] = []
        self.faces: dict[tuple[type, str | None], type] = {}
        self.dynamo: Any = None
        self.settings: Any = None
        # PyTorch's stance at the time of `install`.
        self.stance: StanceBlock | None = None

    # -- install and uninstall -------------------------------------------------------------------------------------------
    def install(self, defaults: dict[str, Any]) -> None:
        api.compile(_nothing, disable=True, **defaults)  # raises if they are wrong
        # Before `active` is read: in a process that ``fineline run`` has started, this import installs fineline.
        dynamo = importlib.import_module("torch._dynamo")
        self.defaults = defaults
        if self.active:
            return
        self.dynamo = dynamo
        decorators = importlib.import_module("torch._dynamo.decorators")
        self.settings = Settings()
        ours = self.doors()
        homes = [dynamo, decorators, torch.compiler, *[sys.modules.get(f"torch._dynamo.{n}") for n in ("testing", "test_case")]]
        # One replacement for each function, however many modules contain it.
        made: dict[str, Any] = {}
        for name, door in {"compile": self.compile, **ours}.items():
            for home in [torch] if name == "compile" else homes:
                theirs = getattr(home, name, None)
                if theirs is not None:
                    key = f"{name} of torch.compiler" if home is torch.compiler else name
                    made[key] = made.get(key) or self._door(name, theirs, door)
                    self.replaced.append((home, name, theirs, made[key]))
        set_logs = torch._logging.set_logs
        self.replaced.append((torch._logging, "set_logs", set_logs, self._door("set_logs", set_logs, functools.partial(self.set_logs, set_logs))))
        self.active = True
        self.settings.follow_logs()
        for home, name, _, door in self.replaced:
            setattr(home, name, door)
        # Libraries check isinstance(model, torch._dynamo.OptimizedModule) with a class that they imported before.
        OptimizedModule.__bases__ = (dynamo.OptimizedModule,)
        theirs = importlib.import_module("torch._dynamo.eval_frame")._stance
        if (theirs.stance, theirs.backend) != ("default", None) and STANCES.here() is None:
            self.stance = self.set_stance(theirs.stance, force_backend=theirs.backend)
        FACES.find = self.face
        LISTENERS.all = (*LISTENERS.all, self.count)

    def uninstall(self) -> None:
        if not self.active:
            return
        self.active = False
        for home, name, theirs, door in self.replaced:
            # Keep what other code has set there since.
            if getattr(home, name, None) is door:
                setattr(home, name, theirs)
        self.replaced.clear()
        self.defaults = {}
        OptimizedModule.__bases__ = (nn.Module,)
        if self.stance is not None:
            self.stance.take_back()
            self.stance = None
        FACES.find = lambda cls, id: cls
        LOGS.follow(())
        LISTENERS.all = tuple([heard for heard in LISTENERS.all if heard != self.count])

    def _door(self, name: str, theirs: Any, ours: Callable) -> Callable:
        """Returns the replacement of ``theirs``; it calls ``theirs`` after `uninstall`, for code that has imported it."""
        by_caller = name not in ANYBODY

        @functools.wraps(theirs, updated=())
        def door(*args: Any, **kwargs: Any) -> Any:
            if not self.active or (by_caller and asked_by_torch(sys._getframe(1).f_globals.get("__name__"))):
                return theirs(*args, **kwargs)
            return ours(*args, **kwargs)

        # Captured code runs the function in this mark instead; None: the graph breaks.
        door.__dict__["fineline_door"] = (id(door), INSIDE.get(name))
        return door

    def doors(self) -> dict[str, Callable]:
        """Returns the replacements in ``torch._dynamo``, its decorators and ``torch.compiler``. Other names need none."""
        dynamo = self.dynamo
        return {
            "allow_in_graph": self._allowing(dynamo.allow_in_graph),
            "assume_constant_result": _mark_both(declare.assume_constant_result, dynamo.assume_constant_result),
            "forbid_in_graph": _mark_both(declare.forbid_in_graph, dynamo.forbid_in_graph),
            "disallow_in_graph": declare.disallow_in_graph,
            "substitute_in_graph": declare.substitute_in_graph,
            "disable": functools.partial(_disable, dynamo.disable),
            "optimize": self.optimize,
            "optimize_assert": self.optimize_assert,
            "run": porting.run,
            "explain": _explain,
            "export": self.export,
            "reset": _both(dynamo.reset, api.reset),
            "reset_code_caches": _both(dynamo.reset_code_caches, _forget),
            "list_backends": functools.partial(_list_backends, dynamo.list_backends),
            "set_stance": self.set_stance,
            "error_on_graph_break": error_on_graph_break,
            "nested_compile_region": porting.nested_compile_region,
            "dont_skip_tracing": declare.dont_skip_tracing,
            "nonstrict_trace": self._allowing(dynamo.nonstrict_trace),
            "patch_dynamo_config": functools.partial(porting.around, dynamo.patch_dynamo_config),
            "disable_nested_graph_breaks": functools.partial(porting.around, dynamo.disable_nested_graph_breaks),
            "override_cudagraphs": functools.partial(porting.around, dynamo.override_cudagraphs),
            **{mark.__name__: functools.partial(_mark, mark, getattr(dynamo.decorators, mark.__name__)) for mark in MARKS_OF_SIZES},
        }

    # -- compiling -------------------------------------------------------------------------------------------------------
    def compile(
        self, model: Any = None, *, fullgraph: bool = False, dynamic: bool | None = None, backend: Any = None, mode: str | None = None,
        options: dict[str, Any] | None = None, name: str | None = None, disable: bool = False, recompile_limit: int | None = None,
        isolate_recompiles: bool = False, shapes_spec: Any = None, dynamic_shapes: Any = None, breaks: Breaks | None = None, policy: Policy | None = None,
    ) -> Any:  # fmt: skip
        """Replaces ``torch.compile``; also takes ``breaks`` and ``policy``. ``isolate_recompiles`` changes nothing: see `api.compile`."""
        # A filter of guards makes them unsafe, and is not needed.
        own = {k: v for k, v in (options or {}).items() if k not in ("guard_filter_fn", "use_aoti")}
        self.settings.tell()
        for argument, value in {"shapes_spec": shapes_spec, "dynamic_shapes": dynamic_shapes}.items():
            if value is not None:
                self.settings.tell_once(argument, f"torch.compile({argument}=...) has no effect: mark sizes with torch._dynamo.mark_dynamic")
        if recompile_limit is not None:
            own["recompile_limit"] = recompile_limit
        defaults = self.defaults.get("options", {})
        known = own if dynamic is None else {**own, "dynamic": dynamic}
        own = {**defaults, **own, "settings": functools.partial(self.settings.options, defaults, known)}
        given = {"mode": mode, "options": own, "policy": policy, "breaks": breaks, "backend": backend, "name": name}
        how = {**self.defaults, **{key: value for key, value in given.items() if value}}
        if fullgraph:
            how.pop("breaks", None)
        how["backend"] = self.backend(how.get("backend"))
        make = functools.partial(self._compiled, how={"fullgraph": fullgraph, "dynamic": dynamic, "disable": disable or self.settings.disabled, **how})
        return make if model is None else make(model)

    def _compiled(self, model: Any, *, how: dict[str, Any]) -> Any:
        if torch.compiler.is_exporting():
            return model
        # torch.compile may have compiled the function already: start from the original.
        innermost = importlib.import_module("torch._dynamo.eval_frame").innermost_fn
        fn = model._orig_mod if isinstance(model, self.dynamo.OptimizedModule) else innermost(model)
        if isinstance(fn, type) and not how["disable"]:
            # Like torch.compile, compile the calls of the class's instances.
            name = "_call_impl" if issubclass(fn, nn.Module) else "__call__"
            setattr(fn, name, api.compile(inspect.getattr_static(fn, name), **how))
            return fn
        compiled = api.compile(fn, **how)
        if isinstance(compiled, Compiled):
            # PyTorch finds the original by these attributes.
            compiled.__dict__.update(_torchdynamo_orig_callable=fn, _torchdynamo_wrapper_id=id(compiled))
        elif isinstance(compiled, OptimizedModule):
            # The same region; parameters are named as under torch.compile.
            recipe = replace(compiled._fineline_rebuild, modules=TorchOptimizedModule)
            return TorchOptimizedModule(fn, compiled._fineline_region, recipe)
        return compiled

    def _allowing(self, theirs: Callable) -> Callable:
        """Replaces ``allow_in_graph``: a class or a module, which PyTorch accepts and ignores, gets only PyTorch's mark."""
        both = _mark_both(declare.allow_in_graph, theirs)

        def mark(fn: Any) -> Any:
            if isinstance(fn, (list, tuple)):
                for each in fn:
                    mark(each)
                return fn
            functions = isinstance(fn, type) and issubclass(fn, torch.autograd.Function)
            if not isinstance(fn, (type, nn.Module)) or functions:
                return both(fn)
            text = "has no effect on classes and modules: they are traced into. Allow a function, whose tensors are all arguments."
            self.settings.tell_once("allow_in_graph", f"{theirs.__name__} of {fn!r:.80} {text}")
            return theirs(fn)

        return mark

    def backend(self, backend: Any) -> Any:
        """Returns the callable for a name that only PyTorch's registry contains; any other backend as it is. None: the default."""
        if backend is None:
            backend = torch.compiler.get_default_backend()
        if isinstance(backend, str) and backend not in list_backends(()):
            registry = importlib.import_module("torch._dynamo.backends.registry")
            if backend in registry.list_backends(None):
                return registry.lookup_backend(backend)
        return backend

    def optimize(self, backend: Any = "inductor", *, nopython: bool = False, **how: Any) -> Any:
        hooks = {name: how.pop(name, None) for name in ("guard_export_fn", "guard_fail_fn")}
        for unused in ("guard_filter_fn", "package", "rebuild_ctx"):
            how.pop(unused, None)
        if how.pop("error_on_graph_break", None):
            how["breaks"] = "none"
        options = {name: fn for name, fn in hooks.items() if fn is not None}
        return self.compile(None, backend=backend, fullgraph=nopython, options=options, **how)

    def optimize_assert(self, backend: Any = "inductor", *, hooks: Any = None, **how: Any) -> Any:
        for name in ("guard_export_fn", "guard_fail_fn"):
            how.setdefault(name, getattr(hooks, name, None))
        for unused in ("export", "export_constraints"):
            how.pop(unused, None)
        return self.optimize(backend, nopython=True, **how)

    def set_stance(self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None) -> StanceBlock:
        found = self.backend(force_backend) if force_backend is not None else None
        return set_stance(stance, skip_guard_eval_unsafe=skip_guard_eval_unsafe, force_backend=found)

    def export(
        self, f: Callable, *args: Any, tracing_mode: Any = None, dynamic_shapes: Any = None, assume_static_by_default: bool = False,
        pre_dispatch: bool = False, **kwargs: Any,
    ) -> Any:  # fmt: skip
        """Replaces ``torch._dynamo.export``; without arguments for ``f`` it returns a callable. Sizes vary unless other arguments say otherwise."""
        for unused in EXPORT_UNUSED:
            kwargs.pop(unused, None)
        how = {name: kwargs.pop(name) for name in ("aten_graph", "decomposition_table", "constraints") if name in kwargs}
        dynamic = None if assume_static_by_default or dynamic_shapes is not None or tracing_mode is not None else True
        result = importlib.import_module("torch._dynamo.eval_frame").ExportResult

        def inner(*args: Any, **kwargs: Any) -> Any:
            with marked_shapes(dynamic_shapes, args, kwargs):
                return result(*export_call(f, args, kwargs, tracing_mode or "real", dynamic, **how, pre_dispatch=pre_dispatch))

        return inner(*args, **kwargs) if args or kwargs else inner

    def set_logs(self, theirs: Callable, **topics: Any) -> None:
        """Calls ``torch._logging.set_logs``, and sets fineline's logs accordingly."""
        theirs(**topics)
        self.settings.follow_logs()

    # -- errors and counters ---------------------------------------------------------------------------------------------
    def face(self, cls: type, id: str | None) -> type:
        """Returns a subclass of ``cls`` and of the classes that users of PyTorch catch."""
        found = self.faces.get((cls, id))
        if found is None:
            names = BY_ID.get(id or cls.id) or next(BY_CLASS[k] for k in cls.__mro__ if k in BY_CLASS)  # type: ignore[attr-defined]
            exc = importlib.import_module("torch._dynamo.exc")
            bases = [getattr(exc, name) if isinstance(name, str) else name for name in names]
            body = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__, **_FACE, "__reduce__": _as(cls)}
            found = self.faces[cls, id] = type(cls.__name__, (cls, *bases), body)
        return found

    def count(self, event: Event) -> None:
        """Counts an event in ``torch._dynamo.utils.counters``."""
        counters = self.dynamo.utils.counters
        if event.kind == "break":
            counters["graph_break"][event.reason] += 1
        elif event.kind == "graph":
            counters["stats"]["unique_graphs"] += 1
            counters["stats"]["calls_captured"] += event.detail["ops"]
            counters["frames"]["total"] += 1
            counters["frames"]["ok"] += 1
        elif event.kind == "skipped" and event.id in ("FL405", "FL406"):
            counters["frames"]["total"] += 1


INSTALLATION = Installation()


def install(
    *, backend: str | Callable | None = None, mode: str | None = None, options: dict[str, Any] | None = None,
    policy: Policy | None = None, breaks: Breaks | None = None,
) -> None:  # fmt: skip
    """Routes PyTorch's public names to fineline: code, tests and libraries written for ``torch.compile`` run on it unchanged.

    The arguments are defaults for callables compiled through these names. A second call while installed only replaces the
    defaults. Callables that ``torch.compile`` has compiled before keep working as before. See `uninstall`.
    """
    given = {"backend": backend, "mode": mode, "options": options, "policy": policy, "breaks": breaks}
    INSTALLATION.install({key: value for key, value in given.items() if value is not None})


def uninstall() -> None:
    """Restores the objects that `install` replaced. Callables compiled meanwhile keep working. Does nothing if not installed."""
    INSTALLATION.uninstall()


# -- replacements ----------------------------------------------------------------------------------------------------------
def _nothing() -> None:
    """Does nothing. `install` compiles it to check its defaults."""


def asked_by_torch(name: Any) -> bool:
    """Returns whether a call from the module of this name is PyTorch's own use of its compiler."""
    return isinstance(name, str) and (name == "torch" or name.startswith("torch.")) and name not in HANDING_ON


def _both(theirs: Callable, ours: Callable) -> Callable:
    def both() -> None:
        theirs()
        ours()

    return both


def _forget() -> None:
    for region in api.regions():
        region.forget()


def _mark(ours: Callable, theirs: Any, t: Any, *args: Any, **kwargs: Any) -> Any:
    """Marks a tensor's size for fineline and for PyTorch. Drops arguments that fineline lacks: they only affect speed."""
    if isinstance(t, torch.Tensor):
        taken = inspect.signature(ours).parameters
        ours(t, *args[:1], **{name: v for name, v in kwargs.items() if name in taken})
    # torch.export reads PyTorch's own marks.
    return theirs(t, *args, **kwargs)


def _mark_both(ours: Callable, theirs: Callable) -> Callable:
    """Marks a function for fineline and for PyTorch: a library that marks it at import may outlast the installation."""

    def mark(fn: Any) -> Any:
        marked = ours(fn)
        if isinstance(fn, types.FunctionType):
            # PyTorch's function rejects some functions.
            with contextlib.suppress(Exception):
                theirs(fn)
        return marked

    return mark


def _disable(theirs: Callable, fn: Any = None, recursive: bool = True, *, reason: str | None = None, wrapping: bool = True) -> Any:
    place = caller()
    if fn is None:
        return _Disabling(theirs, recursive, reason, place)
    if isinstance(fn, (*MARKED_THEMSELVES, Compiled)) or not callable(fn):
        return declare.disable(fn, recursive, reason=reason)
    # PyTorch's wrapper is also its mark; fineline marks the wrapper. Thus it means the same after `uninstall`.
    wrapper = theirs(fn, recursive, reason=reason, wrapping=wrapping)
    plain = wrapper._torchdynamo_orig_callable
    rule = Rule("disable" if recursive else "disable_frame", of_object(plain), reason or "", place, plain, MARK)
    MARKS.set(wrapper, rule, new=True)
    return wrapper


class _Disabling(declare.Disabled):
    """The result of PyTorch's ``disable()`` without a function. As a decorator it does the same as `_disable`."""

    def __init__(self, theirs: Callable, recursive: bool, reason: str | None, place: str) -> None:
        super().__init__(recursive, reason, place)
        self._door = functools.partial(_disable, theirs, recursive=recursive, reason=reason)

    def __call__(self, fn: Any) -> Any:
        return self._door(fn)


def _explain(f: Callable, *args: Any, **kwargs: Any) -> Any:
    explained = api.explain(f)
    return explained(*args, **kwargs) if args or kwargs else explained


def _list_backends(theirs: Callable, exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    return sorted({*theirs(exclude_tags), *list_backends(exclude_tags)})


# -- errors ----------------------------------------------------------------------------------------------------------------
def _as(cls: type) -> Callable:
    """Returns a ``__reduce__`` that pickles an error as one of fineline's class ``cls``."""
    return lambda self: (cls, self.args, self.__dict__)


# Attributes that the constructors of PyTorch's classes set. These constructors do not run.
_FACE: types.MappingProxyType[str, Any] = types.MappingProxyType(
    {
        "msg": property(lambda self: self.reason),
        "inner_exception": property(lambda self: self.__cause__),
        "backend_name": property(lambda self: self.reason.split("'")[1] if "'" in self.reason else "?"),
        **dict.fromkeys(
            ("real_stack", "first_useful_frame", "frame_exec_strategy", "_torch_dynamo_tracer_output", "gb_type", "category")
        ),
        "skip_frame": False,
        "logged": True,
    }
)
