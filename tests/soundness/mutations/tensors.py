"""Guard mutations of tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.soundness.mutations.cases import Cases, X, attr, doing, made

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
    ("tensor_as_size", lambda n: X.repeat(n, 1), lambda: torch.tensor(2), lambda: torch.tensor(3)),
    ("tensor_as_bound", lambda n: X.sin()[:n] * 2, lambda: torch.tensor(2), lambda: torch.tensor(1)),
    ("tensor_nonzero_count", lambda x: x.nonzero().shape[0] + x, lambda: X, lambda: X - 1),
    ("stride_of_one_row", lambda x: x * x.stride(0), lambda: torch.ones(1, 3), lambda: torch.ones(1, 5)[:, :3]),
    ("stride_of_one_row_of_a_result", lambda x: x * torch.detach(x).stride(0), lambda: torch.ones(1, 3), lambda: torch.ones(1, 5)[:, :3]),
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
def tensor_as_size_is_written():
    n = torch.tensor(2)
    return lambda x: x.sin().repeat(n, 1), (X,), doing(lambda: n.add_(1), lambda: n.sub_(1))


@case
def tensor_as_size_is_written_through_a_view():
    held = torch.tensor([2, 5])
    n = held[0]
    return lambda x: x.sin().repeat(n, 1), (X,), doing(lambda: held.add_(1), lambda: held.sub_(1))


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


def hooked(t: Tensor) -> Tensor:
    t.register_hook(lambda g: g * 7)
    return t


def accumulated(t: Tensor) -> Tensor:
    t.register_post_accumulate_grad_hook(lambda p: None)
    return t


def graded(t: Tensor, grad: Tensor | None) -> Tensor:
    t.grad = grad
    return t


def attempt(get: Any, other: Any) -> Any:
    try:
        return get()
    except (RuntimeError, AttributeError, TypeError):
        return other


def written(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    return y + 1


def leaf(t: Tensor = X) -> Tensor:
    return t.clone().requires_grad_()


# All arguments are made anew, before and after.
for _name, _read, _before, _after in [
    ("negative_bit", lambda x: x * (2 if x.is_neg() else 3), lambda: (X.clone(),), lambda: (torch._neg_view(X),)),
    ("negative_bit_used", lambda x: x + 1, lambda: (X.clone(),), lambda: (torch._neg_view(X),)),
    ("conjugate_bit_used", lambda x: x.imag * 2, lambda: (X + 1j,), lambda: ((X + 1j).conj(),)),
    ("layout_read", lambda x: 2 if x.layout is torch.strided else 3, lambda: (X,), lambda: (X.to_sparse(),)),
    ("layout_compressed", lambda x: 2 if x.layout is torch.sparse_csr else 3, lambda: (X.to_sparse(),), lambda: (X.to_sparse_csr(),)),
    ("channels_last", lambda x: x * (2 if x.is_contiguous(memory_format=torch.channels_last) else 3), lambda: (torch.ones(1, 2, 3, 3),),
     lambda: (torch.ones(1, 2, 3, 3).to(memory_format=torch.channels_last),)),
    ("order_of_dimensions", lambda x: x * x.dim_order()[0] + 1, lambda: (torch.ones(2, 3),), lambda: (torch.ones(3, 2).t(),)),
    ("size_of_a_stride", lambda x: x * x.stride()[0], lambda: (torch.ones(2, 3),), lambda: (torch.ones(2, 5)[:, :3],)),
    ("nested_in_a_list", lambda c: c[0] * c[0].shape[0], lambda: ([X],), lambda: ([X[:1]],)),
    ("gradient_set", lambda x: x * (2 if x.grad is None else 3), lambda: (leaf(),), lambda: (graded(leaf(), X),)),
    ("gradient_value", lambda x: x + x.grad, lambda: (graded(leaf(), X),), lambda: (graded(leaf(), X + 1),)),
    ("gradient_shape", lambda x: x.sum() + x.grad.shape[0], lambda: (graded(leaf(), X),), lambda: (graded(leaf(X[:1]), X[:1]),)),
    ("gradient_requires_grad", lambda x: x * (2 if x.grad.requires_grad else 3), lambda: (graded(leaf(), X),), lambda: (graded(leaf(), leaf()),)),
    ("gradient_is_another_input", lambda x, g: x * (2 if x.grad is g else 3), lambda: (graded(leaf(), X), X), lambda: (graded(leaf(), X), X + 0)),
    ("hook_on_an_input", lambda x: (x * 2).sum(), lambda: (leaf(),), lambda: (hooked(leaf()),)),
    ("hooks_of_an_input_read", lambda x: x * (2 if x._backward_hooks is None else 3), lambda: (leaf(),), lambda: (hooked(leaf()),)),
    ("later_hooks_of_an_input_read", lambda x: x * (2 if x._post_accumulate_grad_hooks is None else 3), lambda: (leaf(),), lambda: (accumulated(leaf()),)),
    ("class_assigned", lambda x: x * (2 if type(x) is Tensor else 3), lambda: (X.clone(),), lambda: (classed(),)),
    ("attribute_in_dict", lambda x: x * len(vars(x)) + 1, lambda: (X.clone(),), lambda: (tagged(),)),
    ("attribute_asked_for", lambda x: x * (2 if hasattr(x, "_tag") else 3), lambda: (X.clone(),), lambda: (tagged(),)),
    ("output_number", lambda x: x * x.output_nr, lambda: (leaf().unbind()[0],), lambda: (leaf().unbind()[1],)),
    ("name_of_history", lambda x: x * len(x.grad_fn.name()), lambda: (leaf() * 2,), lambda: (leaf().exp(),)),
    ("base_is_an_input", lambda x, b: x * (2 if x._base is b else 3), lambda: view_and_base(True), lambda: view_and_base(False)),
    ("write_seen_through_an_alias", lambda x, y: written(x, y), lambda: (X.clone(), X.clone()), lambda: aliases(lambda t: t[:])),
    ("write_seen_through_a_transpose", lambda x, y: written(x, y), lambda: (X.clone(), X.t().clone()), lambda: aliases(lambda t: t.t())),
    ("write_seen_through_detached", lambda x, y: written(x, y), lambda: (X.clone(), X.clone()), lambda: aliases(lambda t: t.detach())),
    ("write_into_overlapping_memory", lambda x: attempt(lambda: x.add_(1).sum(), 5), lambda: (torch.ones(2, 3),), lambda: (torch.ones(1, 3).expand(2, 3),)),
    ("write_into_a_leaf", lambda x: attempt(lambda: x.add_(1).sum(), 5), lambda: (X.clone(),), lambda: (leaf(),)),
    ("write_into_a_view_of_a_leaf", lambda x: attempt(lambda: x.add_(1).sum(), 5), lambda: (X[:1].clone(),), lambda: (leaf()[:1],)),
    ("size_zero", lambda x: x.sum() + x.numel(), lambda: (X,), lambda: (X[:0],)),
    ("no_dimensions", lambda x: attempt(lambda: len(x), 7) * x, lambda: (X[0],), lambda: (X[0, 0],)),
    ("contents_told", lambda x: x.shape[0] * len(x.tolist()), lambda: (X,), lambda: (X[:1],)),
    ("item_size", lambda x: x.element_size(), lambda: (X,), lambda: (X.double(),)),
    ("kind_of_number", lambda x: x * (2 if x.is_floating_point() else 3), lambda: (X,), lambda: (X.int(),)),
    ("kind_complex", lambda x: x * (2 if x.is_complex() else 3), lambda: (X,), lambda: (X + 1j,)),
    ("promotion", lambda x, y: x + y, lambda: (X, X), lambda: (X, X.double())),
    ("promotion_of_scalars", lambda x, y: x.int() + y, lambda: (X, torch.tensor(1)), lambda: (X, torch.tensor(1.0))),
    ("promotion_of_dimensions", lambda x, y: x.half() + y, lambda: (X, torch.tensor(1.0)), lambda: (X, torch.tensor([1.0]))),
    ("broadcast", lambda x, y: (x + y).shape[0] * x.sum(), lambda: (X[:1], X[:1]), lambda: (X[:1], X)),
    ("device_read", lambda x: 2 if x.device.type == "cpu" else 3, lambda: (X,), lambda: (X.to("meta"),)),
    ("storage_size", lambda x: x * (x.untyped_storage().nbytes() // 24), lambda: (X.clone(),), lambda: (torch.cat([X, X])[:2],)),
    ("zero_tensor_bit", lambda x: x * (2 if x._is_zerotensor() else 3), lambda: (X.clone(),), lambda: (torch._efficientzerotensor(2, 3),)),
    ("shared_memory", lambda x: x * (2 if x.is_shared() else 3), lambda: (X.clone(),), lambda: (X.clone().share_memory_(),)),
    ("quantized", lambda x: 2 if x.is_quantized else 3, lambda: (X,), lambda: (torch.quantize_per_tensor(X, 0.1, 0, torch.quint8),)),
]:
    CASES[f"fresh_{_name}"] = lambda read=_read, before=_before, after=_after: made(lambda *a: read(*a), before, after)


def classed() -> Tensor:
    t = X.clone()
    t.__class__ = Sub
    return t


def tagged() -> Tensor:
    t = X.clone()
    t._tag = 1
    return t


def view_and_base(same: bool) -> tuple[Tensor, Tensor]:
    base = X.clone()
    return base[:1], base if same else X.clone()


def aliases(view: Any) -> tuple[Tensor, Tensor]:
    t = X.clone()
    return t, view(t)


HELD = torch.ones(3)


@case
def global_that_is_an_argument():
    return made(lambda x, a: x * (2 if a is HELD else 3), lambda: (X, torch.ones(3)), lambda: (X, HELD))


@case
def data_swapped_to_another_dtype():
    w = nn.Parameter(torch.ones(3))
    old = w.data
    return lambda x: x * w.detach(), (X,), doing(lambda: setattr(w, "data", torch.ones(3, dtype=torch.float64)), lambda: setattr(w, "data", old))


@case
def class_of_a_closure_assigned():
    w = torch.ones(3)
    return lambda x: x * (2 if type(w) is Tensor else 3), (X,), doing(lambda: setattr(w, "__class__", Sub), lambda: setattr(w, "__class__", Tensor))


@case
def parameter_resized():
    w = torch.ones(3)
    return lambda x: x.sum() * w.numel(), (X,), doing(lambda: w.resize_(6), lambda: w.resize_(3))


@case
def closure_transposed():
    w = torch.arange(9.0).reshape(3, 3)
    return lambda x: x @ w, (X,), doing(lambda: w.t_(), lambda: w.t_())


@case
def hook_on_a_closure():
    w = torch.ones(3, requires_grad=True)
    handles = []
    return lambda x: x * w, (X,), doing(lambda: handles.append(w.register_hook(lambda g: g * 7)), lambda: handles.pop().remove())
