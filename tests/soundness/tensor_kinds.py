"""What random programs do with special kinds of tensors: subclasses, wrappers, modes, transforms, arrays, equal functions.

Each kind is text with holes. {T} is an expression that gives a tensor, {A} one that gives an array, {I} a number, {B} a condition, {X} the name
of a tensor, {W} the name of an array; {u} is a new name, the same throughout the text; {new} and {array} are new names of a tensor and of
an array, which the statements behind may read. A line ``...`` stands for statements.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Kind:
    """What a kind of program adds to the grammar."""

    prelude: str = ""
    setup: tuple[str, ...] = ()  # statements, where the program's state is made
    state: tuple[str, ...] = ()  # ... and one of these
    given: tuple[str, ...] = ()  # ... and where the arguments of a call are: one of them, for each call
    tensors: tuple[str, ...] = ()
    arrays: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    statements: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()  # before a call
    tolerance: float = 0.0
    raw: bool = False  # the program compiles for itself, and calls what it compiled


SUBCLASSES = Kind(
    prelude='''\
class Kept(torch.Tensor):
    title = "kept"
    scale = 2

    def twice(self):
        return self * self.scale

    @property
    def total(self):
        return self.sum() + self.scale

    @classmethod
    def of(cls, value):
        return value.as_subclass(cls)


class KeptMore(Kept):
    scale = 3


class Doubling(torch.Tensor):
    factor = 2

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.add or func is torch.Tensor.add or func is torch.Tensor.__add__:
            plain = [a.as_subclass(torch.Tensor) if isinstance(a, torch.Tensor) else a for a in args]
            return torch.add(plain[0], plain[1] * cls.factor).as_subclass(cls)
        return super().__torch_function__(func, types, args, kwargs or {})


class Named(torch.Tensor):
    title = "-"

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(result, Named):
            result.title = "+".join([a.title for a in args if isinstance(a, Named)])[:20]
        return result


class Seeing(torch.Tensor):
    calls = 0

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls += 1
        LOG.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


class Plain(torch.Tensor):
    level = 1
    __torch_function__ = torch._C._disabled_torch_function_impl


class Unwilling(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.Tensor.mul or func is torch.Tensor.sub or any(kind is Doubling for kind in types):
            return NotImplemented
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))
''',
    state=(
        "state.t = state.t.as_subclass(Kept)", "state.ts[0] = state.ts[0].as_subclass(Named)", "state.o.v = state.o.v.as_subclass(Doubling)", "pass",
    ),
    given=(
        "x = x.as_subclass(Kept)", "x = x.as_subclass(KeptMore)", "x = x.as_subclass(Doubling)", "y = y.as_subclass(Named)",
        "x = x.as_subclass(Plain)",
        "x, y = x.as_subclass(Seeing), y.as_subclass(Kept)", "xs = [v.as_subclass(Kept) for v in xs]", "y = y.as_subclass(Unwilling)",
        "x = x.as_subclass(Kept)\n    x.level = place", "x = y = x.as_subclass(Named)", "pass",
    ),
    tensors=(
        "{T}.as_subclass(Kept)", "{T}.as_subclass(Doubling)", "{T}.as_subclass(Named)", "{T}.as_subclass(Plain)", "{T}.as_subclass(torch.Tensor)",
        "Kept.of({T})", "{T}.as_subclass(Kept).twice()", "({T} + {T}.as_subclass(KeptMore).total)", "torch.Tensor.add({T}, {T})",
        "torch.add({T}, {T})",
        "KeptMore.of({T}).twice()", "torch.Tensor._make_subclass(Kept, {T})", "{T}.as_subclass(type({T}))", "(1 - {T}.as_subclass(Doubling))",
        "torch.stack([{T}.as_subclass(Named), {T}])[0]", "{T}.as_subclass(Seeing).sin()", "torch.where({T}.as_subclass(Kept) > 0, {T}, {T})",
        "{T}.new_tensor([1.0, 2.0, 3.0]).expand_as({T})", "torch.zeros_like({T})", "{T}.as_subclass(Unwilling).add({T})",
        "{T}.detach().as_subclass(Kept)",
        "torch.nn.Parameter({T}.detach())",
    ),
    numbers=(
        "getattr({T}, 'level', 1)", "len(getattr({T}, 'title', ''))", "Seeing.calls % 5", "getattr({X}, 'scale', 0)", "len(type({T}).__name__) % 4",
        "Doubling.factor", "len({T}.as_subclass(Kept))",
    ),
    conditions=(
        "type({T}) is Kept", "isinstance({T}, Kept)", "hasattr({T}, 'title')", "getattr({T}, 'title', '') == 'kept'", "type({T}) == type({T})",
        "{T}.as_subclass(Named).title == '-'", "issubclass(type({T}), Doubling)", "torch.overrides.has_torch_function(({T},))",
        "hasattr({X}, 'level')",
    ),
    statements=(
        "{new} = {T}.as_subclass(Kept)", "{new} = {T}.as_subclass(Named)\n{new}.title = 'n'", "{X}.level = {I}", "{X}.title = 'other'",
        "Kept.scale = {I}",
        "with torch._C.DisableTorchFunctionSubclass():\n    ...", "with torch._C.DisableTorchFunction():\n    ...", "Doubling.factor = {I}",
        "{new} = {T}.as_subclass(Seeing)", "LOG.append(getattr({X}, 'title', None))", "LOG.append(type({T}).__name__)",
        "{new} = {T}.as_subclass(Doubling)",
        "state.t = {T}.as_subclass(Kept)", "{X}.__dict__['level'] = {I}", "{new} = {T}.as_subclass(Kept)\n{new} += {T}", "{X}.__class__ = Kept",
        "try:\n    {new} = {T}.as_subclass(Unwilling) * {T}.as_subclass(Unwilling)\nexcept TypeError:\n    {new} = {T}",
    ),
    changes=(
        "setattr(Kept, 'title', 'changed')", "setattr(Kept, 'scale', 5)", "setattr(KeptMore, 'scale', 1)",
        "setattr(Kept, 'twice', lambda self: self * 7)",
        "setattr(Doubling, 'factor', 4)", "setattr(Kept, '__torch_function__', Doubling.__dict__['__torch_function__'])",
        "setattr(Doubling, '__torch_function__', Plain.__torch_function__)", "delattr(Doubling, '__torch_function__')",
        "setattr(state, 't', state.t.as_subclass(Doubling))", "setattr(state, 't', state.t.as_subclass(torch.Tensor))",
        "setattr(state.t, 'level', 4)",
        "setattr(Kept, 'total', property(lambda self: self.mean()))", "setattr(state.t, 'title', 'own')", "setattr(KeptMore, '__bases__', (Kept,))",
        "setattr(Kept, 'sin', lambda self: self.cos())", "setattr(state.o, 'v', state.o.v.as_subclass(Named))", "setattr(Plain, 'level', 3)",
    ),
)  # fmt: skip

WRAPPERS = Kind(
    prelude='''\
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_map_only


class Scaled(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl
    offset = 0

    @staticmethod
    def __new__(cls, inner, factor):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, device=inner.device, storage_offset=inner.storage_offset(),
            requires_grad=inner.requires_grad,
        )

    def __init__(self, inner, factor):
        self.inner, self.factor = inner, factor

    def __repr__(self):
        return f"{type(self).__name__}({self.inner!r}, {self.factor})"

    def __tensor_flatten__(self):
        return ["inner"], self.factor

    @classmethod
    def __tensor_unflatten__(cls, inner, context, size, stride):
        return cls(inner["inner"], context)

    def plain(self):
        return self.inner * self.factor

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        factors = [a.factor for a in args if isinstance(a, Scaled)] or [1]
        bare = tree_map_only(Scaled, lambda v: v.inner, (args, kwargs))
        result = func(*bare[0], **bare[1])
        if func is torch.ops.aten.sin.default:
            result = result * factors[0] + cls.offset
        made = tree_map_only(torch.Tensor, lambda v: cls(v, factors[0]), result)
        return return_and_correct_aliasing(func, args, kwargs, made)


class Functional(Scaled):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.cos or func is torch.Tensor.cos:
            return args[0].sin() * args[0].factor
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))
''',
    state=(
        "state.t = Scaled(state.t, 2)", "state.o.v = TwoTensor(state.o.v, state.o.v * 2)", "state.t = Scaled(TwoTensor(tensor(81), tensor(82)), 3)",
        "state.t = Functional(state.t, 2)", "state.ts[:] = [Scaled(v, 1) for v in state.ts]", "pass",
    ),
    given=(
        "x = Scaled(x.detach(), place % 2 + 1)", "x = TwoTensor(x.detach(), y * 2)", "y = Scaled(TwoTensor(y, y + 1), 2)",
        "y = TwoTensor(Scaled(y, 1), Scaled(y, place))", "x, y = Scaled(x.detach(), 2), Scaled(y, 3)", "xs = [Scaled(v, 2) for v in xs]",
        "x = Functional(x.detach(), 2)", "x = Scaled(x.detach(), 2).requires_grad_()", "x = y = TwoTensor(y, y)", "pass",
    ),
    tensors=(
        "Scaled({T}, {I})", "TwoTensor({T}.detach(), {T}.detach())", "torch.sin({T})", "torch.cos({T})", "{T}.sin()", "{T}.cos()",
        "getattr({T}, 'inner', {X})", "getattr({T}, 'a', {X})", "({T}.plain() if isinstance({X}, Scaled) else {T})", "Functional({T}, {I})",
        "torch.zeros_like({T})", "torch.stack([{T}, {T}]).sum(0)", "{T}.view(-1, 3)", "{T}[:1].expand({T}.shape)",
        "{T}.transpose(0, 1).transpose(0, 1)",
        "{T}.mean(0, keepdim=True).expand_as({T})", "{T}.to(torch.float64)", "Scaled(Scaled({T}, 2), {I})",
    ),
    numbers=(
        "getattr({T}, 'factor', 1)", "Scaled.offset", "len(type({T}).__name__) % 4", "{T}.size(0)",
        "getattr(getattr({X}, 'inner', None), 'factor', 2)",
    ),
    conditions=("isinstance({T}, Scaled)", "type({T}) is TwoTensor", "hasattr({X}, 'inner')", "{T}.requires_grad", "getattr({X}, 'factor', 1) > 1"),
    statements=(
        "{new} = Scaled({T}, {I})", "{new} = TwoTensor({T}.detach(), {T}.detach())", "{X}.factor = {I}", "Scaled.offset = {I}",
        "state.t = Scaled({T}, {I})",
        "{new} = Scaled({T}.detach(), {I})\n{new}.mul_(2)", "if isinstance({X}, Scaled):\n    {X}.inner.mul_(0.5)", "{X}.add_({T}.detach())",
        "if isinstance({X}, Scaled):\n    {X}.inner = {T}.detach()", "if isinstance({X}, TwoTensor):\n    {X}.a.add_(1)",
        "{new} = {X}[:1]\n{new}.mul_(2)",
        "LOG.append(getattr({X}, 'factor', None))", "LOG.append(type({T}).__name__)", "with torch.no_grad():\n    {X}.copy_({T})",
        "{u}, {u}_context = {X}.__tensor_flatten__()\nLOG.append(({u}, {u}_context))",
    ),
    changes=(
        "setattr(state.t, 'factor', 4)", "setattr(state.t, 'inner', tensor(83))", "setattr(state, 't', Scaled(tensor(84), 5))",
        "setattr(Scaled, 'offset', 2)",
        "setattr(state, 't', TwoTensor(tensor(85), tensor(86)))", "setattr(state.t, 'a', tensor(87))",
        "setattr(state.t, 'inner', TwoTensor(tensor(88), tensor(89)))",
        "setattr(state, 't', Scaled(tensor(84, True), 2))", "setattr(state, 't', Functional(tensor(84), 2))",
        "setattr(Scaled, 'plain', lambda self: self.inner - 1)",
        "setattr(state.t.inner, 'factor', 6)", "setattr(Functional, '__torch_function__', torch._C._disabled_torch_function_impl)",
        "state.t.inner.add_(1)", "setattr(state, 't', Scaled(tensor(84).double(), 2))", "setattr(state.o, 'v', Scaled(tensor(81), 1))",
        "setattr(state.t, '__class__', Functional)",
    ),
)  # fmt: skip

MODES = Kind(
    prelude='''\
from torch.overrides import TorchFunctionMode


class Scaling(TorchFunctionMode):
    offset = 0

    def __init__(self, factor=2):
        super().__init__()
        self.factor, self.seen = factor, 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen += 1
        if func is torch.sin or func is torch.Tensor.sin:
            return torch.cos(*args) * self.factor + self.offset
        return func(*args, **(kwargs or {}))


class Told(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        LOG.append(getattr(func, "__name__", "?"))
        return func(*args, **(kwargs or {}))


class Making(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in (torch.zeros, torch.ones, torch.rand):
            return func(*args, **(kwargs or {})) + 1
        return func(*args, **(kwargs or {}))


class Picky(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.tanh:
            raise Oops("no tanh")
        return func(*args, **(kwargs or {}))
''',
    setup=("state.mode = Scaling()",),
    state=("state.around.append(state.mode)", "state.around.append(torch.device('cpu'))", "state.around[:] = [Told(), state.mode]", "pass", "pass"),
    tensors=(
        "torch.sin({T})", "{T}.sin()", "torch.zeros(len(x), 3)", "torch.ones({T}.shape)", "torch.rand(len(x), 3)", "{T}.tanh()",
        "torch.tensor([1.0, 2.0, 3.0]).expand(len(x), 3)", "torch.arange(3).expand(len(x), 3)", "{T}.to(torch.get_default_device())",
        "torch.full((len(x), 3), {I})",
        "torch.nn.functional.relu({T})", "{T}.new_zeros(3)", "torch.as_tensor({I}).expand({T}.shape)", "torch.eye(3)[:1].expand(len(x), 3)",
    ),
    numbers=(
        "state.mode.seen % 5", "state.mode.factor", "Scaling.offset", "len(state.around)", "len(torch.overrides._get_current_function_mode_stack())",
    ),
    conditions=(
        "{T}.is_meta", "torch.get_default_device().type == 'cpu'", "state.mode in state.around",
        "torch.overrides.is_tensor_method_or_property(torch.Tensor.sin)",
    ),
    statements=(
        "with Scaling({I}):\n    ...", "with state.mode:\n    ...", "with Told():\n    ...", "with Making():\n    ...",
        "with Picky(), Scaling({I}):\n    ...",
        "with torch.device('cpu'):\n    ...", "with torch.device('meta'):\n    LOG.append(torch.zeros({I}).device.type)",
        "with torch.device('meta'):\n    ...", "state.mode.factor = {I}", "Scaling.offset = {I}",
        "with torch._C.DisableTorchFunctionSubclass():\n    ...",
        "with torch._C.DisableTorchFunction():\n    ...", "{u} = Scaling({I})\n{u}.__enter__()\n...\n{u}.__exit__(None, None, None)",
        "try:\n    with Picky():\n        ...\n        {new} = {T}.tanh()\nexcept Oops:\n    {new} = {T}", "LOG.append(torch.empty(0).device.type)",
        "with contextlib.ExitStack() as {u}:\n    {u}.enter_context(state.mode)\n    ...", "torch.set_default_device('cpu')",
        "torch.set_default_device(None)",
        "with Told() as {u}, state.mode:\n    ...\n    graph_break()\n    ...",
        "def {u}(v):\n    with Scaling(3):\n        yield v.sin()\n        yield torch.sin(v)\nfor {new} in {u}({T}):\n    ...",
    ),
    changes=(
        "state.around.append(state.mode)", "state.around.append(Scaling(3))", "state.around.append(Told())", "state.around.clear()",
        "state.around.insert(0, Making())", "state.around.append(torch.device('cpu'))", "state.around.append(torch.device('meta'))",
        "state.around.reverse()",
        "setattr(state.mode, 'factor', 4)", "setattr(Scaling, 'offset', 3)", "torch.set_default_device('cpu')", "torch.set_default_device('meta')",
        "torch.set_default_device(None)", "setattr(Scaling, '__torch_function__', Told.__torch_function__)", "setattr(state.mode, '__class__', Told)",
        "state.around.append(Picky())", "setattr(state, 'mode', Scaling(6))", "state.around.append(torch.no_grad())",
        "state.around.append(torch._C.DisableTorchFunction())",
    ),
    raw=True,
)  # fmt: skip

TRANSFORMS = Kind(
    # The decompositions warn, once in a process.
    prelude="from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap\n"
    "import torch._decomp.decompositions_for_jvp\nfrom torch._functorch.vmap import lazy_load_decompositions\n\nlazy_load_decompositions()\n",
    tensors=(
        "vmap(lambda v: v * {I} + {T}[0])({T})", "vmap(lambda v, w: v * w.sin(), in_dims=(0, None))({T}, {T}[0])", "vmap(torch.sin)({T})",
        "vmap(lambda v: v.sum() + v, in_dims=1, out_dims=1)({T})", "grad(lambda v: (v * {T}).sum())({T})", "grad(lambda v: v.sin().sum() * {I})({T})",
        "vjp(lambda v: v * {T}, {T})[1]({T})[0]", "vjp(torch.sin, {T})[0]", "jvp(lambda v: v.sin() * {T}, ({T},), ({T},))[1]",
        "jvp(torch.tanh, ({T},), ({T},))[0]",
        "jacrev(lambda v: (v * {T}).sum(0))({T}).sum(0)", "jacfwd(lambda v: v.sin().sum(0) * {I})({T}).sum(0)",
        "vmap(grad(lambda v: (v.sin() * {I}).sum()))({T})",
        "vmap(vmap(lambda v: v * {I}))({T})", "grad(lambda v: grad(lambda w: (w ** 3 * {I}).sum())(v).sum())({T})",
        "vmap(jacrev(torch.sin))({T}).sum(-1)",
        "grad_and_value(lambda v: (v * v).sum())({T})[0]", "grad(lambda v, w: (v * w).sum(), argnums=1)({T}, {T})",
        "hessian(lambda v: (v ** 3).sum())({T}[0]) [:1].expand(len(x), 3)",
        "vmap(lambda v: torch.where(v > 0, v, {T}[0]))({T})", "vmap(lambda v: v + torch.rand(3), randomness='different')({T})",
        "linearize(torch.sin, {T})[1]({T})",
        "grad(lambda v: vmap(lambda w: w.sin() * {I})(v).sum())({T})", "vmap(lambda v: v * cell)({T})",
        "vmap(lambda v: v.clone().mul_(state.n))({T})",
        "grad(lambda v: (v * state.t).sum())({T})", "vmap(lambda d: d['a'] + d['b'])({{'a': {T}, 'b': {T}}})",
        "grad(lambda v: (v.detach() * v + v).sum())({T})",
    ),
    numbers=("int(grad(lambda v: v * {I})(torch.tensor(2.0)).item())", "len(vjp(torch.sin, {T}))"),
    conditions=("grad(lambda v: (v * v).sum())({T}).sum() > 0", "vmap(lambda v: v.sum())({T}).shape[0] > {I}"),
    statements=(
        "def {u}(v):\n    ...\n    return (v * {T}).sum()\n{new} = grad({u})({T})",
        "def {u}(v):\n    ...\n    return v * {I} + {T}[0]\n{new} = vmap({u})({T})",
        "def {u}(v):\n    LOG.append({I})\n    return v.sin() * {T}\n{new}, {u}_back = vjp({u}, {T})\n{new} = {u}_back({T})[0] + {new}",
        "def {u}(v):\n    nonlocal cell\n    cell = (cell + 1) % 7\n    return (v * v).sum() * cell\n{new} = grad({u})({T})",
        "def {u}(v):\n    if {B}:\n        return v * 2\n    return v + {T}\n{new} = jvp({u}, ({T},), ({T},))[1]",
        "{u}, {u}_in = [], torch.ones(3)\n{new} = vmap(lambda v: ({u}.append(1), v * {u}_in)[1])({T})\nLOG.append(len({u}))",
        "{new} = vmap(lambda v: (graph_break(), v * {I})[1])({T})",
        "try:\n    {new} = grad(lambda v: v * 2)({T})\nexcept RuntimeError as error:\n    {new} = {T}",
        "with torch.no_grad():\n    {new} = grad(lambda v: (v * {T}).sum())({T})",
        "try:\n    {new} = vmap(lambda v: v.item())({T})\nexcept RuntimeError:\n    {new} = {T}",
        "{u} = vmap(grad(lambda v, w: (v * w).sum()), in_dims=(0, None))\nfor {u}_i in range(2):\n    {new} = {u}({T}, {T}[0])",
        "def {u}(v):\n    raise_oops({I})\ntry:\n    {new} = vmap({u})({T})\nexcept Oops:\n    {new} = {T}",
        "{u} = state.o\n{new} = grad(lambda v: {u}.m(v).sum())({T})",
    ),
)  # fmt: skip

ARRAYS = Kind(
    tolerance=1e-5,  # PyTorch adds numbers up in another order than NumPy
    # NumPy's functions warn of what is no number; PyTorch's do not.
    prelude="import warnings\n\nwarnings.simplefilter('ignore', RuntimeWarning)\n",
    state=("pass",),
    given=(
        "d['q'] = x.detach().numpy()", "for state in MADE:\n        state.a = y.numpy()", "for state in MADE:\n        state.a = d['b'].numpy()",
        "pass", "pass", "x = x.double()",
    ),
    arrays=(
        "{T}.detach().numpy()", "{T}.detach().numpy()", "{X}.detach().numpy()", "({A} + {A})", "({A} * {I})", "({A} - {A}.mean())",
        "{A}.astype(np.float64)",
        "np.where({A} > 0, {A}, {A})", "{A}[::-1]", "{A}.T.T", "np.sin({A})", "(np.float64(1.5) * {A})", "(np.float32(1.5) * {A})", "{A}.copy()",
        "(np.arange(len(x))[:, None] * {A})", "{A}.reshape(-1, 3)", "np.concatenate([{A}, {A}])[:len(x)]", "{A}[np.arange(len(x))]",
        "{A}.astype(np.int32)",
        "({A} / 2)", "({A} // 2)", "np.stack([{A}, {A}]).mean(0)", "np.maximum({A}, {A})", "np.zeros_like({A})", "np.ones((len(x), 3))", "({A} ** 2)",
        "{A}.clip(-1, 1)", "np.broadcast_to({A}[:1], {A}.shape)", "({A} > {I})", "{A}.cumsum(0)", "np.asarray({A}, dtype=np.float32)", "state.a",
        "({A} @ np.eye(3))",
        "({A} % 2)", "-{A}", "abs({A})", "np.round({A}, 1)", "np.full({A}.shape, {I})", "np.exp(-{A})", "({A} + {A}[0])",
        "({A} + {A}.sum(1, keepdims=True))",
        "np.array({A})", "{A}.view()", "{A}.ravel().reshape({A}.shape)", "np.sort({A}, axis=0)", "({I} - {A})", "({A} + np.int64({I}))",
        "np.square({A})",
    ),
    tensors=(
        "torch.from_numpy({A})", "torch.as_tensor({A})", "torch.tensor({A})", "torch.from_numpy({A}.copy()).float()", "({T} * {A}.mean())",
        "({T} + torch.from_numpy({A}.copy()))",
        "torch.as_tensor({A}, dtype=torch.float32)", "({T} * float({A}.max()))", "torch.from_numpy({W})", "({T} + {A}[0, 1])", "torch.asarray({A})",
    ),
    numbers=(
        "int({A}.sum()) % 5", "{A}.shape[0]", "len({A})", "{A}.ndim", "int({A}.argmax()) % 3", "{A}.size // 3", "{A}.itemsize",
        "int(({A} > 0).sum())", "{A}.strides[1]",
    ),
    conditions=(
        "({A} > 0).any()", "{A} is {A}", "{A}.dtype == np.float32", "bool(({A} >= 0).all())", "isinstance({A}, np.ndarray)", "{A}.flags.writeable",
        "np.shares_memory({A}, {A})", "{A}.sum() > 0", "{A}[0, 0] < {A}[0, 1]",
    ),
    statements=(
        "{array} = {A}", "{array} = {X}.detach().numpy()", "{array} = {X}.detach().numpy()\n{array} += 1", "{W}[0] = {I}", "{W}[:, 1] *= 2",
        "{W}[1:] = {A}[1:]",
        "{W}[{A} > 0] = 0", "np.add({A}, 1, out={W})", "{W}.fill({I})", "LOG.append({A}.mean())", "LOG.append({A}[0, 1].item())",
        "LOG.append({A}.dtype.name)",
        "{array} = {X}.detach().numpy()\n{new} = torch.from_numpy({array})\n{new}.add_(1)", "state.a = {A}", "state.a[0] = {A}[0]", "{W} -= {A}",
        "{W} = {W} * {I}",
        "{array} = {T}.detach().numpy()[1:]\n{array} *= 2", "for {u} in {A}:\n    LOG.append({u}.sum())",
        "{array}, {u} = {A}, {A}\n{array} = {array} + {u}",
        "{X}.copy_(torch.from_numpy({A}.copy()))", "{array} = {A}\ngraph_break()\n{array} = {array} + 1", "LOG.append(({A}).tolist()[0])",
        "LOG.append({A}.max())",
        "{W}.sort(axis=0)", "{u} = {A}.sum(0)\nLOG.append({u})", "{W}.resize((1, 3))",
        "{array} = {X}.detach().numpy()\n{X}.mul_(2)\nLOG.append({array}[0, 0])",
        "{array} = np.empty((len(x), 3), np.float32)\n{array}[:] = {A}", "{u} = np.float32({I})\n{array} = {A} * {u}",
    ),
    changes=(
        "state.a.fill(2)", "setattr(state, 'a', np.ones((ROWS, 3)))", "setattr(state, 'a', state.a.astype(np.int64))",
        "setattr(state, 'a', tensor(90).numpy())",
        "setattr(state, 'a', state.t.detach().numpy())", "state.a.__setitem__(0, 5)", "setattr(state, 'a', np.asfortranarray(state.a))",
        "setattr(state, 'a', state.a[::-1])",
        "setattr(state, 'a', np.float32(state.a))", "setattr(state, 't', torch.from_numpy(np.ones((ROWS, 3), np.float32)))",
    ),
)  # fmt: skip

# The function is made twice from one ``def`` statement, with another closure, and what is compiled is called in turn.
EQUALS = Kind(
    changes=(
        "setattr(Base, '__call__', lambda self, v: v * self.n)", "setattr(state.o, 'm', lambda a, k=1: a * 5)", "setattr(Base, 'k', 9)",
        "setattr(state.o, '__class__', Sub)", "setattr(state, 'd', dict(b=tensor(91)))", "setattr(state, 'ts', [state.t, state.t])",
        "setattr(state, 't', state.ts[0])",
        "setattr(state, 'o', twin_of(state).o)", "setattr(state, 't', twin_of(state).t)", "setattr(state, 'items', twin_of(state).items)",
        "setattr(fn, '__defaults__', (2, 0.25))",
        "setattr(fn, '__code__', fn.__code__.replace(co_name='other'))", "setattr(state, 't', state.t.double())",
        "setattr(state, 't', state.t.t().contiguous().t())",
    ),
    raw=True,
)  # fmt: skip

KINDS = {"subclasses": SUBCLASSES, "wrappers": WRAPPERS, "modes": MODES, "transforms": TRANSFORMS, "arrays": ARRAYS, "equals": EQUALS}
PLAIN = "plain"  # a program of no special kind
