"""Selectors mean what they stand for: names by any way that leads to a thing, paths by any spelling, classes with all that they define."""

from __future__ import annotations

import os
import sys

import pytest
import torch

import fineline
from fineline import Policy
from fineline.errors import BadRule

X = torch.ones(2)

IMPL = """import functools
import torch

def rope(x): return x.cos()
def outer(x): return x.cos()
alias = rope
scale = lambda x: x * 2
cached = functools.lru_cache(None)(lambda n: n + 1)

class Base:
    def run(self, x): return x.cos()
    @classmethod
    def make(cls, x): return x.cos()
    @staticmethod
    def plain(x): return x.cos()
    @property
    def weight(self): return torch.ones(2).cos()
    @functools.cached_property
    def once(self): return torch.ones(2).cos()
    class Inner:
        def run(self, x): return x.cos()
        @staticmethod
        def plain(x): return x.cos()

class Child(Base): pass
class Sibling(Base): pass
class Called:
    def __call__(self, x): return x.cos()
child, called = Child(), Called()

class Block(torch.nn.Module):
    def forward(self, x): return x.cos()
class Wide(Block): pass
"""
PUBLIC = "from pk_names.impl import *\nfrom pk_names.impl import rope as turned, Base as Root\n"


@pytest.fixture
def package(tmp_path, monkeypatch):
    (tmp_path / "pk_names").mkdir()
    (tmp_path / "pk_names" / "impl.py").write_text(IMPL)
    (tmp_path / "pk_names" / "__init__.py").write_text(PUBLIC)
    os.symlink(tmp_path / "pk_names", tmp_path / "link")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield __import__("pk_names")
    for name in [name for name in sys.modules if name.partition(".")[0] == "pk_names"]:
        del sys.modules[name]


def fired(f, **rules):
    policy = Policy(**rules)
    explained = fineline.explain(f, policy=policy)(X)
    assert set(explained.rules) == set(policy.rules)
    return sum(explained.rules.values())


# The name, what is met under it, and what is not.
NAMES = {
    "where it is defined": ("pk_names.impl.rope", lambda p: p.rope(X), lambda p: p.outer(X)),
    "re-exported": ("pk_names.rope", lambda p: p.rope(X), lambda p: p.outer(X)),
    "another name": ("pk_names.impl.alias", lambda p: p.rope(X), lambda p: p.outer(X)),
    "imported as": ("pk_names.turned", lambda p: p.rope(X), lambda p: p.outer(X)),
    "a lambda": ("pk_names.scale", lambda p: p.scale(X), lambda p: p.rope(X)),
    "with a cache": ("pk_names.impl.cached", lambda p: p.impl.cached(3), lambda p: p.rope(X)),
    "a re-exported class": ("pk_names.Root", lambda p: p.Base().run(X), lambda p: p.rope(X)),
    "a class, its children": ("pk_names.Base", lambda p: p.Child().run(X), lambda p: p.rope(X)),
    "a class, its static methods": ("pk_names.Base", lambda p: p.Base.plain(X), lambda p: p.rope(X)),
    "a class, its class methods": ("pk_names.Base", lambda p: p.Base.make(X), lambda p: p.rope(X)),
    "a class, the classes in it": ("pk_names.Base", lambda p: p.Base.Inner().run(X), lambda p: p.rope(X)),
    "a method": ("pk_names.Base.run", lambda p: p.Child().run(X), lambda p: p.Base.make(X)),
    "an inherited method": ("pk_names.Child.run", lambda p: p.Child().run(X), lambda p: p.Sibling().run(X)),
    "a class method": ("pk_names.Base.make", lambda p: p.Base.make(X), lambda p: p.Base().run(X)),
    "an inherited class method": ("pk_names.Child.make", lambda p: p.Child.make(X), lambda p: p.Sibling.make(X)),
    "a static method": ("pk_names.Base.plain", lambda p: p.Child.plain(X), lambda p: p.Base().run(X)),
    "a property": ("pk_names.Base.weight", lambda p: p.child.weight, lambda p: p.child.run(X)),
    "a cached property": ("pk_names.Base.once", lambda p: p.Child().once, lambda p: p.child.run(X)),
    "an instance's method": ("pk_names.child.run", lambda p: p.child.run(X), lambda p: p.Child().run(X)),
    "an instance that is called": ("pk_names.called", lambda p: p.called(X), lambda p: p.Called()(X)),
    "a module class": ("pk_names.Block", lambda p: p.Block()(X), lambda p: p.rope(X)),
    "a module class, its children": ("pk_names.impl.Block", lambda p: p.Wide()(X), lambda p: p.rope(X)),
    "PyTorch's module class": ("torch.nn.ReLU", lambda p: torch.nn.ReLU()(X), lambda p: torch.nn.Tanh()(X)),
    "PyTorch's distribution": ("torch.distributions.Normal", lambda p: torch.distributions.Normal(X, X).log_prob(X), lambda p: p.rope(X)),
    "PyTorch's operator": ("torch.nn.functional.relu", lambda p: X.relu(), lambda p: X.cos()),
    "a builtin": ("print", lambda p: print(end=""), lambda p: p.rope(X)),
}  # fmt: skip


@pytest.mark.parametrize("kind", NAMES)
def test_a_name_means_what_it_stands_for(package, kind):
    """The most specific selector wins (object, then class, then exact name, then file, then glob by length)"""
    name, met, other = NAMES[kind]
    assert fired(lambda x: (met(package), x + 1)[1], disable=[name]) > 0
    assert fired(lambda x: (other(package), x + 1)[1], disable=[name]) == 0
    assert fineline.why(name, policy=Policy(disable=[name])).verb == "disable"


def test_a_name_ranks_below_what_it_stands_for(package):
    """The most specific selector wins (object, then class, then exact name, then file, then glob by length)"""
    for exact, name in ((package.rope, "pk_names.turned"), (package.Base, "pk_names.Root")):
        policy = Policy(trace=[exact]) | Policy(disable=[name])
        assert fineline.why(exact, policy=policy).verb == "trace"
    assert fineline.why("pk_names.turned", policy=Policy(disable=["pk_names.turned"]) | Policy(trace=["pk_names.*"])).verb == "disable"


def test_a_module_that_is_loaded_later(package):
    sys.modules.pop("colorsys", None)
    policy = Policy(disable=["colorsys.rgb_to_hsv"])

    def f(x):
        import colorsys

        colorsys.rgb_to_hsv(1.0, 0.5, 0.5)
        return x + 1

    assert sum(fineline.explain(f, policy=policy)(X).rules.values()) == 1


PATHS = {
    "below a folder": "pk_names/impl.py", "..": "pk_names/../pk_names/impl.py", "from outside": "../{}/pk_names/impl.py", "doubled": "pk_names//impl.py",
    "a dot": "./pk_names/./impl.py", "a link": "link/impl.py", "a link in a glob": "link/*.py", "a link to a folder": "link/", "a folder": "pk_names/",
    "a folder with dots": "./pk_names/../pk_names/", "absolute": "{}/pk_names/impl.py", "absolute, by the link": "{}/link/impl.py",
    "a glob": "pk_names/**", "the name alone": "impl.py",
}  # fmt: skip


@pytest.mark.parametrize("kind", PATHS)
def test_a_path_in_any_spelling(package, tmp_path, kind):
    path = PATHS[kind].format(tmp_path if kind.startswith("absolute") else tmp_path.name)
    assert fired(lambda x: package.rope(x) + 1, disable=[path]) == 1
    assert fineline.why(path, policy=Policy(disable=[path])).verb == "disable"
    assert fineline.why(package.rope, policy=Policy(disable=[path])).verb == "disable"


def make_class():
    class K:
        @staticmethod
        def static(x):
            return x.cos()

        @classmethod
        def of_class(cls, x):
            return x.cos()

        def method(self, x):
            return x.cos()

        @property
        def value(self):
            return X.cos()

        class Inner:
            @staticmethod
            def static(x):
                return x.cos()

    return K


K = make_class()

CALLS = {
    "static": lambda k, x: k.static(x) + 1, "static, of an instance": lambda k, x: k().static(x) + 1, "class": lambda k, x: k.of_class(x) + 1,
    "method": lambda k, x: k().method(x) + 1, "property": lambda k, x: k().value + x, "in it": lambda k, x: k.Inner.static(x) + 1,
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_a_class_means_the_same_in_all_spellings(call):
    """As a selector of a policy, as its name, and under the mark."""
    name = f"{__name__}.K"
    for policy in (Policy(disable=[K]), Policy(disable=[name])):
        assert len(fineline.explain(CALLS[call], policy=policy)(K, X).breaks) == 1
    over = Policy(disable=[name]) | Policy(trace=[K])
    assert not fineline.explain(CALLS[call], policy=over)(K, X).breaks
    # A class of its own, whose mark goes with it.
    assert len(fineline.explain(CALLS[call])(fineline.disable(make_class()), X).breaks) == 1


def _refused(package, tmp_path):
    import textwrap

    yield from (textwrap.dedent, "textwrap.dedent", torch.nn.Linear, "torch.nn.Linear", "textwrap.py", "json/", "json/**", [textwrap.dedent])
    yield from (package.Base, package.Base.plain, package.Base.make, package.child.run, package.Base.weight, package.Block(), package.scale)
    yield from ("pk_names.turned", "pk_names.Child.run", "pk_names.Base.weight", "pk_names.scale", "pk_names/impl.py")


def test_python_code_is_never_disallowed(package, tmp_path):
    """A plain Python function that would be run through is an error at declaration (say `disable`), unless `allow_in_graph` had made it opaque."""
    for selector in _refused(package, tmp_path):
        with pytest.raises(BadRule, match="FL213"):
            Policy(disallow=[selector])
    for selector in (torch.sin, "torch.sin", "math.*", print, torch.nn.functional.relu, "torch.nn.functional.relu", torch.Tensor.item, "torch.linalg"):
        Policy(disallow=[selector])
    Policy(allow=["pk_names.rope"], disallow=["pk_names.rope"])


def test_a_disallowing_glob_is_about_operators_and_c_functions(package):
    """... and leaves Python functions alone, which are no nodes of graphs."""
    for selector in ("pk_names.*", "pk_names", package):
        assert fired(lambda x: package.rope(x) + 1, disallow=[selector]) == 0
        assert fineline.why(package.rope, policy=Policy(disallow=[selector])).verb == "trace"
        # The next best one counts.
        assert fired(lambda x: package.rope(x) + 1, disable=["pk_names*"], disallow=[selector]) == 1
