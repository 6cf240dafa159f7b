"""Guard mutations of tensors."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.soundness.mutations.cases import (
    Cases,
    X,
    attr,
    doing,
    made,
)

CASES = Cases()
case = CASES.add


class Sub(Tensor):
    pass


for _name, _read, _before, _after in [
    ("tensor_dtype", lambda x: x * 2, lambda: X, lambda: X.double()),
    ("tensor_dtype_read", lambda x: x * (2 if x.dtype is torch.float32 else 3), lambda: X, lambda: X.double()),
    ("tensor_shape", lambda x: x * x.shape[0], lambda: X, lambda: X[:1]),
    ("tensor_ndim", lambda x: x * x.ndim, lambda: X, lambda: X[0]),
    ("tensor_stride", lambda x: x * x.stride(0), lambda: X, lambda: X.t().contiguous().t()),
    ("tensor_contiguous", lambda x: x * (2 if x.is_contiguous() else 3), lambda: X, lambda: X.t()),
    ("tensor_requires_grad", lambda x: x * (2 if x.requires_grad else 3), lambda: X, lambda: X.clone().requires_grad_()),
    ("tensor_is_leaf", lambda x: x * (2 if x.is_leaf else 3), lambda: X.clone().requires_grad_(), lambda: X.clone().requires_grad_() * 1),
    ("tensor_grad_fn", lambda x: x * (2 if x.grad_fn is None else 3), lambda: X.clone().requires_grad_(),
     lambda: X.clone().requires_grad_() * 1),
    ("tensor_meta", lambda x: x * 2, lambda: X, lambda: X.to("meta")),
    ("tensor_is_meta", lambda x: x * (2 if x.is_meta else 3), lambda: X, lambda: X.to("meta")),
    ("tensor_subclass", lambda x: x * (2 if type(x) is Tensor else 3), lambda: X, lambda: X.as_subclass(Sub)),
    ("tensor_or_parameter", lambda x: x * (2 if isinstance(x, nn.Parameter) else 3), lambda: X.clone().requires_grad_(),
     lambda: nn.Parameter(X)),
    ("tensor_storage_offset", lambda x: x * x.storage_offset(), lambda: torch.ones(4, 3)[1:], lambda: torch.ones(5, 3)[2:]),
    ("tensor_is_view", lambda x: x * (2 if x._is_view() else 3), lambda: X.clone(), lambda: X.clone()[:]),
    ("tensor_base", lambda x: x * (2 if x._base is None else 3), lambda: X.clone(), lambda: X.clone()[:]),
    ("tensor_version", lambda x: x * x._version, lambda: X.clone().add_(1), lambda: X.clone().add_(1).add_(1)),
    ("tensor_sparse", lambda x: x * 2, lambda: X, lambda: X.to_sparse()),
    ("tensor_coalesced", lambda x: 2 if x.is_coalesced() else 3, lambda: torch.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (2,)),
     lambda: torch.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (2,)).coalesce()),
    ("tensor_retains_grad", lambda x: x * (2 if x.retains_grad else 3), lambda: X.clone().requires_grad_() * 1, lambda: retained()),
    ("tensor_conjugate", lambda x: x * (2 if x.is_conj() else 3), lambda: X + 1j, lambda: (X + 1j).conj()),
    ("tensor_inference", lambda x: x * (2 if x.is_inference() else 3), lambda: X.clone(), lambda: inferred()),
    ("tensor_value", lambda x: x * (2 if x.sum() > 30 else 3), lambda: X, lambda: X * 10),
    ("tensor_item", lambda x: x * x[0, 0].item(), lambda: X, lambda: X * 10),
    ("tensor_list", lambda x: x * x[0].tolist()[1], lambda: X, lambda: X * 10),
    ("tensor_as_index", lambda x: x[0] * [2, 3, 4][x[0, 0].int()], lambda: X - 1, lambda: X),
    ("tensor_as_index_of_a_tuple", lambda x: x[0] * (2, 3, 4)[x[0, 0].int()], lambda: X - 1, lambda: X),
    ("tensor_nonzero_count", lambda x: x.nonzero().shape[0] + x, lambda: X, lambda: X - 1),
    ("tensor_expanded", lambda x: x * x.stride(0), lambda: torch.ones(2, 3), lambda: torch.ones(3).expand(2, 3)),
]:
    CASES[_name] = lambda read=_read, before=_before, after=_after: made(lambda *a: read(*a), lambda: (before(),), lambda: (after(),))


def retained() -> Tensor:
    y = X.clone().requires_grad_() * 1
    y.retain_grad()
    return y


def inferred() -> Tensor:
    with torch.inference_mode():
        return X.clone()


@case
def tensor_data_assigned():
    w = torch.ones(3)
    old = w.data
    return lambda x: x * w.sum(0) + w.ndim, (X,), doing(lambda: setattr(w, "data", torch.ones(2, 3)), lambda: setattr(w, "data", old))


@case
def tensor_grad():
    w = torch.ones(3, requires_grad=True)
    return lambda x: x if w.grad is None else x + w.grad, (X,), doing(lambda: setattr(w, "grad", torch.ones(3)),
     lambda: setattr(w, "grad", None))


@case
def tensor_attribute():
    w = torch.ones(3)
    return lambda x: x * getattr(w, "_foo", 1), (X,), attr(w, "_foo", 5)


@case
def tensor_attribute_changed():
    w = torch.ones(3)
    w._foo = 2
    return lambda x: x * w._foo, (X,), attr(w, "_foo", 5)


@case
def tensor_method_shadowed():
    w = torch.ones(3)
    return lambda x: x + w.exp(), (X,), attr(w, "exp", lambda: 7)


@case
def tensor_requires_grad_set():
    w = torch.ones(3)
    return lambda x: x * w, (X,), doing(lambda: w.requires_grad_(True), lambda: w.requires_grad_(False))


@case
def tensor_name_of_a_class_patched():
    return lambda x: x.newly() if hasattr(x, "newly") else x, (X,), attr(Tensor, "newly", lambda self: self * 2)
