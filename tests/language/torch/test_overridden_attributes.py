"""Attributes of tensors that captured code sets where a mode or a class sees it: its method is run through, as PyTorch would call it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._internal.two_tensor import TwoTensor

from tests.language.torch.test_modes import Watching
from tests.language.torch.test_modes_around_calls import hidden
from tests.language.torch.test_torch_functions import Kept, Seeing
from tests.oracle import Table, check, t


def _requires_grad(x: Any) -> Any:
    y = x.detach() * 1
    y.requires_grad = True
    return (y * 2).requires_grad


def _data(x: Any) -> Any:
    y = x.detach().clone()
    y.data = x.detach() * 2
    return y + 1


def _data_of_the_argument(x: Any) -> Any:
    x.data = x.detach() * 2
    return x + 1


def _grad(x: Any) -> Any:
    x.grad = torch.ones(3, 4)
    return x + 1


def _grad_twice(x: Any) -> Any:
    x.grad = torch.ones(3, 4)
    before = x.grad
    x.grad = None
    return x + before, x.grad


def _own(x: Any) -> Any:
    x.tag = [3]
    y = x + 1
    y.tag = x.tag
    return y * 2, x.tag, y.tag


def _own_deleted(x: Any) -> Any:
    x.tag = 3
    del x.tag
    return x + 1, hasattr(x, "tag")


def _refused(x: Any) -> Any:
    try:
        x.shape = 3
    except AttributeError as e:
        return x + 1, str(e)


def _of_another_type(x: Any) -> Any:
    try:
        x.grad = 3
    except TypeError as e:
        return x + 1, str(e)


def _by_its_setter(x: Any) -> Any:
    Tensor.grad.__set__(x, torch.ones(3, 4))  # type: ignore[attr-defined]
    return x + 1


def _in_its_dict(x: Any) -> Any:
    x.__dict__["tag"] = 3
    y = x + 1
    y.__dict__.update(x.__dict__, other=[4])
    return y, y.tag + x.tag, dict(vars(y)), "other" in x.__dict__, y.__dict__ is y.__dict__


SET = (_in_its_dict, _requires_grad, _data, _data_of_the_argument, _grad, _grad_twice, _own, _own_deleted, _refused, _of_another_type, _by_its_setter)


class Stubborn(Watching):
    """Lets nobody set a gradient."""

    def __torch_function__(self, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(fn, "__name__", "") == "__set__":
            self.seen.append(f"{fn.__self__.__name__} of {len(args)}")
            return "nothing"
        return super().__torch_function__(fn, types, args, kwargs)


@pytest.mark.parametrize("body", SET, ids=lambda body: body.__name__.strip("_"))
@pytest.mark.parametrize("kind", [Watching, Stubborn, Kept, Seeing], ids=lambda kind: kind.__name__)
def test_set(kind: Any, body: Any, twin: str) -> None:
    own = Table()
    of_class = issubclass(kind, Tensor)

    def fn(x: Any) -> Any:
        Seeing.seen.clear()
        if of_class:
            return body(x), list(Seeing.seen)
        with kind() as mode:
            y = body(x)
        return y, mode.seen

    own.program(args=lambda place: (t(place).as_subclass(kind) if of_class else t(place),), breaks=True, min_graphs=0, recompiles=(1,))(
        lambda: (fn, Seeing.seen)
    )
    check(own.programs[0], twin)


# -- attributes that a class has in place of those of C ------------------------------------------------------------------------------
FACTS = {"factor": 0}


class Answering(Tensor):
    """Has properties by the names of tensors' attributes."""

    @property
    def shape(self) -> Any:
        return (*super().shape, FACTS["factor"])

    @property
    def is_mkldnn(self) -> Any:
        return Tensor.is_mkldnn.__get__(self), FACTS["factor"]  # type: ignore[attr-defined]

    @property
    def is_sparse(self) -> Any:
        return self.layout is torch.strided and FACTS["factor"] > 1

    ndim = property(lambda self: FACTS["factor"] + 10)  # type: ignore[assignment]


class AnsweringSilently(Answering):
    __torch_function__ = torch._C._disabled_torch_function_impl


class AnsweringAsSeen(Answering):
    @classmethod
    def __torch_function__(cls, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_function__(fn, types, args, kwargs or {})


class AnsweringInParts(TwoTensor):
    is_sparse, ndim = Answering.is_sparse, Answering.ndim


def _answers(x: Any) -> Any:
    return x.shape, x.is_mkldnn, x.is_sparse, x.ndim


def _answers_of_parts(x: Any) -> Any:
    return x.is_sparse, x.ndim, x.a + 1


@pytest.mark.parametrize("kind", [Answering, AnsweringSilently, AnsweringAsSeen, AnsweringInParts], ids=lambda kind: kind.__name__)
def test_answered_by_the_class(kind: Any, twin: str) -> None:
    own = Table()

    def fn(x: Any) -> Any:
        y = kind(x, x) if kind is AnsweringInParts else x.as_subclass(kind)
        return _answers_of_parts(y) if kind is AnsweringInParts else (_answers(y), x + 1)

    def make() -> Any:
        FACTS["factor"] = 0
        return fn, FACTS

    change = {place: lambda state, n=place: state.update(factor=n) for place in (1, 2, 3)}
    own.program(args=lambda place: (t(place),), change=change, calls=4, recompiles=(1, 2, 3), breaks=True)(make)
    check(own.programs[0], twin)


@pytest.mark.parametrize("kind", [Answering, AnsweringSilently, AnsweringAsSeen], ids=lambda kind: kind.__name__)
def test_answered_by_the_class_of_an_argument(kind: Any, twin: str) -> None:
    if twin.startswith(("aot", "background")) and kind is AnsweringSilently:
        pytest.skip("AOTAutograd, and fakes for a backend in the background, fail where a class says of its tensors what is not so")
    own = Table()

    def make(compile: Any) -> Any:
        compiled = hidden(compile(lambda x: (x.is_sparse, x.ndim, torch.sin(x).as_subclass(Tensor))))

        def fn(place: int, x: Any) -> Any:
            FACTS["factor"] = place // 2
            return compiled(x.as_subclass(kind))

        return fn

    own.program(raw=True, args=lambda place: (place, t(place)), calls=6, recompiles=(2, 4), breaks=True, backward=False, min_graphs=0)(make)
    check(own.programs[0], twin)
