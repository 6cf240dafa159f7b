"""The result of a call, as an exported graph can return it: tensors of the graph, arguments and constants, in the user's structure."""

from __future__ import annotations

import abc
import copy
import dataclasses
import enum
import functools
import types
from collections.abc import Callable
from typing import Any, NamedTuple, Never, final

import torch
from torch import Tensor
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

from fineline.codegen.reconstructor import Reconstructor
from fineline.codegen.value_walk import ValueWalk
from fineline.errors import NotExported
from fineline.fx.recorder import FX_CONSTANTS
from fineline.guards.source import Source, root_of
from fineline.identity import IdentitySet
from fineline.kinds import is_a, is_users_class
from fineline.objects.c_access import is_structseq
from fineline.objects.deferred_texts import known_next_time

KEYS = (str, int, float, bool, type(None))


@final
class Out(NamedTuple):
    """A result of the graph."""

    number: int


@final
class Given(NamedTuple):
    """A value that existed before the call: an argument, a part of an argument, or a tensor of the module."""

    source: Source
    value: object


@final
class Held(NamedTuple):
    """An object that the graph's module stores, under a name that begins with ``name``."""

    value: object
    name: str


# The parts that nodes of the graph make.
Part = Out | Given | Held


class Call(NamedTuple):
    """An object that the graph makes by a call of ``fn``."""

    fn: Callable
    args: tuple
    kwargs: dict[str, object]


class Outcome(ValueWalk[object]):
    """Converts a result to `Out`, `Given`, `Held`, `Call` and constants. Tensors that the graph makes become its outputs."""

    LITERALS = FX_CONSTANTS

    def __init__(self, rebuild: Reconstructor) -> None:
        super().__init__(rebuild.trace)
        self._rebuild = rebuild
        self._seen = IdentitySet()
        self.tensors: list[Tensor] = []

    def existing(self, v: object, src: Source) -> Given:
        if is_a(v, Tensor):
            self.tensors.append(v)
        return Given(src, v)

    def deferred_text(self, v: str) -> Never:
        text = self.trace.deferred.texts[v]
        known_next_time(self.trace.guards.interp, text)
        raise NotExported(f"the result holds {text.described}", id="FL603")

    def literal(self, v: object) -> object:
        return v

    def symbolic_number(self, v: torch.SymInt | torch.SymFloat | torch.SymBool) -> object:
        node = self.trace.symbols.node(v)
        return self._output(node) if is_a(node, Node) else node

    def graph_result(self, v: Tensor) -> Out:
        self.tensors.append(v)
        node = self.trace.recorder.find(v) if self.trace.recorder.known(v) else None
        if node is None:
            raise NotExported("the result holds a tensor that the graph did not make", id="FL603")
        if v.__dict__ and type(v) is Tensor:
            raise NotExported(f"the result is a tensor with attributes of its own: {', '.join(v.__dict__)}", id="FL603")
        return self._output(node)

    def _output(self, node: Node) -> Out:
        self._rebuild.output(node)
        return Out(list(self._rebuild.outputs.names).index(node))

    def other_object(self, v: Any, src: Source | None) -> object:
        t = type(v)
        if src is not None and root_of(src).op == "root":
            return Given(src, v)
        if t in self.trace.classes.made or v in self.trace.classes.made:
            cls = v if is_a(v, type) else t
            raise NotExported(f"the result holds {cls.__qualname__}, a class that the call makes, or an instance of it", id="FL603")
        if v in self._seen and not is_a(v, tuple):
            raise NotExported(f"the result holds one {t.__qualname__} in two places, or in itself", id="FL603")
        self._seen.add(v)
        return self._container(v, t)

    def _container(self, v: Any, t: type) -> object:
        if t is tuple or t is list:
            return t([self.expr(x) for x in v])
        if t is slice:
            return Call(slice, (self.expr(v.start), self.expr(v.stop), self.expr(v.step)), {})
        if t is set:
            return Call(set, ([self.expr(x) for x in v],), {})
        if t is torch.Size or is_structseq(t):
            return Call(t, ([self.expr(x) for x in v],), {})
        if is_a(v, tuple) and hasattr(t, "_fields"):
            return Call(t, tuple([self.expr(x) for x in v]), {})
        if t is dict and all([type(k) in KEYS for k in v]):
            return {k: self.expr(x) for k, x in v.items()}
        if is_a(v, enum.Enum) and type(v.value) in FX_CONSTANTS:
            return Call(t, (v.value,), {})
        if dataclasses.is_dataclass(t):
            return self._dataclass(v, t)
        if t in pytree.SUPPORTED_NODES:
            leaves, spec = pytree.tree_flatten(v)
            return Call(pytree.tree_unflatten, ([self.expr(x) for x in leaves], Held(spec, "_spec")), {})
        if (is_a(v, type) or t is types.FunctionType) and "<locals>" not in v.__qualname__ and v not in self.trace.made:
            return Held(v, f"_{v.__name__}")
        if _is_plain(t):
            new = Held(functools.partial(object.__new__, t), f"_new_{t.__name__}")
            state = {name: self.expr(x) for name, x in vars(v).items()}
            return Call(copy._reconstruct, (None, None, new, (), state), {})  # type: ignore[attr-defined]
        raise NotExported(f"the result holds a {t.__module__}.{t.__qualname__}", id="FL603")

    def _dataclass(self, v: Any, t: Any) -> Call:
        fields = {f.name: getattr(v, f.name) for f in dataclasses.fields(v) if f.init}
        fields = {name: x for name, x in fields.items() if not (x is None and t.__dataclass_fields__[name].default is None)}
        # The class may make another object of the fields than it did for the user.
        again = t(**fields)
        if not _alike(_parts(again), _parts(v)) or (is_a(v, dict) and not _alike(dict(again), dict(v))):
            raise NotExported(f"a {t.__qualname__} made of its fields is not the one that the call gave", id="FL603")
        return Call(t, (), {name: self.expr(x) for name, x in fields.items()})


def _is_plain(t: type) -> bool:
    """Returns whether ``__dict__`` is the whole state of an object of the class."""
    plain = [cls for cls in t.__mro__ if cls is not object]
    return all([type(cls) in (type, abc.ABCMeta) and not cls.__dict__.get("__slots__") and is_users_class(cls) for cls in plain]) and (
        "<locals>" not in t.__qualname__ and not any(["__setstate__" in cls.__dict__ for cls in plain]) and t.__dictoffset__ != 0
    )


def _parts(v: Any) -> dict[str, object]:
    return {**getattr(v, "__dict__", {}), **{f.name: getattr(v, f.name) for f in dataclasses.fields(v)}}


def _alike(a: dict, b: dict) -> bool:
    return list(a) == list(b) and all([x is b[k] or (type(x) in FX_CONSTANTS and type(x) is type(b[k]) and x == b[k]) for k, x in a.items()])


def written(outcome: Any, graph: Graph, find: Callable[[Part], Node]) -> Any:
    """Returns ``outcome`` as an argument of the graph's output; ``find`` returns the node of an `Out`, `Given` or `Held`."""
    t = type(outcome)
    if t is Out or t is Given or t is Held:
        return find(outcome)
    if t is Call:
        args = tuple([written(x, graph, find) for x in outcome.args])
        kwargs = {k: written(x, graph, find) for k, x in outcome.kwargs.items()}
        return graph.call_function(outcome.fn, args, kwargs) if outcome.fn is not slice else slice(*args)
    if t in (tuple, list):
        return t([written(x, graph, find) for x in outcome])
    if t is dict:
        return {k: written(x, graph, find) for k, x in outcome.items()}
    return outcome
