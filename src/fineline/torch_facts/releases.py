"""What differs between the releases of PyTorch that fineline runs on. Code elsewhere takes these names and asks for no release.

| PyTorch | what changed                                                             | here |
|---------|--------------------------------------------------------------------------|------|
| 2.14    | `autograd.Function.apply` is a class method in C, its bound form a       | `APPLY`, `APPLY_HOME`, `bound_apply`, `method_parts`, `applied` |
|         | C function: no `__func__`, no code, another object at each read          | |
| 2.14    | `FakeTensorMode.from_tensor` notes the number in a real tensor without   | `static_fake` |
|         | dimensions, and `item()` of the fake returns it instead of raising       | |

Differences are told from PyTorch itself, not by its number: a release between two others may have either form.

These changes need no distinction, because what is right for the newer release is right for the older one:

| PyTorch | what changed                                                             | where |
|---------|--------------------------------------------------------------------------|-------|
| 2.14    | `torch.compile(shapes_spec=)` is called `dynamic_shapes`                 | `api.compile`, `install.py`: both are arguments |
| 2.14    | `flex_attention` asks whether a tensor has unbacked sizes                | `tensor_ops/unbacked.py` `_has_unbacked` |
| 2.14    | AOTAutograd takes an index that is the number in a tensor, and Inductor  | `fx/graph_traits.py` `reads_numbers`, `backends/tracing.py` |
|         | raises other exceptions than eager code where it is out of bounds        | |
| 2.14    | to read a deprecated setting of `torch._dynamo.config` warns             | `region/settings.py` `_changed` |
| 2.15    | `torch.foreach`: Python functions around `torch._foreach_*`              | `torch_facts/callables.py`: their code is captured |
| 2.15    | an operator more that writes to its argument without a name that says so | `torch_facts/mutation.py` `HIDDEN_WRITES` |
| 2.15    | tensors have the attribute `_has_grad_dtype_override`                    | `torch_facts/names.py` `ATTRIBUTES` |
| 2.15    | `sdpa_kernel` sets a context variable                                    | `objects/context_variables.py` |
| 2.15    | distributions branch on what a function returns                          | `builtins/libraries.py` `all_true` |
| 2.15    | operators raise NotImplementedError for a dtype                          | `tensor_ops/backing.py` `_always` |
"""

from __future__ import annotations

import types
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd.function import FunctionMeta

from fineline.kinds import is_a

# -- autograd.Function.apply -------------------------------------------------------------------------------------------
_APPLY: Any = torch.autograd.Function.__dict__["apply"]
APPLY: Any = getattr(_APPLY, "__func__", _APPLY)
"""What all classes' `apply` is, unbound: it takes the class as first argument."""
APPLY_HOME: tuple[str, str, str] = ("torch.autograd.function", "Function.apply", str(torch.autograd.function.__file__))
"""Its module, its name and its file, for rules about these."""


def bound_apply(cls: type) -> Any:
    """Returns ``cls.apply``, even if the class has another attribute of that name."""
    return _APPLY.__get__(None, cls)


def has_apply(value: Any) -> bool:
    """Returns whether ``value`` is a class that `APPLY` can be bound to."""
    return is_a(value, FunctionMeta)


def method_parts(value: Any) -> tuple[Any, Any] | None:
    """Returns the function and the object of a bound method in Python, or of a bound `apply`; None for anything else."""
    if is_a(value, types.MethodType):
        return value.__func__, value.__self__
    holder: Any = value.__self__ if is_a(value, types.BuiltinFunctionType) else None
    return (APPLY, holder) if has_apply(holder) and value == bound_apply(holder) else None


def applied(value: Any) -> Any:
    """Returns the class whose `apply` ``value`` is; None if it is something else."""
    parts = method_parts(value)
    return parts[1] if parts is not None and parts[0] is APPLY else None


# -- fake tensors ------------------------------------------------------------------------------------------------------
def static_fake(mode: FakeTensorMode, t: Tensor) -> FakeTensor:
    """Returns the fake of a real tensor, of the same sizes. It knows none of the tensor's numbers."""
    fake: FakeTensor = mode.from_tensor(t, static_shapes=True)
    # Sizes that depend on the number would be taken for constants: `x.sum(n)` gave the sizes of the first call's `n`.
    fake.item_memo = None
    return fake
