"""Constructors of tensor classes that override functions: their Python code is run through, and the graph makes the tensor."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fineline
from tests.language.torch.test_failing_graphs import WITHOUT_COUNTED
from tests.language.torch.test_modes import Watching
from tests.language.torch.test_torch_functions import Doubling, Named
from tests.oracle import Table, check, t

table = Table()


class Tagged(Tensor):
    @staticmethod
    def __new__(cls: Any, data: Any, tag: Any = "plain") -> Any:
        return torch.Tensor._make_subclass(cls, data)

    def __init__(self, data: Any, tag: Any = "plain") -> None:
        self.tag = tag


class Counted(Tensor):
    def __new__(cls, data: Any, n: int = 1) -> Any:
        made = torch.as_tensor(data).as_subclass(cls)
        made.n = n
        return made


class Inherited(Tensor):
    pass


class Called(Doubling):
    def __new__(cls, data: Any) -> Any:
        return super().__new__(cls, data)


class Viewed(Tensor):
    def __new__(cls, data: Any, size: Any = None) -> Any:
        return Tensor.as_subclass(data, cls)

    def __init__(self, data: Any, size: Any = None) -> None:
        super().__init__()
        self.size_of = data.shape[0] if size is None else size
        if size == 0:
            raise ValueError("no size")


class Titled(Named):
    def __new__(cls, data: Any, title: str) -> Any:
        return torch.Tensor._make_subclass(cls, data)

    def __init__(self, data: Any, title: str) -> None:
        self.title = title


class Elsewhere(Tensor):
    """Its constructor gives a tensor of another class."""

    def __new__(cls, data: Any) -> Any:
        return torch.Tensor._make_subclass(Tagged, data)

    def __init__(self, data: Any) -> None:
        self.never = 1


class Weight(nn.Parameter):
    pass


MADE: dict[str, Any] = {
    "made": lambda x: Tagged(x * 2, tag="a"),
    "made_of_the_argument": lambda x: (Tagged(x) + 1, Tagged(x, 3).tag),
    "counted": lambda x: (lambda a: (a + 1, a.n, a))(Counted(x * 2, 3)),
    "of_a_list": lambda x: Counted([1.0, 2.0, 3.0, 4.0]) + x,
    "inherited": lambda x: (Inherited(x * 2) + 1, Inherited(x)),
    "called": lambda x: (Called(x * 2) + x, type(Called(x)).__name__),
    "viewed": lambda x: (lambda a: (a + 1, a.size_of))(Viewed(x * 2)),
    "titled": lambda x: (lambda a, b: ((a + b).title, a + b))(Titled(x * 2, "a"), Titled(x, "b")),
    "elsewhere": lambda x: (Elsewhere(x), type(Elsewhere(x * 2)).__name__, hasattr(Elsewhere(x), "never")),
    "twice": lambda x: Tagged(Tagged(x, 1), 2).tag,
    "of_another_class": lambda x: (Tagged(Counted(x * 2)), Viewed(Tagged(x))),
    "asked": lambda x: (isinstance(Tagged(x), Tensor), isinstance(Tagged(x), Counted), Tagged(x).shape, Tagged(x).requires_grad, Tagged(x * 2).is_leaf),
    "views": lambda x: (Tagged(x * 2)._is_view(), Inherited(x * 2)._is_view(), Tagged(x * 2).grad_fn),
    "listed": lambda x: torch.stack([Tagged(row, i) for i, row in enumerate(x)]).sum(0),
    "kept": lambda x: (lambda a: (a, a, [a]))(Tagged(x * 2)),
    "of_no_tensor": lambda x: (Inherited(2, 3).shape, x + 1),
    "of_numbers": lambda x: Inherited([1.0, 2.0, 3.0, 4.0]) + x,
    "a_parameter": lambda x: (nn.Parameter(x.detach() * 2, False) + 1, type(Weight(x.detach(), False)).__name__),
    "a_parameter_of_a_class": lambda x: (lambda p: (p, type(p).__name__, isinstance(p, nn.Parameter)))(nn.Parameter(Tagged(x.detach() * 2, "p"))),
}
# Those at which graphs break.
# Those that call PyTorch's own constructor.
INHERITED = {"inherited", "called", "of_no_tensor", "of_numbers", "views"}
BREAKING = {"of_no_tensor", "of_numbers", "a_parameter", "a_parameter_of_a_class", "elsewhere"}


@pytest.mark.parametrize("grad", [False, True], ids=["plain", "grad"])
@pytest.mark.parametrize("body", MADE)
def test_made(body: str, grad: bool, twin: str) -> None:
    if twin == "counted" and body in INHERITED:
        pytest.skip("what counts is a mode that sees what C does, under which PyTorch's own constructor refuses these classes")
    own = Table()
    own.snippet(grad=grad, breaks=body in BREAKING, min_graphs=0)(MADE[body])
    check(own.programs[0], twin)


@table.snippet()
def written_through_it(x):
    a = Tagged(x)
    a.add_(1)
    a[0] = 2
    return x * 2, a, a.tag


@table.snippet(twins=WITHOUT_COUNTED)
def written_below_it(x):
    y = x * 2
    a, b = Tagged(y), Inherited(y)
    y.mul_(3)
    return a, b, y


@table.snippet(breaks=True)
def alive_at_a_graph_break(x):
    a, b = Tagged(x * 2, [1]), Counted(x, 5)
    fineline.graph_break()
    a.tag.append(2)
    return a + 1, a.tag, b.n, b * 2, type(a) is Tagged


@table.snippet()
def an_error_in_the_constructor(x):
    try:
        return Viewed(x * 2, 0)
    except ValueError as e:
        return x + 1, str(e)


@table.snippet(min_graphs=0)
def a_constructor_that_lacks_an_argument(x):
    try:
        return Titled(x * 2)
    except TypeError as e:
        return x + 1, str(e)


@table.snippet()
def under_a_mode(x):
    with Watching() as mode:
        a = Tagged(x * 2, "a") + 1
        b = Viewed(x).sin()
    return a, b, mode.seen


@table.snippet(args=lambda place: (t(place, 2 + place, 4),), calls=4, recompiles=(1,))
def sizes_that_vary(x):
    a = Viewed(x * 2)
    return a.reshape(-1) * a.size_of, a.size_of


@table.snippet()
def without_gradients(x):
    with torch.no_grad():
        a = Tagged(x * 2)
    with torch._C.DisableTorchFunctionSubclass():
        b = Tagged(x)
        c = b + 1
    return a, b, c, type(c).__name__


@table.program(change={2: lambda state: setattr(state, "tag", "other")}, recompiles=(2,))
def a_class_whose_state_changes():
    class State:
        tag = "first"

    state = State()
    return lambda x: (lambda a: (a * 2, a.tag))(Tagged(x + 1, state.tag)), state


@table.program(change={2: lambda cls: setattr(cls, "__init__", lambda self, data, tag: setattr(self, "tag", [tag]))}, recompiles=(2,))
def a_constructor_that_changes():
    class Changing(Tagged):
        pass

    return lambda x: (lambda a: (a * 2, a.tag))(Changing(x + 1, "a")), Changing


@table.program(twins=WITHOUT_COUNTED)
def module_that_makes_them():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Any:
            return self.linear(Inherited(x * 2)).sin()

    model = Model()
    for k, p in enumerate(model.parameters()):
        p.data = t(k, *p.shape)
    return lambda x: model(x), model


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_programs(program: Any, twin: str) -> None:
    check(program, twin)
