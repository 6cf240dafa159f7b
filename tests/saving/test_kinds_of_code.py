"""Kinds of code whose programs a second process runs without a capture, with gradients; and what of them may not change between the processes."""

from __future__ import annotations

import re

import pytest

from tests.saving.conftest import Project

MODULE = '''
import collections, dataclasses, enum, functools, itertools
from typing import NamedTuple
from torch.utils.checkpoint import checkpoint

class Pair(NamedTuple):
    a: torch.Tensor
    b: torch.Tensor = None

Point = collections.namedtuple("Point", "a b")

class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return 2 * ctx.saved_tensors[0] * g

class Scale(torch.autograd.Function):
    @staticmethod
    def forward(x, by):
        return x * by

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.by = inputs[1]

    @staticmethod
    def backward(ctx, g):
        return g * ctx.by, None

@torch.compiler.allow_in_graph
class Opaque(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g * 3

@torch.compiler.allow_in_graph
def opaque(x):
    return x.sin() + 1

@dataclasses.dataclass
class Record:
    x: torch.Tensor
    n: int = 3

class Color(enum.Enum):
    RED = 1

class Holder:
    @property
    def three(self):
        return 3

    @functools.cached_property
    def four(self):
        return 4

    @staticmethod
    def one_more(x):
        return x + 1

    @classmethod
    def two_more(cls, x):
        return x + 2

class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, fn, types, args=(), kwargs=None):
        return fn(*args, **(kwargs or {}))

HOLDER, LINEAR = Holder(), nn.Linear(4, 4)

def body(x):
    return x.sin() * 2

def under_a_mode(x):
    with Mode():
        return x + 1

def by_attributes(x):
    return HOLDER.one_more(HOLDER.two_more(x)) * HOLDER.three * HOLDER.four

def backward_of(x):
    y, pull = torch.func.vjp(torch.sin, x)
    return pull(torch.ones_like(y))

def by_hook(x):
    y = x * 2
    y.register_hook(lambda g: g * 2)
    return y

def by_reading_hook(x):
    y = x * 2
    y.register_hook(lambda g: g * HOLDER.three)
    return y

CASES = {
    "named tuple": lambda x: Pair(x + 1, x * 2),
    "collections.namedtuple": lambda x: Point(x + 1, x * 2),
    "_replace": lambda x: Pair(x)._replace(b=x * 2),
    "autograd function": lambda x: Square.apply(x) + 1,
    "setup_context": lambda x: Scale.apply(x, 2.0) + 1,
    "opaque autograd function": lambda x: Opaque.apply(x) + 1,
    "allow_in_graph": lambda x: opaque(x) * 2,
    "grad": lambda x: torch.func.grad(lambda t: t.sin().sum())(x),
    "hessian": lambda x: torch.func.hessian(lambda t: t.sin().sum())(x[0]),
    "jacrev": lambda x: torch.func.jacrev(torch.sin)(x[0]),
    "jacfwd": lambda x: torch.func.jacfwd(torch.sin)(x[0]),
    "jvp": lambda x: torch.func.jvp(torch.sin, (x,), (torch.ones_like(x),)),
    "vjp": backward_of,
    "vmap": lambda x: torch.func.vmap(lambda t: t.sin().sum())(x),
    "functional_call": lambda x: torch.func.functional_call(LINEAR, dict(LINEAR.named_parameters()), (x,)),
    "checkpoint": lambda x: checkpoint(body, x, use_reentrant=False),
    "cond": lambda x: torch.cond(x.sum() > 0, lambda t: t + 1, lambda t: t - 1, (x,)),
    "dataclass": lambda x: Record(x + 1, 4).x * 2,
    "enum": lambda x: x * Color.RED.value if Color.RED is Color(1) else x,
    "deque": lambda x: collections.deque([x, x + 1], maxlen=2)[0] + 1,
    "OrderedDict": lambda x: collections.OrderedDict(a=x + 1)["a"],
    "Counter": lambda x: x * collections.Counter("aab")["a"],
    "partial": lambda x: functools.partial(torch.add, x, alpha=2)(x),
    "accumulate": lambda x: sum(itertools.accumulate([x, x, x])),
    "sorted": lambda x: sorted([3, 1, 2], key=lambda v: -v)[0] * x,
    "descriptors": by_attributes,
    "function mode": under_a_mode,
    "hook": by_hook,
    "hook that reads a global": by_reading_hook,
}
for name, fn in CASES.items():
    # A function in a dict is found by no name.
    fn.__name__ = fn.__qualname__ = "case_" + "".join(c if c.isalnum() else "_" for c in name)
    globals()[fn.__name__] = fn

def gradients(fn, x):
    x = x.clone().requires_grad_()
    result = fn(x)
    sum(t.sum() for t in torch.utils._pytree.tree_leaves(result)).backward()
    return result, x.grad
'''
SAVE = """
for name, fn in CASES.items():
    compiled = fineline.compile(fn, backend="eager")
    for _ in range(2):
        gradients(compiled, x)
    assert fineline.save(compiled, f"{fn.__name__}.captures") == len(fineline.report(compiled).programs), name
"""
LOAD = """
for name, fn in CASES.items():
    compiled = fineline.load(f"{fn.__name__}.captures", fn)
    for _ in range(2):
        got, expected = gradients(compiled, x), gradients(fn, x)
        assert type(got[0]) is type(expected[0]), name
        torch.testing.assert_close(*map(torch.utils._pytree.tree_leaves, (got, expected)), msg=name)
    assert set(kinds(compiled)) == {"loaded"}, (name, fineline.report(compiled))
"""


def test_nothing_is_captured_again(project: Project) -> None:
    project.write(MODULE)
    project.run(SAVE)
    project.run(LOAD)


LATER = [
    ("autograd function", "return x * x", "return x * x * x"),
    ("setup_context", "ctx.by = inputs[1]", "ctx.by = inputs[1] + 1"),
    ("opaque autograd function", "return g * 3", "return g * 7"),
    ("named tuple", "b: torch.Tensor = None", "c: torch.Tensor = None"),
    ("_replace", "b: torch.Tensor = None", "c: torch.Tensor = torch.zeros(2); b: torch.Tensor = None"),
    ("collections.namedtuple", '"a b"', '"b a"'),
    ("descriptors", "return 4", "return 5"),
    ("functional_call", "nn.Linear(4, 4)", "nn.Linear(4, 4, bias=False)"),
]


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("autograd function", "return 2 * ctx", "return 5 * ctx"),
        *[pytest.param(*case, marks=pytest.mark.later) for case in LATER],
    ],
)
def test_changed_code_is_captured_again(project: Project, name: str, old: str, new: str) -> None:
    fn = f"case_{re.sub(r'[^a-zA-Z]', '_', name)}"
    project.write(MODULE)
    project.run(f"compiled = fineline.compile({fn}, backend='eager')\ngradients(compiled, x)\nfineline.save(compiled, 'case.captures')")
    assert MODULE.count(old) == 1
    project.write(MODULE.replace(old, new))
    project.run(f"""
        compiled = fineline.load('case.captures', {fn})
        got, expected = gradients(compiled, x), gradients({fn}, x)
        assert type(got[0]) is type(expected[0]) and getattr(got[0], "_fields", None) == getattr(expected[0], "_fields", None)
        torch.testing.assert_close(*map(torch.utils._pytree.tree_leaves, (got, expected)))
        assert "graph" in kinds(compiled), fineline.report(compiled)
        """)


SUBCLASSES = """
        import functools

        class Tagged(torch.Tensor):
            pass

        class Holder:
            class Inner(torch.Tensor):
                @classmethod
                def __torch_function__(cls, fn, types, args=(), kwargs=None):
                    return super().__torch_function__(fn, types, args, kwargs or {})

        @functools.lru_cache(maxsize=8)
        def factor(n, name):
            return n * len(name)

        def result(x): return (x * 2).as_subclass(Tagged)
        def inside(x): return (x * 2).as_subclass(Tagged).sin().as_subclass(torch.Tensor) + 1
        def nested(x): return x.exp().as_subclass(Holder.Inner) * 2
        def cached(x): return (x * factor(2, "abc")).as_subclass(Tagged) + factor(3, "a")
        ALL = [result, inside, nested, cached]
        """


def test_classes_of_tensors_and_caches_of_functions(project: Project) -> None:
    """The code of the classes reads a cache of PyTorch's, whose entry the other process makes; so it does with those of the user's."""
    project.write(SUBCLASSES)
    project.save_all()
    loading = """
        for fn in ALL:
            compiled = fineline.load(f"{fn.__name__}.captures", fn)
            found = compiled(x)
            print(*kinds(compiled), end=", ")
            expected = fn(x)
            assert type(found) is type(expected) and torch.equal(found, expected), fn
        """
    assert project.run(loading) == "loaded, loaded, loaded, loaded, "
    project.write(SUBCLASSES.replace("n * len(name)", "n + len(name)"))
    assert project.run(loading).endswith("loaded recompile graph, "), "its result is guarded"


EAGER_FUNCTIONS = """
        class Branches(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2 if x.sum() > 0 else x * 3

            @staticmethod
            def backward(ctx, grad):
                return grad * 2

        def handled(x):
            try:
                return Branches.apply(x.sin())
            except ValueError:
                return x

        @fineline.disable(recursive=False)
        def own_frame(x):
            return twice(x) + 1

        def twice(x): return x * 2
        WEIGHT = torch.ones(3, 4, requires_grad=True)
        def function(x): return handled(x * WEIGHT).cos() + 1
        def frame(x): return own_frame(x.sin()).cos()
        ALL = [function, frame]
        """


def test_what_captures_the_callees_of_an_eager_call_is_the_loading_regions(project: Project) -> None:
    """The forward of an autograd function, and the callees of a function whose own frame runs in Python."""
    project.write(EAGER_FUNCTIONS)
    project.save_all(programs=2)
    loading = """
        for fn in ALL:
            compiled = fineline.load(f"{fn.__name__}.captures", fn)
            assert torch.equal(compiled(x), fn(x)), fn
            print(*kinds(compiled), end=", ")
        """
    assert project.run(loading) == "loaded loaded, loaded loaded, "


def test_addresses_in_texts_are_those_of_the_process_that_loads(project: Project) -> None:
    """C's attributes and functions, and functions of a module, print with addresses that a program holds as constants; other texts each call makes."""
    project.write(
        """
        import functools

        class Plain:
            def method(self): pass

        def named(x): return x
        GLOBAL = Plain()

        def of_a_getter(x): return x + 1, str(torch.Tensor.shape.__get__)
        def of_a_builtin(x): return x + 1, str(torch.add)
        def of_a_global(x): return x + 1, f"{GLOBAL} {named}"
        def of_a_method(x): return x + 1, f"{GLOBAL.method}"
        def of_an_argument(x, o=GLOBAL, h=named): return x + 1, f"{o} {[o, 1]} {h}"
        def of_a_new_object(x):
            made = Plain()
            return x + 1, (f"{made} {functools.partial(made.method)}", made)

        ALL = [of_a_getter, of_a_builtin, of_a_global, of_a_method, of_an_argument, of_a_new_object]
        """
    )
    project.save_all()
    loading = """
        for fn in ALL:
            compiled = fineline.load(f"{fn.__name__}.captures", fn)
            for _ in range(2):
                found, text = compiled(x)
                if fn is of_a_new_object:
                    text, made = text
                    assert text == f"{made} {functools.partial(made.method)}"
                else:
                    assert text == fn(x)[1], (fn, text)
            print(*kinds(compiled), end=", ")
        """
    again = "loaded recompile graph, "
    assert project.run(loading) == f"{again * 3}loaded, {again}loaded, "
