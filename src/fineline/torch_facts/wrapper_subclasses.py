"""Wrapper subclasses: tensors that consist of other tensors and a context, and whose class computes their operators in ``__torch_dispatch__``.

The class takes a tensor apart with ``__tensor_flatten__`` and puts one together with ``__tensor_unflatten__``. fineline relies on what PyTorch's
compilers rely on: apart from its arguments, ``__torch_dispatch__`` reads nothing but the parts and the context.
"""

from __future__ import annotations

import copy
import enum
import functools
import weakref
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.nested._internal.nested_tensor import NestedTensor, get_tensor_symint

from fineline.bytecode.asynchronous import let_pass
from fineline.identity import AddressMap
from fineline.kinds import is_a, is_wrapper_class
from fineline.torch_facts.distributed_tensors import is_mesh, without_sizes

# Read a class, whatever its metaclass defines.
_TYPE_DICT, _TYPE_MRO = [type.__dict__[name] for name in ("__dict__", "__mro__")]
_IMMUTABLE = frozenset(
    {type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.layout, torch.memory_format, type(...)}
)
# The usual types of operands, which save the question.
_NO_WRAPPERS = frozenset({Tensor, torch.nn.Parameter, FakeTensor, int, float, bool, str, type(None), tuple, list, torch.dtype})
# Stands for an attribute that is not there.
ABSENT: Any = object()
# Adapts PyTorch's own operators to tensors with a ragged dimension, and computes from its arguments alone.
_OF_JAGGED = NestedTensor.__dict__["__torch_function__"]
_METHODS = ("__torch_function__", "__torch_dispatch__", "__tensor_flatten__", "__tensor_unflatten__", "__metadata_guard__")


class NotTakenApart(Exception):
    """Raised for a tensor whose class does not take it apart as the protocol says."""


class Parts(NamedTuple):
    """A tensor, taken apart: the attributes that hold its inner tensors, these tensors, and the context.

    ``objects``: other attributes that the class names, with objects that compilers pass on as they are, such as the mesh of a `DTensor`.
    """

    names: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    context: Any
    objects: tuple[tuple[str, Any], ...] = ()


def methods_of(cls: type) -> list[tuple[str, Any]]:
    """Returns the attributes of a class that decide what becomes of its tensors, by their names; None for one that it lacks."""
    found = [(name, on_class(cls, name)) for name in _METHODS]
    return [(name, None if method is ABSENT else method) for name, method in found]


def on_class(cls: type, name: str) -> Any:
    """Returns the attribute of a class as the class holds it; `ABSENT` if it has none."""
    spaces = [_TYPE_DICT.__get__(base) for base in _TYPE_MRO.__get__(cls)]
    return next((space[name] for space in spaces if name in space), ABSENT)


def is_wrapper(t: object) -> bool:
    """Returns whether ``t`` is a tensor of a wrapper subclass."""
    return type(t) not in _NO_WRAPPERS and is_a(t, Tensor) and is_wrapper_class(type(t))


def parts_of(t: Any) -> Parts:
    """Takes a tensor apart; raises `NotTakenApart` if its class does not follow the protocol."""
    name = type(t).__name__
    # The methods are those of the class: an attribute of the tensor would hide them from PyTorch too, but not always.
    try:
        names, context = t.__tensor_flatten__()
        given = [(n, getattr(t, n)) for n in names]
    except Exception as e:
        let_pass(e)
        raise NotTakenApart(f"a tensor of class {name}, whose __tensor_flatten__ raises {type(e).__name__}") from None
    objects = tuple([(n, x) for n, x in given if not is_a(x, Tensor)])
    if not all([type(n) is str for n in names]) or not all([is_mesh(x) for _, x in objects]):
        raise NotTakenApart(f"a tensor of class {name}, whose __tensor_flatten__ names something that is not a tensor")
    inner = [(n, x) for n, x in given if is_a(x, Tensor)]
    if not inner:
        raise NotTakenApart(f"a tensor of class {name}, which has no inner tensors")
    return Parts(tuple([n for n, _ in inner]), tuple([x for _, x in inner]), context, objects)


def put_together(cls: Any, parts: Parts, sizes: Any, strides: Any) -> Tensor:
    """Returns a tensor of ``cls`` with these parts."""
    inner = {**dict(zip(parts.names, parts.tensors, strict=True)), **dict(parts.objects)}
    made = cls.__tensor_unflatten__(inner, parts.context, sizes, strides)
    if type(made) is not cls:
        raise NotTakenApart(f"a tensor of class {cls.__name__}, whose __tensor_unflatten__ returns a {type(made).__name__}")
    found: Tensor = made
    return found


def memory_of(t: Tensor) -> list[Tensor]:
    """Returns the tensors in whose memory an operator writes that writes into ``t``: also ``t`` itself, whose views may share its own, which is empty."""
    return [t, *leaves_of(t)] if is_wrapper(t) else [t]


def leaves_of(t: Tensor) -> Iterator[Tensor]:
    """Yields the tensors in whose memory ``t`` lies: ``t`` itself, or its inner tensors at any depth."""
    if not is_wrapper(t):
        yield t
        return
    for inner in parts_of(t).tensors:
        yield from leaves_of(inner)


def on_fakes(t: Tensor) -> bool:
    """Returns whether a tensor of a wrapper subclass consists of fakes."""
    try:
        return all([type(x) is FakeTensor for x in leaves_of(t)])
    except NotTakenApart:
        return False


class InnerTensor:
    """Reads an inner tensor as a member, as PyTorch does: by the attribute's name."""

    MEMBER_TEXTS = MappingProxyType({"": "{of}.{at}"})

    def __init__(self, name: str) -> None:
        self.at = self.__name__ = name

    def __get__(self, t: Any, cls: type) -> Any:
        return getattr(t, self.at)


@functools.cache
def inner_tensor(name: str) -> InnerTensor:
    """Returns the one descriptor for attributes of this name."""
    return InnerTensor(name)


class PutTogether:
    """A target in a graph that puts a tensor together from its inner tensors, as compilers do."""

    def __init__(self, cls: Any, parts: Parts) -> None:
        # A tensor with other objects than tensors among its parts is made in C, not by captured code.
        assert not parts.objects
        self._cls, self._names, self._context = cls, parts.names, parts.context
        self.__name__ = cls.__name__

    def __call__(self, sizes: Any, strides: Any, *tensors: Tensor) -> Tensor:
        return put_together(self._cls, Parts(self._names, tensors, copy.deepcopy(self._context)), sizes, strides)

    def __eq__(self, other: object) -> bool:
        return is_a(other, PutTogether) and self._cls is other._cls and self._names == other._names and same_context(self._context, other._context)

    def __hash__(self) -> int:
        return hash((self._cls, self._names))


def constants_of(t: Any, parts: Parts) -> list | None:
    """Returns the values in the context of ``t``; None if code may change them, or if they are symbols.

    Containers that ``__tensor_flatten__`` makes at each call cannot be reached by the code.
    """
    found: list = []
    return found if _collect(parts.context, t.__tensor_flatten__()[1], found) else None


def _collect(a: Any, again: Any, found: list) -> bool:
    if type(a) in (list, dict) and (a is again or type(a) is not type(again) or len(a) != len(again)):
        return False
    if type(a) is dict:
        return all([_collect(k, j, found) and _collect(a[k], again[j], found) for k, j in zip(a, again, strict=True)])
    if type(a) in (list, tuple, torch.Size):
        return len(a) == len(again) and all([_collect(x, y, found) for x, y in zip(a, again, strict=True)])
    found.append(a)
    return type(a) in _IMMUTABLE or is_a(a, enum.Enum)


def is_constant(a: Any) -> bool:
    """Returns whether ``a`` never changes, or is a list or a dict of such values."""
    if type(a) in (list, tuple, torch.Size):
        return all(map(is_constant, a))
    if type(a) is dict:
        return all([is_constant(k) and is_constant(v) for k, v in a.items()])
    return type(a) in _IMMUTABLE or is_a(a, enum.Enum)


def copy_of_constant(a: Any) -> Any:
    """Returns a constant, with lists and dicts that are new."""
    if type(a) in (list, tuple):
        return type(a)(map(copy_of_constant, a))
    return {k: copy_of_constant(v) for k, v in a.items()} if type(a) is dict else a


class SameParts:
    """Checks that a tensor is taken apart as an earlier one was: into attributes of the same names, with an equal context.

    The context is copied, because code may change it in place. Raises `NotTakenApart` for one that does not equal its copy.
    """

    def __init__(self, t: Any, parts: Parts) -> None:
        cls: Any = type(t)
        self._names = frozenset([*parts.names, *[name for name, _ in parts.objects]])
        self._objects = parts.objects
        self._own: Callable[[Any, Any], Any] | None = getattr(cls, "__metadata_guard__", None)
        try:
            # The context of a DTensor consists of tuples of constants, and of its sizes, which may be symbols.
            self._context = without_sizes(t, parts.context) if parts.objects else copy.deepcopy(parts.context)
            equal = self._holds(t, parts.context)
        except Exception as e:
            let_pass(e)
            equal = False
        if not equal:
            raise NotTakenApart(f"a tensor of class {cls.__name__}, whose context varies, or is not equal to a copy of it")

    def __call__(self, t: Any) -> bool:
        names, context = t.__tensor_flatten__()
        same = self._names.issuperset(names) and len(names) == len(self._names) and self._holds(t, context)
        return same and all([getattr(t, n) is x for n, x in self._objects])

    def _holds(self, t: Any, context: Any) -> bool:
        if self._objects:
            return same_context(self._context, without_sizes(t, context))
        return bool(self._own(self._context, context)) if self._own is not None else same_context(self._context, context)


def same_context(a: Any, b: Any) -> bool:
    """Returns whether two contexts are equal, types included: 1, 1.0 and True are equal for Python, and so are both zeros."""
    if type(a) is not type(b):
        return False
    if is_a(a, (tuple, list)):
        return len(a) == len(b) and all(map(same_context, a, b))
    if is_a(a, dict):
        return list(map(type, a)) == list(map(type, b)) and list(a) == list(b) and all(map(same_context, a.values(), b.values()))
    if type(a) in (torch.SymInt, torch.SymFloat, torch.SymBool):
        return bool(a.node.expr == b.node.expr)
    if type(a) in (float, complex):
        return repr(a) == repr(b)
    return a is b or bool(a == b)


def text_of(parts: Parts) -> str:
    """Returns what a guard says of a tensor's parts."""
    names = ", ".join(parts.names)
    return f"consists of {names}" if parts.context is None else f"consists of {names} and {_short(parts.context)}"


def _short(context: Any) -> str:
    text = repr(context) if type(context) in (tuple, list, dict, str, int, float, bool) else type(context).__name__
    return text if len(text) <= 80 else text[:77] + "..."


class _Known(NamedTuple):
    """What a tensor consisted of when a segment first met it. The weak reference tells it from a later tensor at its address."""

    tensor: weakref.ref
    inner: list[weakref.ref]
    same: SameParts
    # The attributes that the tensor had, with their values; for a tensor, its weak reference.
    attributes: dict[str, Any]


class _Held(NamedTuple):
    """A tensor in an attribute, which is not kept alive. An attribute may contain a weak reference of the class's own."""

    tensor: weakref.ref


class KnownParts:
    """What the tensors of wrapper subclasses consisted of when one segment first met them. It keeps no tensor alive."""

    __slots__ = ("_known", "_making", "_owners", "lengths", "met")

    def __init__(self) -> None:
        # Whether the segment has met such a tensor: graphs get no other.
        self.met = False
        # The tensors that hold the lengths of ragged dimensions of inputs, which their sources keep alive.
        self.lengths: list[Tensor] = []
        self._known: AddressMap[_Known] = AddressMap()
        # Inner tensors of inputs, which their sources keep alive: the tensor that consists of each, and the attribute.
        self._owners: AddressMap[tuple[Tensor, str]] = AddressMap()
        # Tensors that the captured code has made: a weak reference, the arguments of `_make_wrapper_subclass`, and the version.
        self._making: AddressMap[tuple[weakref.ref, list, dict[str, Any], int]] = AddressMap()

    def note_making(self, t: Tensor, args: list, kwargs: dict[str, Any]) -> None:
        """Notes that the captured code has made ``t`` with these arguments of `_make_wrapper_subclass`."""
        self.met = True
        # A tensor of an inference mode has no version.
        self._making[t] = weakref.ref(t), args, kwargs, -1 if t.is_inference() else t._version

    def making(self, t: Tensor) -> tuple[list, dict[str, Any]] | None:
        """Returns the arguments with which the captured code has made ``t``; None if it has not."""
        found = self._making.get(t)
        return None if found is None or found[0]() is not t else found[1:3]

    def version(self, t: Tensor, own: Tensor) -> int | None:
        """Returns the version that writes of operators have given to ``t``, which the code has made; None if its attributes are all that it consists of.

        ``own``: what stands for ``t`` in the capture. Another tensor than ``t`` counts from zero.
        """
        _, _, kwargs, version = self._making[t]
        if t.is_inference():
            return -1
        now: int = own._version if own is t else version + own._version
        return None if now == version and own.requires_grad == bool(kwargs.get("requires_grad")) else now

    def is_leaf(self, t: Tensor) -> bool:
        """Returns whether the code has made ``t`` as a leaf of autograd, which compilers do not give as one."""
        return t.requires_grad and self.making(t) is not None

    def own(self, t: Tensor, parts: Parts) -> None:
        """Notes that ``t`` is an input: a graph that gets it can read its inner tensors from it."""
        for name, inner in zip(parts.names, parts.tensors, strict=True):
            if inner is not t and inner not in self._owners:
                self._owners[inner] = t, name

    def note_lengths(self, t: Any) -> bool:
        """Notes which tensor holds the lengths in ``t``, an input; returns False if another one, of another input, stands for the same lengths."""
        lengths = lengths_of(t)
        if any([lengths is x for x in self.lengths]):
            return True
        number = get_tensor_symint(lengths)
        if any([number == get_tensor_symint(x) for x in self.lengths]):
            return False
        self.lengths.append(lengths)
        return True

    def owner(self, inner: Tensor) -> tuple[Tensor, str] | None:
        """Returns the input whose inner tensor ``inner`` still is, and the attribute.

        Not if ``inner`` requires a gradient: compilers would compute that of the input only.
        """
        found = self._owners.get(inner)
        return None if found is None or inner.requires_grad or self.changed(found[0], parts_of(found[0])) else found

    def note(self, t: Tensor, parts: Parts) -> SameParts:
        """Notes the parts of ``t``; returns the check that it still has them, but for its inner tensors."""
        self.met = True
        same = SameParts(t, parts)
        attributes = {k: _Held(weakref.ref(v)) if is_a(v, Tensor) else v for k, v in t.__dict__.items()}
        self._known[t] = _Known(weakref.ref(t), [weakref.ref(x) for x in parts.tensors], same, attributes)
        return same

    def __contains__(self, t: Tensor) -> bool:
        found = self._known.get(t)
        return found is not None and found.tensor() is t

    def first_leaves(self, t: Tensor) -> Iterator[Tensor]:
        """Yields the tensors in whose memory ``t``, an input, lay when the segment first met it."""
        known = self._known.get(t)
        if known is None or known.tensor() is not t:
            yield from leaves_of(t)
            return
        for ref in known.inner:
            inner = ref()
            if inner is not None:
                yield from self.first_leaves(inner)

    def changed(self, t: Tensor, parts: Parts) -> bool:
        """Returns whether ``t``, which is known, does not consist of the same parts any more, at any depth."""
        known = self._known[t]
        if not known.same(t) or [id(ref()) for ref in known.inner] != [id(x) for x in parts.tensors]:
            return True
        return any([is_wrapper(x) and x in self and self.changed(x, parts_of(x)) for x in parts.tensors])

    def added(self, t: Tensor) -> dict[str, Any]:
        """Returns the attributes of ``t``, which is known, that have been set since."""
        before = self._known[t].attributes
        return {k: v for k, v in t.__dict__.items() if k not in before or (before[k].tensor() if type(before[k]) is _Held else before[k]) is not v}

    def removed(self, t: Tensor) -> bool:
        """Returns whether ``t``, which is known, has lost an attribute."""
        return not self._known[t].attributes.keys() <= t.__dict__.keys()

    def clear(self) -> None:
        self.met = False
        self._known.clear()
        self._making.clear()
        self._owners.clear()
        self.lengths.clear()


def supported(t: Tensor) -> bool:
    """Returns whether guards and symbols can stand for the sizes and strides of a wrapper subclass's tensor: it is dense, or has a ragged dimension."""
    if torch._C._functorch.is_functorch_wrapped_tensor(t):
        return False
    return is_jagged(t) or (t.layout is torch.strided and not t.is_nested and not is_ragged(t.shape))


def is_jagged(t: object) -> bool:
    """Returns whether ``t`` is a tensor with a ragged dimension, whose class is PyTorch's own."""
    return type(t) is NestedTensor


def lies_in_ragged(t: Tensor) -> bool:
    """Returns whether ``t`` is a view with a history, made of the values of a tensor with a ragged dimension, which is a view itself."""
    # The user's modes and classes do not see the reads.
    with torch._C.DisableTorchFunction():
        node = t.grad_fn if t._is_view() else None
    while node is not None and not node.name().startswith("NestedGetValues"):
        node = node.next_functions[0][0] if node.next_functions else None
    return node is not None


def lengths_of(t: Any) -> Tensor:
    """Returns the tensor that stands for the size of the ragged dimension of ``t``."""
    found: Tensor = t._offsets if t._lengths is None else t._lengths
    return found


def ragged_dim(t: Any) -> int:
    """Returns which dimension of ``t`` is the ragged one."""
    found: int = t._ragged_idx
    return found


def ragged_size(t: Any) -> torch.SymInt:
    """Returns the size of the ragged dimension of ``t``: the object that all reads give, without a call of the class."""
    found: torch.SymInt = t._size[ragged_dim(t)]
    return found


def in_graphs(cls: Any) -> bool:
    """Returns whether a graph holds the operators of a class as the code calls them, although its ``__torch_function__`` sees them."""
    return cls is NestedTensor and cls.__dict__["__torch_function__"] is _OF_JAGGED


def is_ragged(value: Any) -> bool:
    """Returns whether a size or stride is the one of a ragged dimension, or a tuple contains one."""
    return any(map(is_ragged, value)) if type(value) in (tuple, torch.Size) else stands_for_lengths(value)


def stands_for_lengths(v: Any) -> bool:
    """Returns whether ``v`` is the size of a ragged dimension: no number, but what stands for the lengths in a tensor."""
    return type(v) is torch.SymInt and v.node.is_nested_int()
