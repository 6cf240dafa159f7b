"""Guard mutations of tensors of wrapper subclasses."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._pytree import tree_map_only

from tests.soundness.mutations.cases import Cases, X, attr, doing, made

CASES = Cases()
case = CASES.add
Y = X * 2


class Wrapped(Tensor):
    """Has up to two inner tensors, whose layout the outer one does not show, and a context."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: Tensor, scale: Tensor | None = None, context: Any = 1) -> Any:
        return Tensor._make_wrapper_subclass(cls, (2, 3), dtype=torch.float32)

    def __init__(self, inner: Tensor, scale: Tensor | None = None, context: Any = 1) -> None:
        self.inner, self.scale, self.context = inner, scale, context

    def __repr__(self) -> str:  # type: ignore[override]
        return "Wrapped"

    def __tensor_flatten__(self) -> Any:
        return ["inner"] if self.scale is None else ["inner", "scale"], self.context

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return cls(inner["inner"], inner.get("scale"), context)

    def plain(self) -> Tensor:
        factor = {int: lambda n: n, float: lambda n: -n, list: len}[type(self.context)](self.context)
        value = self.inner.sum() if self.inner.shape != (2, 3) else self.inner * self.inner.stride(0) / 3
        return value.float() * factor * (1 if self.scale is None else self.scale + self.scale.ndim) + self.inner.element_size() + type(self).extra()

    @classmethod
    def extra(cls) -> int:
        return 0

    @classmethod
    def __torch_dispatch__(cls, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return fn(*tree_map_only(Wrapped, lambda w: w.plain(), args), **(kwargs or {}))


class Other(Wrapped):
    @classmethod
    def extra(cls) -> int:
        return 100


for _name, _before, _after in [
    ("wrapper_class", lambda: TwoTensor(X, Y), lambda: X),
    ("wrapper_subclass", lambda: Wrapped(X), lambda: Other(X)),
    ("wrapper_context", lambda: Wrapped(X, context=1), lambda: Wrapped(X, context=2)),
    ("wrapper_type_of_the_context", lambda: Wrapped(X, context=1), lambda: Wrapped(X, context=1.0)),
    ("wrapper_container_as_context", lambda: Wrapped(X, context=[1]), lambda: Wrapped(X, context=[1, 2])),
    ("wrapper_inner_dtype", lambda: Wrapped(X), lambda: Wrapped(X.double())),
    ("wrapper_inner_shape", lambda: Wrapped(X), lambda: Wrapped(X[:1])),
    ("wrapper_inner_stride", lambda: Wrapped(X), lambda: Wrapped(X.t().contiguous().t())),
    ("wrapper_inner_class", lambda: Wrapped(X), lambda: Wrapped(Wrapped(X))),
    ("wrapper_inner_tensors", lambda: Wrapped(X), lambda: Wrapped(X, torch.tensor(3.0))),
    ("wrapper_second_inner_tensor", lambda: Wrapped(X, torch.tensor(3.0)), lambda: Wrapped(X, torch.ones(3))),
    ("wrapper_requires_grad", lambda: TwoTensor(X, Y), lambda: TwoTensor(X, Y).requires_grad_()),
    ("wrapper_shape", lambda: TwoTensor(X, Y), lambda: TwoTensor(X[:1], Y[:1])),
    ("wrapper_stride", lambda: TwoTensor(X, Y), lambda: TwoTensor(X.t().contiguous().t(), Y.t().contiguous().t())),
    ("wrapper_or_parameter", lambda: TwoTensor(X, Y), lambda: torch.nn.Parameter(TwoTensor(X, Y))),
]:
    CASES[_name] = lambda before=_before, after=_after: made(lambda x: x * 2, lambda: (before(),), lambda: (after(),))

CASES["wrapper_with_one_tensor_twice"] = lambda: made(
    lambda x: (x.add_(1), x * 2)[1], lambda: (TwoTensor(X.clone(), Y.clone()),), lambda: (TwoTensor(z := X.clone(), z),)
)
CASES["wrapper_and_its_inner_tensor"] = lambda: made(
    lambda x, y: (x.add_(1), y * 2)[1], lambda: (TwoTensor(X.clone(), Y.clone()), X), lambda: (x := TwoTensor(X.clone(), Y.clone()), x.a)
)
CASES["wrapper_and_a_view_of_its_inner_tensor"] = lambda: made(
    lambda x, y: (y.add_(1), x * 2)[1], lambda: (TwoTensor(X.clone(), Y.clone()), X.clone()), lambda: (x := TwoTensor(X.clone(), Y.clone()), x.a[:])
)


def ragged(*lengths: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> Any:
    return torch.nested.nested_tensor([torch.ones(n, 2, dtype=dtype) for n in lengths], layout=torch.jagged, requires_grad=grad)


for _name, _step, _before, _after in [
    ("ragged_lengths", lambda x: x.sum(1), lambda: ragged(1, 3, 2), lambda: ragged(2, 2, 2)),
    ("ragged_sum_of_lengths", lambda x: x.values() + 1, lambda: ragged(1, 3), lambda: ragged(1, 4)),
    ("ragged_number_of_rows", lambda x: x.offsets() * x.size(0), lambda: ragged(1, 3), lambda: ragged(1, 1, 2)),
    ("ragged_longest_row", lambda x: torch.nested.to_padded_tensor(x, 0.5), lambda: ragged(1, 3), lambda: ragged(2, 2)),
    ("ragged_dtype", lambda x: x.values() * 2, lambda: ragged(1, 3), lambda: ragged(1, 3, dtype=torch.float64)),
    ("ragged_requires_grad", lambda x: (x.values() * 2).requires_grad, lambda: ragged(1, 3), lambda: ragged(1, 3, grad=True)),
    ("ragged_dimension", lambda x: x.values() * x.dim(), lambda: ragged(1, 3), lambda: ragged(1, 3).unsqueeze(-1)),
    ("ragged_or_dense", lambda x: x.sum(-1) * x.is_nested, lambda: ragged(2, 2), lambda: torch.ones(2, 2, 2)),
    ("ragged_transposed", lambda x: x.size(-1) * 2.0 if x._ragged_idx == 1 else 1.0, lambda: ragged(1, 3), lambda: ragged(1, 3).transpose(1, 2)),
]:
    CASES[_name] = lambda step=_step, before=_before, after=_after: made(step, lambda: (before(),), lambda: (after(),))

CASES["ragged_lengths_of_another"] = lambda: made(
    lambda x, y: y.offsets() is x.offsets(), lambda: (x := ragged(1, 3), x * 2), lambda: (ragged(1, 3), ragged(1, 3))
)
CASES["ragged_lengths_of_one"] = lambda: made(
    lambda x, y: y.offsets() is x.offsets(), lambda: (ragged(1, 3), ragged(1, 3)), lambda: (x := ragged(1, 3), x * 2)
)


@case
def wrapper_inner_tensor_assigned():
    w = Wrapped(X)
    return lambda x: x + w, (X,), attr(w, "inner", X.double())


@case
def wrapper_context_changed_in_place():
    w = Wrapped(X, context=[1])
    return lambda x: x + w, (X,), doing(lambda: w.context.append(1), w.context.pop)


@case
def wrapper_dispatch_patched():
    class Patched(Wrapped):
        pass

    w = Patched(X)
    return lambda x: x + w, (X,), attr(Patched, "__torch_dispatch__", classmethod(lambda cls, fn, types, args=(), kwargs=None: X * 7))


@case
def wrapper_flatten_patched():
    class Flat(Wrapped):
        pass

    w = Flat(X)
    return lambda x: (x + w, w.__tensor_flatten__()[1]), (X,), attr(Flat, "__tensor_flatten__", lambda self: (["inner"], 5))


@case
def wrapper_function_hook_added():
    class Hooked(Wrapped):
        pass

    w = Hooked(X)
    return lambda x: x + w, (X,), attr(Hooked, "__torch_function__", classmethod(lambda cls, fn, types, args=(), kwargs=None: X * 9))


class Listed(Wrapped):
    """Takes itself apart by lists of names, like the classes of torchao."""

    inner_names, other_names = ["inner"], ["scale", "context"]

    def __tensor_flatten__(self) -> Any:
        names = self.inner_names.copy()
        others = {}
        for name in self.other_names:
            if isinstance_of_tensor(getattr(self, name)):
                names.append(name)
            else:
                others[name] = getattr(self, name)
        if hasattr(self, "more"):
            others["more"] = self.more
        return names, others

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return cls(inner["inner"], inner.get("scale"), context.get("context"))

    def plain(self) -> Tensor:
        return super().plain() + len(str(self.__tensor_flatten__()[1]))


def isinstance_of_tensor(x: object) -> bool:
    return isinstance(x, Tensor)


class Read(Listed):
    """The same, whose code shows that it reads nothing but attributes."""

    def __tensor_flatten__(self) -> Any:
        names, others = list(self.inner_names), self.rest()
        if self.scale is not None:
            names.append("scale")
        return names, others

    def rest(self) -> Any:
        others = {name: getattr(self, name) for name in self.other_names if name != "scale"}
        return {**others, "more": self.more} if hasattr(self, "more") else others


def _of_class(cls: type[Wrapped], name: str, value: Any) -> Any:
    """A case whose change sets an attribute of a new class."""

    def of_class() -> Any:
        class New(cls):  # type: ignore[valid-type, misc]
            inner_names, other_names = ["inner"], ["scale", "context"]

        w = New(X)
        return lambda x: x + w, (X,), attr(New, name, value)

    return of_class


def _of_tensor(cls: type[Wrapped], name: str, value: Any) -> Any:
    """A case whose change sets an attribute of a tensor."""

    def of_tensor() -> Any:
        w = cls(X)
        return lambda x: x + w, (X,), attr(w, name, value)

    return of_tensor


for _cls in (Listed, Read):
    for _name, _make in {
        "names": _of_class(_cls, "other_names", []),
        "attribute_of_class": _of_class(_cls, "more", 12345),
        "descriptor": _of_class(_cls, "context", property(lambda self: 12345)),
        "getattr": _of_class(_cls, "__getattr__", lambda self, name: 12345),
        "getattribute": _of_class(_cls, "__getattribute__", lambda self, name: 7 if name == "context" else object.__getattribute__(self, name)),
        "attribute": _of_tensor(_cls, "more", 12345),
        "context": _of_tensor(_cls, "context", [1, 2]),
        "scale": _of_tensor(_cls, "scale", torch.tensor(3.0)),
    }.items():
        CASES[f"wrapper_{_cls.__name__.lower()}_{_name}"] = _make


def _names_in_place(cls: type[Wrapped]) -> Any:
    class New(cls):  # type: ignore[valid-type, misc]
        inner_names, other_names = ["inner"], ["scale"]

    w = New(X)
    return lambda x: x + w, (X,), doing(lambda: New.other_names.append("context"), New.other_names.pop)


CASES["wrapper_listed_names_in_place"] = lambda: _names_in_place(Listed)
CASES["wrapper_read_names_in_place"] = lambda: _names_in_place(Read)


@case
def wrapper_code_of_flatten():
    class New(Read):
        def __tensor_flatten__(self) -> Any:
            return ["inner"], self.context

    def other(self: Any) -> Any:
        return ["inner"], 12345

    w, own = New(X), New.__tensor_flatten__.__code__

    def give(code: Any) -> None:
        New.__tensor_flatten__.__code__ = code

    return lambda x: x + w, (X,), doing(lambda: give(other.__code__), lambda: give(own))


class Option:
    def __init__(self) -> None:
        self.n = 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Option) and self.n == other.n

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Option({self.n})"


@case
def wrapper_attribute_of_an_object_in_the_context():
    class New(Read):
        def plain(self) -> Tensor:
            return self.inner * self.context.n

    w = New(X, context=Option())
    return lambda x: x + w, (X,), attr(w.context, "n", 5)
