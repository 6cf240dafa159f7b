"""Live objects as comparable trees.

A ``Freezer`` numbers objects in the order in which a run shows them, so two trees are equal only if the identity relations are: inside
a result, between result, arguments and state, and with earlier calls. It never runs user code (no ``__eq__``, ``__getattr__``,
``__iter__`` of user classes), and a tree holds copies, so that it stays as it was when the objects change later.
"""

from __future__ import annotations

import collections
import enum
import functools
import random
import sys
import types
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils.hooks import RemovableHandle

Tree = tuple[Any, ...]

_CONSTANT = (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented), range, slice)
_TORCH_CONSTANT = (torch.dtype, torch.device, torch.layout, torch.memory_format)
# The placements of a DTensor, whose identity is nobody's business.
_PLACEMENT = torch._C._distributed.Placement if torch.distributed.is_available() else ()
_CLASS_NOISE = {
    "__dict__", "__weakref__", "__doc__", "__module__", "__abstractmethods__", "_abc_impl", "__parameters__", "__orig_bases__",
    "__dataclass_params__", "__dataclass_fields__", "__annotations__", "__match_args__", "__slotnames__",
}  # fmt: skip
_HOOKS = (
    "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks", "_load_state_dict_pre_hooks",
    "_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs", "_forward_hooks_always_called", "_state_dict_pre_hooks",
    "_load_state_dict_post_hooks", "_non_persistent_buffers_set", "_is_full_backward_hook",
)  # fmt: skip


class Bits:
    """A tensor's or array's values, for comparison bit by bit (all NaNs are one)."""

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values
        plain = values.resolve_conj().resolve_neg().reshape(-1).clone(memory_format=torch.contiguous_format)
        self.raw = (values.dtype, plain.view(torch.uint8).numpy().tobytes()) if values.numel() else values.dtype

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bits) and (self.raw == other.raw or not self.differs(other, 0.0))

    def differs(self, other: Bits, tolerance: float) -> bool:
        a, b = self.values, other.values
        if a.dtype != b.dtype or a.shape != b.shape:
            return True
        if tolerance and (a.is_floating_point() or a.is_complex()):
            return not torch.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
        if a.is_floating_point() or a.is_complex():
            parts = [torch.view_as_real(v.resolve_conj()) if v.is_complex() else v for v in (a, b)]
            a, b = (torch.where(torch.isnan(v), torch.full_like(v, float("nan")), v) for v in parts)
        if not a.numel():
            return False
        raw = [v.contiguous().reshape(-1).view(torch.uint8) if v.dtype != torch.bool else v for v in (a, b)]
        return not torch.equal(raw[0], raw[1])

    def __repr__(self) -> str:
        flat = self.values.reshape(-1)
        return f"{flat[:6].tolist()}{'...' if flat.numel() > 6 else ''}"


def ours(module: Any) -> bool:
    """Whether a module name belongs to the tests or a generated program, not to a library."""
    return isinstance(module, str) and _ours(module.partition(".")[0])


@functools.lru_cache(maxsize=None)
def _ours(root: str) -> bool:
    if root in sys.stdlib_module_names and root != "__main__":
        return False
    where = getattr(sys.modules.get(root), "__file__", None) or ""
    return "site-packages" not in where and root != "fineline"


def our_code(function: types.FunctionType) -> bool:
    name = function.__code__.co_filename
    return "site-packages" not in name and "/lib/python3" not in name and name != "<string>" and "/src/fineline/" not in name


def slots_of(obj: Any) -> Iterator[tuple[str, Any]]:
    for cls in type(obj).__mro__:
        if not ours(cls.__module__):
            continue
        for name, member in vars(cls).items():
            if isinstance(member, types.MemberDescriptorType):
                try:
                    yield name, member.__get__(obj, type(obj))
                except AttributeError:
                    pass


def names_read(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from names_read(const)


class Freezer:
    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}
        self.kept: list[Any] = []  # a number must not be given twice, so what has one stays alive
        self.shown: set[int] = set()
        self.differentiable: list[torch.Tensor] = []

    def world(self, obj: Any) -> Tree:
        """The tree of one moment; numbers are kept from earlier ones."""
        self.shown.clear()
        self.differentiable.clear()
        with torch._C.DisableTorchFunction(), torch.no_grad():
            return self.freeze(obj)

    def moment(self, named: dict[str, Any]) -> dict[str, Tree]:
        """The trees of several things at one moment; ``differentiable`` then holds the tensors of the first that have a graph."""
        self.shown.clear()
        trees = {}
        with torch._C.DisableTorchFunction(), torch.no_grad():
            for place, (name, obj) in enumerate(named.items()):
                self.differentiable = []
                trees[name] = self.freeze(obj)
                if not place:
                    first = self.differentiable
        self.differentiable = first
        return trees

    def number(self, obj: Any, key: Any = None) -> int:
        key = id(obj) if key is None else key
        if key not in self.numbers:
            self.numbers[key] = len(self.numbers)
            self.kept.append(obj)
        return self.numbers[key]

    def freeze(self, obj: Any) -> Tree:
        cls = type(obj)
        if cls in _CONSTANT:
            # Python writes out no numbers of very many digits.
            return (cls.__name__, hex(obj) if cls is int and obj.bit_length() > 2000 else repr(obj))
        if cls in _TORCH_CONSTANT:
            return ("torch", str(obj))
        if isinstance(obj, _PLACEMENT):
            return ("placement", type(obj).__name__, repr(obj))
        if ragged(obj):
            # The size of a ragged dimension counts all tensors of the process that hold lengths.
            return ("ragged", self.number(obj, ("ragged", obj.node.nested_int())), obj.node.nested_int_coeff())
        if issubclass(cls, enum.Enum):
            return ("enum", cls.__qualname__, repr(obj._name_), repr(obj._value_))
        if issubclass(cls, tuple) and self.constant(obj):
            return ("tuple", self.type_name(cls), *(self.freeze(item) for item in tuple.__iter__(obj)))
        if issubclass(cls, types.ModuleType):
            return ("module", obj.__name__)
        if cls in (types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType):
            owner = obj.__self__
            inner = None if owner is None or isinstance(owner, types.ModuleType) else self.freeze(owner)
            return ("method", self.freeze(obj.__func__) if cls is types.MethodType else obj.__name__, inner)
        number = self.number(obj)
        if number in self.shown:
            return ("same as", number)
        self.shown.add(number)
        return self.contents(obj, cls, number)

    def constant(self, obj: Any) -> bool:
        """Whether a tuple's identity is nobody's business."""
        items = list(tuple.__iter__(obj))
        kinds = [type(i) in _CONSTANT or type(i) in _TORCH_CONSTANT or isinstance(i, _PLACEMENT) or ragged(i) for i in items]
        return all(known or (type(i) is tuple and self.constant(i)) for i, known in zip(items, kinds, strict=True))

    def type_name(self, cls: type) -> str:
        return f"{cls.__qualname__}#{self.number(cls)}" if ours(cls.__module__) else f"{cls.__module__}.{cls.__qualname__}"

    def items(self, values: Any) -> Tree:
        return tuple(self.freeze(value) for value in values)

    def pairs(self, values: Any) -> Tree:
        return tuple((self.freeze(key), self.freeze(value)) for key, value in values)

    def attributes(self, obj: Any) -> Tree:
        try:
            space = object.__getattribute__(obj, "__dict__")
        except AttributeError:
            space = {}
        # Eager control-flow operators run under TorchDynamo, which leaves marks on tensors.
        named = [(key, value) for key, value in dict.items(space) if not str(key).startswith(("_dynamo_", "_specialize_on"))]
        if isinstance(obj, torch.Tensor) and obj.layout == torch.jagged:
            # Its parts are compared. Eager operators give the dict of a cache on, and compiled ones make a new one.
            named = [(key, value) for key, value in named if key != "_metadata_cache" and type(value).__name__ != "PyCapsule"]
        return (self.pairs(named), self.pairs(list(slots_of(obj))))

    def contents(self, obj: Any, cls: type, number: int) -> Tree:
        if issubclass(cls, type):
            return self.of_class(obj, number)
        name = self.type_name(cls)
        if issubclass(cls, torch.Tensor):
            return self.of_tensor(obj, name, number)
        if issubclass(cls, torch.nn.Module):
            return self.of_module(obj, name, number)
        if issubclass(cls, BaseException):
            return self.of_exception(obj, name, number)
        if cls is types.FunctionType:
            return self.of_function(obj, number)
        if cls is RemovableHandle:
            return self.of_handle(obj, name, number)
        body = self.body(obj, cls)
        if body is None and cls.__dictoffset__ == 0 and not ours(cls.__module__):
            return ("opaque", name, number)
        return ("object", name, number, body, self.attributes(obj))

    def body(self, obj: Any, cls: type) -> Tree | None:
        """What an object holds besides attributes."""
        if issubclass(cls, (list, collections.deque)):
            maxlen = obj.maxlen if issubclass(cls, collections.deque) else None
            base = list if issubclass(cls, list) else collections.deque
            return (*self.items(list(base.__iter__(obj))), ("maxlen", maxlen))
        if issubclass(cls, tuple):
            return self.items(list(tuple.__iter__(obj)))
        if issubclass(cls, dict):
            factory = self.freeze(obj.default_factory) if issubclass(cls, collections.defaultdict) else None
            order = list(collections.OrderedDict.items(obj) if issubclass(cls, collections.OrderedDict) else dict.items(obj))
            return (*self.pairs(order), ("factory", factory))
        if issubclass(cls, (set, frozenset)):
            base_set = set if issubclass(cls, set) else frozenset
            values = sorted(base_set.__iter__(obj), key=lambda v: (type(v).__qualname__, repr(v) if type(v) in _CONSTANT else ""))
            return self.items(values)
        if issubclass(cls, (str, int, float, complex, bytes)):
            plain = next(base for base in (str, int, float, complex, bytes) if issubclass(cls, base))
            return (plain.__repr__(obj),)
        if issubclass(cls, bytearray):
            return (bytes(obj),)
        if cls is types.CellType:
            try:
                return (self.freeze(obj.cell_contents),)
            except ValueError:
                return ("empty",)
        if issubclass(cls, functools.partial):
            return (self.freeze(obj.func), self.items(obj.args), self.pairs(obj.keywords.items()))
        if cls is functools._lru_cache_wrapper:
            return (self.freeze(obj.__wrapped__),)
        if cls in (staticmethod, classmethod):
            return (self.freeze(obj.__func__),)
        if cls is property:
            return self.items((obj.fget, obj.fset, obj.fdel))
        if cls is types.GeneratorType:
            return (obj.__name__, obj.gi_frame is None)
        if issubclass(cls, weakref.ref):
            return (self.freeze(weakref.ref.__call__(obj)),)
        if issubclass(cls, np.ndarray):
            numbers = Bits(torch.from_numpy(np.array(obj))) if obj.dtype != object else None
            # NumPy gives no meaning to the others.
            strides = [stride for n, stride in zip(obj.shape, obj.strides, strict=True) if n > 1 and obj.size]
            return (str(obj.dtype), obj.shape, tuple(strides), obj.flags.writeable, self.memory_of(obj), numbers)
        if issubclass(cls, np.generic):
            return (str(obj.dtype), Bits(torch.from_numpy(np.array(obj))) if obj.dtype.kind in "fc" else repr(obj.item()))
        if cls is types.SimpleNamespace:
            return ()
        if cls is torch.Generator:
            return (Bits(obj.get_state()),)
        if cls is random.Random:
            return (repr(hash(obj.getstate())),)
        if cls.__name__.endswith("iterator") and cls.__module__ == "builtins" and hasattr(obj, "__length_hint__"):
            return ("left", obj.__length_hint__())
        return None

    def memory_of(self, array: Any) -> Tree:
        """In which memory an array lies, that of a tensor perhaps, and where."""
        root = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        start = root.__array_interface__["data"][0]
        owner: Any = root
        if isinstance(root.base, torch.Tensor):
            owner = root.base.untyped_storage()
            start = owner.data_ptr()
        return (self.number(owner, ("storage", start)), array.__array_interface__["data"][0] - start) if array.size else ()

    def of_class(self, cls: Any, number: int) -> Tree:
        if not ours(cls.__module__):
            return ("class", f"{cls.__module__}.{cls.__qualname__}")
        space = [(key, value) for key, value in vars(cls).items() if key not in _CLASS_NOISE]
        return ("class", cls.__qualname__, number, self.freeze(type(cls)), self.items(cls.__bases__), self.pairs(space))

    def of_function(self, function: types.FunctionType, number: int) -> Tree:
        if not our_code(function):
            return ("function", f"{function.__module__}.{function.__qualname__}")
        code = function.__code__
        read = [(key, function.__globals__[key]) for key in dict.fromkeys(names_read(code)) if key in function.__globals__]
        return (
            "function", function.__qualname__, number, code.co_name, self.freeze(function.__defaults__),
            self.freeze(function.__kwdefaults__), self.items(function.__closure__ or ()), self.attributes(function),
            ("globals", *self.pairs(read)),
        )  # fmt: skip

    def of_exception(self, error: BaseException, name: str, number: int) -> Tree:
        chain = (self.freeze(error.__cause__), self.freeze(error.__context__), error.__suppress_context__)
        group = self.items(error.exceptions) if isinstance(error, BaseExceptionGroup) else ()
        return ("exception", name, number, self.items(error.args), self.attributes(error), ("chain", *chain), group)

    def of_handle(self, handle: RemovableHandle, name: str, number: int) -> Tree:
        """Where its hook is among the others: PyTorch counts all hooks of the process, also those that AOTAutograd makes for itself."""
        tables = (handle.hooks_dict_ref(), *[ref() for ref in handle.extra_dict_ref])
        return ("handle", name, number, *[None if table is None else self.place(handle.id, table) for table in tables])

    def place(self, key: int, table: dict[int, Any]) -> Tree:
        keys = list(table)
        return (self.items(list(table.values())), keys.index(key) if key in table else None)

    def of_module(self, module: torch.nn.Module, name: str, number: int) -> Tree:
        space = dict(module.__dict__)
        hooks = tuple(
            (key, self.items(list(space[key].values()) if isinstance(space[key], dict) else ()))
            for key in _HOOKS if key in space and not key.startswith("_non")
        )  # fmt: skip
        plain = [(key, value) for key, value in space.items() if key not in _HOOKS]
        return ("module object", name, number, self.pairs(plain), ("hooks", *hooks))

    def of_tensor(self, tensor: torch.Tensor, name: str, number: int) -> Tree:
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor):  # kept from a transform that has ended
            return ("wrapped", name, number, self.freeze(torch._C._functorch.get_unwrapped(tensor)), self.attributes(tensor))
        strided = tensor.layout == torch.strided
        leaf = tensor.is_leaf
        if not leaf and (tensor.is_floating_point() or tensor.is_complex()) and not tensor.is_inference():
            self.differentiable.append(tensor)
        where: Tree = ()
        rows = strided and tensor.is_nested
        shape = tuple(map(self.freeze, tensor.unbind())) if rows else tuple(self.freeze(n) if ragged(n) else n for n in tensor.shape)
        if strided and not tensor.is_nested:
            storage = tensor.untyped_storage()
            # By address: the storage of a tensor that `torch.from_numpy` has made is another one than that of the array's own tensor.
            # Those of wrapper subclasses, and of zeros that stand for no memory, have no address.
            address = 0 if _is_wrapper(tensor) or tensor._is_zerotensor() else storage.data_ptr()
            where = (self.number(storage, ("storage", address or storage._cdata)), tensor.storage_offset(), tensor.stride())
        if tensor.layout == torch.sparse_coo:
            whole = tensor.coalesce()
            values: Any = (Bits(whole.indices().clone()), Bits(whole.values().clone()))
        elif _is_wrapper(tensor):
            values = self.of_wrapper(tensor)
        elif tensor.is_meta or tensor.is_nested or not strided:
            values = None
        else:
            values = Bits(tensor.detach().as_subclass(torch.Tensor).clone())
        return (
            "tensor", name, number, str(tensor.dtype), shape, str(tensor.device), str(tensor.layout),
            ("where", *where), ("values", values), ("requires_grad", tensor.requires_grad, "leaf", leaf),
            ("flags", tensor.is_inference(), tensor.is_conj(), tensor.is_neg()),
            ("grad", self.freeze(tensor.grad) if leaf or tensor.retains_grad else None), self.attributes(tensor),
        )  # fmt: skip


    def of_wrapper(self, tensor: Any) -> Tree:
        """The parts of a tensor that consists of others, which its class names."""
        try:
            names, context = tensor.__tensor_flatten__()
            tensors = [getattr(tensor, name) for name in names]
        except (AttributeError, ValueError) as error:  # a class that does not keep to the protocol
            return ("parts", type(error).__name__)
        # AOTAutograd gives a DTensor a tuple in place of a torch.Size.
        context = _as_tuples(context) if "device_mesh" in names else context
        return ("parts", tuple(names), *map(self.freeze, tensors), self.freeze(context))


def _is_wrapper(tensor: torch.Tensor) -> bool:
    """Whether a tensor consists of others and has no memory; also one whose class a program has replaced by one that knows nothing of them."""
    lost = type(tensor).__torch_dispatch__ is torch._C._disabled_torch_dispatch_impl and torch._C._dispatch_keys(tensor).has(torch._C.DispatchKey.Python)
    return lost or is_traceable_wrapper_subclass(tensor)


def _as_tuples(context: Any) -> Any:
    return tuple(map(_as_tuples, context)) if isinstance(context, tuple) else context


def ragged(value: Any) -> bool:
    """Whether a number is the size of a ragged dimension."""
    return type(value) is torch.SymInt and value.node.is_nested_int()


def differences(a: Any, b: Any, tolerance: float = 0.0, path: str = "") -> Iterator[str]:
    """Where two trees differ, outermost first."""
    if isinstance(a, Bits) and isinstance(b, Bits):
        if a.differs(b, tolerance):
            yield f"{path}: {a} != {b}"
    elif isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        if len(a) != len(b):
            yield f"{path}: {len(a)} parts != {len(b)} parts: {brief(a)} != {brief(b)}"
        heads = [x[:20] for x in a[:2] if isinstance(x, str)]
        label = f"{path}/{'.'.join(heads)}" if heads else path
        for place, (x, y) in enumerate(zip(a, b, strict=False)):
            yield from differences(x, y, tolerance, f"{label}[{place}]")
    elif isinstance(a, dict) and isinstance(b, dict):
        for key in dict.fromkeys([*a, *b]):
            yield from differences(a.get(key), b.get(key), tolerance, f"{path}.{key}")
    elif type(a) is not type(b) or a != b:
        yield f"{path}: {brief(a)} != {brief(b)}"


def brief(tree: Any) -> str:
    text = repr(tree)
    return text if len(text) < 100 else text[:100] + "..."
