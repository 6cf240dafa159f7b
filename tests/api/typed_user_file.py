"""A user's file, under mypy --strict: each decorator keeps the type of what it decorates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_type

import torch
from torch import Tensor, nn

import fineline


def step(x: Tensor, n: int = 2, *, flag: bool = False) -> tuple[Tensor, int]:
    return x * n if flag else x, n


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.helper(x, 2)

    @fineline.compile
    def helper(self, x: Tensor, n: int) -> Tensor:
        return x * n

    @fineline.compile(fullgraph=True)
    def other(self, x: Tensor) -> Tensor:
        return self.helper(x, n=3)

    @staticmethod
    @fineline.disable
    def kept(x: Tensor) -> float:
        return x.sum().item()

    @fineline.disable(recursive=False, reason="logs")
    def logs(self, text: str) -> int:
        return len(text)

    @fineline.disable
    def told(self, x: Tensor, n: int = 1) -> str:
        return str(x) * n

    @fineline.allow_in_graph
    def opaque(self, x: Tensor, n: int) -> Tensor:
        return x * n

    @classmethod
    @fineline.compile
    def made(cls, n: int) -> Tensor:
        return torch.ones(n)

    @staticmethod
    @fineline.compile(dynamic=True)
    def halved(x: Tensor) -> Tensor:
        return x / 2

    @property
    @fineline.disable
    def size(self) -> int:
        return 3


x, net = torch.ones(3), Net()

# -- compile: a function, with and without arguments; a module; a method; under PyTorch's name of the parameter ---------------------
fast = fineline.compile(step)
assert_type(fast(x), tuple[Tensor, int])
assert_type(fast(x, 3, flag=True), tuple[Tensor, int])
assert_type(fineline.compile(step, backend="eager", options={"recompile_limit": 4}, breaks="declared")(x, n=1), tuple[Tensor, int])
assert_type(fineline.compile(model=step, dynamic=True)(x), tuple[Tensor, int])
assert_type(fineline.compile(fullgraph=True)(step)(x), tuple[Tensor, int])
assert_type(fineline.compile(net, policy=fineline.Policy(disable=["a/**"])), Net)
assert_type(fineline.compile(net).lin, nn.Linear)
assert_type(fineline.compile(model=net), Net)
assert_type(fineline.compile(dynamic=False)(net), Net)
assert_type(fineline.compile(net.forward)(x), Tensor)
assert_type(net.helper(x, 1), Tensor)
assert_type(net.helper(x, n=1), Tensor)
assert_type(net.other(x), Tensor)
assert_type(Net.made(2), Tensor)
assert_type(net.halved(x), Tensor)
net.made("two")  # error: arg-type
net.halved(x, 3)  # error: call-arg
fast(x, "two")  # error: arg-type
fast(n=2)  # error: call-arg
fast(x, other=2)  # error: call-arg
net.helper(x)  # error: call-arg
net.other(x, 3)  # error: call-arg
fineline.compile(3)  # error: call-overload
fineline.compile(step, backend=3)  # error: call-overload
fineline.compile(step, no_such_argument=3)  # error: call-overload
fineline.compile(step, breaks="some")  # error: call-overload
fineline.compile(fullgraph="yes")  # error: call-overload


@fineline.compile
def decorated(x: Tensor, n: int) -> Tensor:
    return x * n


@fineline.compile(backend="eager", dynamic=None)
def decorated_with(x: Tensor, *more: Tensor, **named: int) -> list[Tensor]:
    return [x, *more]


assert_type(decorated(x, 2), Tensor)
assert_type(decorated_with(x, x, x, a=1), list[Tensor])
decorated(x, n="a")  # error: arg-type
decorated_with(x, 1)  # error: arg-type


# -- disable ------------------------------------------------------------------------------------------------------------------------
@fineline.disable
def eager(x: Tensor, n: int) -> float:
    return x.sum().item() * n


@fineline.disable(recursive=False)
def eager_frame(x: Tensor) -> str:
    return str(x)


@fineline.disable
class Plain:
    def __init__(self, n: int) -> None:
        self.n = n


@fineline.disable()
class Other:
    attribute = "a"


assert_type(eager(x, 2), float)
assert_type(eager_frame(x), str)
assert_type(Plain(3).n, int)
assert_type(Other.attribute, str)
assert_type(fineline.disable(net), Net)
assert_type(fineline.disable([step])[0](x, 2), tuple[Tensor, int])
assert_type(net.kept(x), float)
assert_type(net.logs("a"), int)
assert_type(net.told(x, n=2), str)
assert_type(fineline.disable(net.forward)(x), Tensor)
assert_type(net.size, int)
with fineline.disable(reason="loads"):
    pass
eager("x", 2)  # error: arg-type
eager_frame()  # error: call-arg
Plain()  # error: call-arg
net.logs(3)  # error: arg-type
net.told("x")  # error: arg-type
fineline.disable(3)  # error: call-overload


# -- marks: the object itself is returned -------------------------------------------------------------------------------------------
@fineline.allow_in_graph
def opaque(x: Tensor, n: int) -> Tensor:
    return x * n


@fineline.disallow_in_graph
def disallowed(x: Tensor) -> Tensor:
    return x


@fineline.forbid_in_graph
def forbidden(x: Tensor) -> int:
    return 1


@fineline.assume_constant_result
def constant(n: int) -> list[int]:
    return [n]


@fineline.substitute_in_graph(sum)
def instead(iterable: Sequence[int], /, start: int = 0) -> int:
    return start


@fineline.nested_compile_region
def layer(x: Tensor) -> Tensor:
    return x


@fineline.nested_compile_region(max_reuse_entries=2)
def layer_with(x: Tensor) -> Tensor:
    return x


@fineline.error_on_graph_break(True)
def strict(x: Tensor) -> Tensor:
    return x


@fineline.set_stance("force_eager")
def forced(x: Tensor) -> Tensor:
    return x


@fineline.optimize("eager", nopython=True)
def optimized(x: Tensor) -> Tensor:
    return x


@fineline.run
def existing(x: Tensor) -> Tensor:
    return x


@fineline.run()
def existing_with(x: Tensor) -> Tensor:
    return x


@fineline.register_backend
def plain(gm: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., object]:
    return gm.forward


@fineline.register_backend(name="named", tags=("debug",))
def with_name(gm: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., object]:
    return gm.forward


assert_type(opaque(x, 2), Tensor)
assert_type(net.opaque(x, 2), Tensor)
assert_type(fineline.allow_in_graph(net.forward)(x), Tensor)
assert_type(fineline.allow_in_graph(net), Net)
assert_type(disallowed(x), Tensor)
assert_type(forbidden(x), int)
assert_type(constant(2), list[int])
assert_type(instead([2], 3), int)
assert_type(layer(x), Tensor)
assert_type(layer_with(x), Tensor)
assert_type(strict(x), Tensor)
assert_type(forced(x), Tensor)
assert_type(optimized(x), Tensor)
assert_type(fineline.optimize()(net), Net)
assert_type(existing(x), Tensor)
assert_type(existing_with(x), Tensor)
assert_type(fineline.run(net), Net)
assert_type(plain(torch.fx.GraphModule(net, torch.fx.Graph()), []), Callable[..., object])
fineline.disallow_in_graph(torch.ops.aten.nonzero)
fineline.allow_in_graph([step, eager])
opaque("a", 2)  # error: arg-type
net.opaque(x)  # error: call-arg
instead("a")  # error: arg-type
layer_with(x, x)  # error: call-arg
strict()  # error: call-arg
forced(3)  # error: arg-type
optimized(3)  # error: arg-type
fineline.allow_in_graph("torch.add")  # error: type-var
with_name(3, [])  # error: arg-type

# -- explain, report ----------------------------------------------------------------------------------------------------------------
print(fineline.explain(step)(x, n=2).guards)
print(fineline.report(fast).graphs)
fineline.explain(step)(x, m=2)  # error: call-arg
fineline.explain(step)(x).no_such_attribute  # error: attr-defined
