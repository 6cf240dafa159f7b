"""Which attributes decide what a tensor of a wrapper subclass consists of, as far as the code of its class tells."""

from __future__ import annotations

import enum
import functools
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._internal.two_tensor import TwoTensor

from fineline.torch_facts.flattening import attributes_read
from fineline.torch_facts.wrapper_subclasses import parts_of

ORDER = ["inner"]


class Mode(enum.Enum):
    FAST = 1


class ByProperty(enum.Enum):
    FAST = 1

    @property
    def scale(self) -> int:
        return len(ORDER)


class ByEnumsProperty(enum.Enum):
    FAST = 1

    @enum.property
    def scale(self) -> int:
        return len(ORDER)


class ByDescriptor(enum.Enum):
    FAST = 1
    scale = functools.cached_property(lambda self: len(ORDER))


class ByList(enum.Enum):
    FAST = [1]


class Wrapper(Tensor):
    names = ["inner"]

    @staticmethod
    def __new__(cls, inner: Tensor, **kwargs: Any) -> Any:
        return Tensor._make_wrapper_subclass(cls, inner.shape)

    def __init__(self, inner: Tensor, **kwargs: Any) -> None:
        self.inner = inner
        self.__dict__.update(kwargs)

    @classmethod
    def __torch_dispatch__(cls, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError


def wrapper(flatten: Any, **attributes: Any) -> Tensor:
    kwargs = {k: v for k, v in attributes.items() if not k.startswith("of_class_")}
    of_class = {k.removeprefix("of_class_"): v for k, v in attributes.items() if k not in kwargs}
    space = {"__tensor_flatten__": flatten, "__tensor_unflatten__": None, **of_class}
    return type("Made", (Wrapper,), space)(torch.ones(2), **kwargs)


def rest(self: Any) -> Any:
    return {"scale": self.scale}


def through_globals(self: Any) -> Any:
    return ORDER, None


def through_a_default(self: Any, names: Any = ORDER) -> Any:
    return names, None


def counted(self: Any) -> Any:
    self.calls = 1
    return ["inner"], None


def caught(self: Any) -> Any:
    try:
        return ["inner"], self.scale
    except AttributeError:
        return ["inner"], None


READ = {
    "nothing": (lambda self: (["inner"], None), {}, {"__tensor_flatten__", "inner"}),
    "number": (lambda self: (["inner"], self.scale), {"scale": 2}, {"__tensor_flatten__", "inner", "scale"}),
    "list": (lambda self: (["inner"], self.scale), {"scale": [1, (2, "a")]}, {"__tensor_flatten__", "inner", "scale"}),
    "dict of enums": (lambda self: (["inner"], self.scale), {"scale": {"mode": Mode.FAST}}, {"__tensor_flatten__", "inner", "scale"}),
    "by name": (lambda self: (["inner"], [getattr(self, n) for n in ("scale", "dtype")]), {"scale": 1}, {"__tensor_flatten__", "inner", "scale"}),
    "names of the class": (lambda self: (self.names.copy(), None), {}, {"__tensor_flatten__", "inner", "names"}),
    "missing": (lambda self: (["inner"], hasattr(self, "scale")), {}, {"__tensor_flatten__", "inner", "scale"}),
    "optional": (lambda self: (["inner"], self.scale is None), {"scale": torch.ones(1)}, {"__tensor_flatten__", "inner", "scale"}),
    "method": (lambda self: (["inner"], self.rest()), {"of_class_rest": rest, "scale": 1}, {"__tensor_flatten__", "inner", "rest", "scale"}),
    "over the class's": (lambda self: (["inner"], self.scale), {"scale": 1, "of_class_scale": 2}, {"__tensor_flatten__", "inner", "scale"}),
}
MORE = {
    "globals": (through_globals, {}),
    "default": (through_a_default, {}),
    "write": (counted, {}),
    "exception": (caught, {"scale": 1}),
    "object": (lambda self: (["inner"], self.scale), {"scale": SimpleNamespace(n=1)}),
    **{f"enum {kind.__name__}": (lambda self: (["inner"], self.scale), {"scale": kind.FAST}) for kind in (ByProperty, ByEnumsProperty, ByDescriptor, ByList)},
    "identity": (lambda self: (["inner"], self.inner is self.scale), {"scale": torch.ones(1)}),
    "numbers of a tensor": (lambda self: (["inner"], self.inner.shape), {}),
    "truth of a tensor": (lambda self: (["inner"], not self.scale), {"scale": torch.ones(1)}),
    "tensor in the context": (lambda self: (["inner"], self.scale), {"scale": torch.ones(1)}),
    "version": (lambda self: (["inner"], self._version), {}),
    "sizes": (lambda self: (["inner"], self.shape), {}),
    "class": (lambda self: (["inner"], self.__class__.__name__), {}),
    "property": (lambda self: (["inner"], self.scale), {"of_class_scale": property(lambda self: 1)}),
    "static method": (lambda self: (["inner"], self.rest()), {"of_class_rest": staticmethod(lambda: 1)}),
    "own getattr": (lambda self: (["inner"], self.scale), {"of_class___getattr__": lambda self, name: 1}),
    "own getattribute": (lambda self: (["inner"], 1), {"of_class___getattribute__": lambda self, name: object.__getattribute__(self, name)}),
    "call of the module's function": (lambda self: (["inner"], rest(self)), {"scale": 1}),
}


@pytest.mark.parametrize("name", READ)
def test_what_the_code_reads(name: str) -> None:
    flatten, attributes, expected = READ[name]
    t = wrapper(flatten, **attributes)
    found = attributes_read(t, parts_of(t))
    assert found is not None and {read.name for read in found} == expected


@pytest.mark.parametrize("name", MORE)
def test_code_that_may_depend_on_more(name: str) -> None:
    flatten, attributes = MORE[name]
    t = wrapper(flatten, **attributes)
    assert attributes_read(t, parts_of(t)) is None


def test_classes_of_others() -> None:
    t = TwoTensor(torch.ones(2), torch.ones(2))
    found = attributes_read(t, parts_of(t))
    assert found is not None and {read.name for read in found} == {"__tensor_flatten__", "a", "b"}
    quantized = pytest.importorskip("torchao.quantization")
    linear = torch.nn.Linear(32, 32)
    quantized.quantize_(linear, quantized.Int8WeightOnlyConfig())
    found = attributes_read(linear.weight, parts_of(linear.weight))
    assert found is not None and {"qdata", "scale", "tensor_data_names"} <= {read.name for read in found}


def test_nothing_is_written_into_the_lists_of_a_class() -> None:
    names = ["inner"]
    t = wrapper(lambda self: (self.names + ["inner"][:0], self.seen.append(1)), of_class_names=names, of_class_seen=(seen := [0]))
    parts = parts_of(t)
    assert seen == [0, 1]
    attributes_read(t, parts)
    assert seen == [0, 1] and names == ["inner"]
