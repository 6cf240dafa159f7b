"""How a program makes again the objects that the captured code made: one expression or a few statements for each."""

from __future__ import annotations

import abc
import builtins
import functools
import gc
import keyword
import math
import operator
import re
import types
from collections import OrderedDict, defaultdict, deque
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from fineline.bytecode.code import CO_VARARGS, CO_VARKEYWORDS
from fineline.capture.capture import HEAP_TYPE, SINGLETONS, VALUES, Capture, is_value
from fineline.capture.frame import InterpretedGenerator
from fineline.capture.local_classes import CLASS_MEMBERS
from fineline.capture.natives import ITERATORS, VIEWS
from fineline.capture.signals import Unrebuildable
from fineline.capture.stand_ins import KINDS, Recipe, recipe_of
from fineline.capture.symbolic import SYMBOLIC
from fineline.capture.symbols import Carried
from fineline.graph.fake import carry, own_attributes
from fineline.guards.relation import python_text, symbols_of
from fineline.guards.source import Source
from fineline.kinds import is_a
from fineline.raw import ARGS, CAUSE, CONTEXT, DICT, SUPPRESS_CONTEXT

LITERALS = (type(None), bool, int, str, bytes, type(...))
# Names that the programs' own statements use.
RESERVED = frozenset({"result", "failure", "failed", "error", "random", "raised", "program", "math", *dir(builtins)})
GETTERS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)
# What a class gets when it is made, whatever its body says.
MADE_WITH_CLASS = frozenset({"_abc_impl", "__abstractmethods__"})
TABLE_ITERATORS: dict[type, str] = {
    type(iter(set())): "iter({})",
    type(iter({})): "iter({})",
    type(iter({}.values())): "iter({}.values())",
    type(iter({}.items())): "iter({}.items())",
    type(reversed({})): "reversed({})",
    type(reversed({}.values())): "reversed({}.values())",
    type(reversed({}.items())): "reversed({}.items())",
}
SCALAR_BASES = (int, float, str, bytes, complex)


class Rebuilder:
    """Writes the statements that give a program its values; each object once, so that identity relations hold."""

    def __init__(self, cap: Capture) -> None:
        self.cap = cap
        self.lines: list[str] = []
        self.params: dict[int, str] = {}
        self.param_sources: list[Source] = []
        self.constants: dict[str, Any] = {}
        self.outputs: list[tuple[Any, str]] = []
        self._constant_names: dict[int, str] = {}
        self._memo: dict[int, str] = {}
        self._kept: list[Any] = []
        self._busy: set[int] = set()
        self._output_names: dict[Any, str] = {}
        self._used: set[str] = set(RESERVED)
        self._n = 0

    # -- names ---------------------------------------------------------------------------------------------------------
    def fresh(self, base: str) -> str:
        name = re.sub(r"\W+", "_", base).strip("_") or "v"
        if name[0].isdigit() or keyword.iskeyword(name):
            name = "_" + name
        name = name[:60]
        stem = name
        while name in self._used:
            self._n += 1
            name = f"{stem}_{self._n}"
        self._used.add(name)
        return name

    def param(self, src: Source) -> str:
        """The parameter of the program that the guard program's register for ``src`` is passed as."""
        name = self.params.get(src.reg)
        if name is None:
            name = self.params[src.reg] = self.fresh(short_name(src))
            self.param_sources.append(src)
        return name

    def constant(self, v: Any, base: str = "const") -> str:
        name = self._constant_names.get(id(v))
        if name is None:
            name = self._constant_names[id(v)] = self.fresh(base)
            self.constants[name] = v
        return name

    # -- values --------------------------------------------------------------------------------------------------------
    def expr(self, v: Any) -> str:
        """An expression that gives ``v`` when the program runs."""
        cap = self.cap
        t = type(v)
        if cap.lazy and id(v) in cap.lazy:
            return self.param(cap.lazy[id(v)])
        if t in SINGLETONS or (t in VALUES and t is not slice):
            return self._literal(v, t)
        if t in SYMBOLIC:
            return self._number(v)
        name = self._memo.get(id(v))
        if name is not None:
            return name
        if is_a(v, Tensor):
            return self._tensor(v)
        if t in CLASS_MEMBERS and v.__objclass__ in cap.classes:
            return self.member(v)
        src = cap.sources.get(id(v))
        if src is not None:
            if src.op == "pin":
                return self.constant(v, short_name(src))
            if is_value(v) and t is not tuple and not self._local(v):
                return self.constant(v, getattr(v, "__name__", t.__name__))
            return self.param(src)
        if self._local(v):
            return self._class(v)
        if t is not tuple and is_value(v) and not (t is frozenset and id(v) in cap.made):
            return self.constant(v, getattr(v, "__name__", t.__name__))
        if id(v) in self._busy:
            raise Unrebuildable("a tuple that contains itself")
        self._kept.append(v)
        return self._made(v, t)

    def _literal(self, v: Any, t: type) -> str:
        if t in LITERALS or (t is float and math.isfinite(v)):
            return repr(v)
        return self.constant(v, t.__name__)

    def _number(self, v: Any) -> str:
        """A symbolic number, computed from the sizes and numbers that the program is given."""
        names = {}
        term = self.cap.symbols.term(v)
        for symbol in symbols_of(term):
            node = self.cap.symbols.leaf(symbol)
            if node is not None:
                names[symbol] = self._output(node)
                continue
            leaf = self.cap.symbols.leaves[symbol]
            name = self.param(leaf.source)
            names[symbol] = name if leaf.kind == "number" else f"{name}.{leaf.kind}({leaf.dim})"
        text = python_text(term, names)
        if "math." in text:
            self.constants["math"] = math
        return f"({text})"

    def graph_input(self, src: Any) -> str:
        """What the graph is given."""
        return f"{self.constant(carry, 'carry')}({self.expr(src.value)})" if type(src) is Carried else self.param(src)

    def _tensor(self, v: Tensor) -> str:
        recorder = self.cap.recorder
        src = self.cap.sources.get(id(v))
        if src is not None:
            return self.param(src)
        if not recorder.known(v):
            raise Unrebuildable(f"a tensor of unknown origin, shape {tuple(v.shape)}")
        node = recorder.find(v)
        new = node not in self._output_names
        name = self._output(node)
        if new:
            own = {k: x for k, x in v.__dict__.items() if k not in own_attributes()} if type(v) is FakeTensor else v.__dict__
            if own:
                self._fill_dict(f"{name}.__dict__", own)
        return name

    def _output(self, node: Any) -> str:
        """The variable for what a node of the graph gives."""
        name = self._output_names.get(node)
        if name is None:
            name = self._output_names[node] = self.fresh(str(node))
            self.outputs.append((node, name))
        return name

    def statement(self, name: str, text: str, v: Any) -> str:
        self.lines.append(f"{name} = {text}")
        self._memo[id(v)] = name
        return name

    def items(self, items: Any) -> str:
        return ", ".join([self.expr(x) for x in items])

    def _made(self, v: Any, t: type) -> str:
        cap = self.cap
        if t is tuple:
            self._busy.add(id(v))
            parts = self.items(v)
            self._busy.discard(id(v))
            text = f"({parts},)" if v else "()"
            return text if is_value(v) else self.statement(self.fresh("pack"), text, v)
        if t is torch.Size:
            parts = f"({self.items(v)},)" if v else ""
            return self.statement(self.fresh("size"), f"{self.constant(torch.Size, 'Size')}({parts})", v)
        if t is list:
            self._known(v)
            name = self.statement(self.fresh("items"), "[]", v)
            if v:
                at = len(self.lines)
                parts = self.items(v)
                if len(self.lines) == at and not any(x is v for x in v) and self.lines[-1] == f"{name} = []":
                    self.lines[-1] = f"{name} = [{parts}]"
                else:
                    self.lines.append(f"{name} += [{parts}]")
            return name
        if t is dict:
            self._known(v)
            if id(v) in cap.owners:
                return self._dict_of(self.expr(cap.owners[id(v)]), type(cap.owners[id(v)]))
            name = self.statement(self.fresh("table"), "{}", v)
            at = len(self.lines)
            pairs = self._pairs(v)
            if len(self.lines) == at:
                self.lines[-1] = f"{name} = {{{pairs}}}"
            else:
                self.lines.append(f"{name}.update({{{pairs}}})")
            return name
        if t is set:
            self._known(v)
            return self.statement(self.fresh("group"), f"set(({self.items(v)}{',' if v else ''}))", v)
        if t is frozenset:
            return self.statement(self.fresh("group"), f"{self.constant(frozenset, 'frozenset')}(({self.items(v)}{',' if v else ''}))", v)
        if t is types.FunctionType:
            return self._function(v) if id(v) in self.cap.made else self.constant(v, v.__name__)
        if t is types.CellType:
            return self._cell(v)
        if t is types.MethodType:
            return self.statement(
                self.fresh("method"),
                f"{self.constant(types.MethodType, 'MethodType')}({self.expr(v.__func__)}, {self.expr(v.__self__)})",
                v,
            )
        if t is functools.partial:
            parts = [self.expr(v.func), *[self.expr(x) for x in v.args], *[f"**{{{k!r}: {self.expr(x)}}}" for k, x in v.keywords.items()]]  # type: ignore[assignment]
            name = self.statement(self.fresh("partial"), f"{self.constant(functools.partial, 'partial')}({', '.join(parts)})", v)
            self._memo[id(v.keywords)] = f"{name}.keywords"
            # Not its __dict__: reading that makes one, and then it is no longer merged into a partial made of it.
            self._fill_dict(f"{name}.__dict__", v.__reduce__()[2][3])
            return name
        if t in ITERATORS or t in GETTERS:
            return self._reduced(v)
        if t is super:
            return self.statement(self.fresh("parent"), f"super({self.expr(v.__thisclass__)}, {self.expr(v.__self__)})", v)
        if t is types.BuiltinFunctionType or t is types.MethodWrapperType:
            return self.statement(self.fresh("method"), f"getattr({self.expr(v.__self__)}, {v.__name__!r})", v)
        if t is slice:
            return f"slice({self.expr(v.start)}, {self.expr(v.stop)}, {self.expr(v.step)})"
        if t in VIEWS or t is types.MappingProxyType:
            # What the view shows is all that it refers to.
            shown = self.expr(gc.get_referents(v)[0])
            way = f".{t.__name__.rpartition('_')[2]}()"
            return self.statement(
                self.fresh("view"), f"{self.constant(t, 'proxy')}({shown})" if t is types.MappingProxyType else shown + way, v
            )
        if t is property:
            return self.statement(
                self.fresh("prop"), f"property({self.expr(v.fget)}, {self.expr(v.fset)}, {self.expr(v.fdel)}, {v.__doc__!r})", v
            )
        if t is classmethod or t is staticmethod:
            return self.statement(self.fresh("wrapper"), f"{t.__name__}({self.expr(v.__func__)})", v)
        if t is types.SimpleNamespace:
            name = self.statement(self.fresh("namespace"), f"{self.constant(t, t.__name__)}()", v)
            self._fill_dict(f"{name}.__dict__", v.__dict__)
            return name
        if is_a(v, InterpretedGenerator):
            return self._generator(v)
        recipe = recipe_of(v)
        if recipe is not None:
            return self._iterator(v, recipe)
        if t in KINDS:
            raise Unrebuildable(f"a {KINDS[t].__qualname__} that is under way")
        if is_a(v, BaseException):
            return self._exception(v, t)
        return self._instance(v, t)

    def _known(self, v: Any) -> None:
        if id(v) not in self.cap.made and not is_a(v, (tuple, frozenset)):
            raise Unrebuildable(f"a {type(v).__name__} of unknown origin")

    def _pairs(self, v: dict) -> str:
        return ", ".join([f"{self.expr(k)}: {self.expr(x)}" for k, x in dict.items(v)])

    def _fill_dict(self, name: str, v: dict) -> None:
        if v:
            self.lines.append(f"{name}.update({{{self._pairs(v)}}})")

    @staticmethod
    def _dict_of(name: str, t: type) -> str:
        """An instance's dict, read past the user's ``__getattribute__``."""
        return f'object.__getattribute__({name}, "__dict__")' if is_a(t.__getattribute__, types.FunctionType) else f"{name}.__dict__"

    def _fill_attributes(self, name: str, v: Any, t: type) -> None:
        """The instance's dict: set as a whole where that is what an assignment does, 0.1 us instead of 0.3 us."""
        d = object.__getattribute__(v, "__dict__")
        if not d:
            return
        own = self._dict_of(name, t)
        self._memo.setdefault(id(d), own)
        at = len(self.lines)
        pairs = self._pairs(d)
        plain = own == f"{name}.__dict__" and t.__setattr__ is object.__setattr__ and not any(own in line for line in self.lines[at:])
        self.lines.append(f"{own} = {{{pairs}}}" if plain else f"{own}.update({{{pairs}}})")

    def _cell(self, v: types.CellType) -> str:
        self._known(v)
        name = self.statement(self.fresh("cell"), f"{self.constant(types.CellType, 'CellType')}()", v)
        try:
            contents = v.cell_contents
        except ValueError:
            return name
        text = self.expr(contents)
        self.lines.append(f"{name}.cell_contents = {text}")
        return name

    def _function(self, v: types.FunctionType) -> str:
        self._known(v)
        closure = ""
        if v.__closure__:
            cells = self.items(v.__closure__)
            if id(v) in self._memo:
                return self._memo[id(v)]
            closure = f", None, ({cells},)"
        make = self.constant(types.FunctionType, "FunctionType")
        name = self.statement(
            self.fresh(v.__name__),
            f"{make}({self.constant(v.__code__, 'code')}, {self.constant(v.__globals__, 'globals')}, {v.__name__!r}{closure})",
            v,
        )
        fresh = types.FunctionType(v.__code__, v.__globals__, v.__name__, None, v.__closure__)
        for attr in ("__defaults__", "__kwdefaults__"):
            if getattr(v, attr) is not None:
                value = getattr(v, attr)
                text = (
                    self.expr(value)
                    if type(value) is tuple
                    else "{" + ", ".join([f"{k!r}: {self.expr(x)}" for k, x in value.items()]) + "}"
                )
                self.lines.append(f"{name}.{attr} = {text}")
        for attr in ("__qualname__", "__doc__", "__module__"):
            if getattr(v, attr) != getattr(fresh, attr):
                self.lines.append(f"{name}.{attr} = {self.expr(getattr(v, attr))}")
        if v.__annotations__:
            self.lines.append(f"{name}.__annotations__ = {self.constant(v.__annotations__, 'annotations')}.copy()")
        if v.__dict__:
            self._fill_dict(f"{name}.__dict__", v.__dict__)
        return name

    def _generator(self, v: InterpretedGenerator) -> str:
        """A generator that has not begun is a call of its function."""
        f = v.frame
        if v.state != "new" or f is None or f.function is None:
            raise Unrebuildable("a generator that has begun and is not finished", v.called_at)
        fn, code = f.function, f.info.code
        n, k = code.co_argcount, code.co_kwonlyargcount
        values = [
            x.cell_contents if type(x) is types.CellType and f.info.slots[i] in code.co_cellvars else x for i, x in enumerate(f.local)
        ]
        parts = [self.expr(x) for x in values[:n]]
        at = n + k
        if code.co_flags & CO_VARARGS:
            parts.append(f"*{self.expr(values[at])}")
            at += 1
        parts += [f"{code.co_varnames[i]}={self.expr(values[i])}" for i in range(n, n + k)]
        if code.co_flags & CO_VARKEYWORDS:
            parts.append(f"**{self.expr(values[at])}")
        return self.statement(self.fresh(code.co_name), f"{self.expr(fn)}({', '.join(parts)})", v)

    def _iterator(self, v: Any, recipe: Recipe) -> str:
        make = recipe.make
        given = [*[self._loose(x) for x in recipe.args], *[f"{k}={self.expr(x)}" for k, x in recipe.kwargs.items()]]
        name = self.statement(self.fresh("iterator"), f"{self.constant(make, make.__name__)}({', '.join(given)})", v)
        self.lines += [f"{name}.__setstate__({self._loose(state)})" for state in recipe.state]
        return name

    def _reduced(self, v: Any) -> str:
        if type(v) in TABLE_ITERATORS:
            return self._table_iterator(v)
        reduced = v.__reduce__()
        fn, args = reduced[0], reduced[1]
        if fn is iter and type(iter(args[0])) is not type(v):
            raise Unrebuildable(f"a {type(v).__name__} that is under way")
        parts = [self._loose(a) for a in args]
        name = self.statement(self.fresh("iterator"), f"{self.constant(fn, fn.__name__)}({', '.join(parts)})", v)
        if len(reduced) > 2 and reduced[2] is not None:
            self.lines.append(f"{name}.__setstate__({self._loose(reduced[2])})")
        return name

    def _table_iterator(self, v: Any) -> str:
        """An iterator over a dict or a set, which reduces to a list's: a new one over the very table, gone on with as far."""
        found = [x for x in gc.get_referents(v) if is_a(x, (dict, set, frozenset))]
        if not found:
            raise Unrebuildable(f"a {type(v).__name__} that has ended")
        name = self.statement(self.fresh("iterator"), TABLE_ITERATORS[type(v)].format(self.expr(found[0])), v)
        if steps := len(found[0]) - v.__length_hint__():
            self.lines += [f"for _ in range({steps}):", f"    next({name})"]
        return name

    def _loose(self, v: Any) -> str:
        """A container that ``__reduce__`` made just now is as good as made in the capture."""
        if type(v) in (list, dict) and id(v) not in self.cap.sources:
            self.cap.made.add(id(v))
            self._kept.append(v)
        return self.expr(v)

    def _local(self, v: Any) -> bool:
        return is_a(v, type) and v in self.cap.classes

    def _class(self, v: Any) -> str:
        """A class that the captured code made: first with its names alone, as what they stand for may hold the class."""
        cap = self.cap
        if id(v) not in cap.made:
            raise Unrebuildable(f"the class {v.__qualname__}, of unknown origin")
        held = dict(type.__dict__["__dict__"].__get__(v))
        own = {k: x for k, x in held.items() if not (type(x) in CLASS_MEMBERS and x.__objclass__ is v) and k not in MADE_WITH_CLASS}
        first = {k: own.pop(k) for k in ("__module__", "__slots__", "__doc__") if k in own}
        self._known(v)
        bases = self.items(v.__bases__)
        at_once = ", ".join([f"{k!r}: {self.expr(x)}" for k, x in first.items()])
        make = f"{self.constant(cap.classes, 'local_classes')}.rebuild"
        text = (
            f"{make}({self.expr(type(v))}, {v.__name__!r}, ({bases},), {tuple(own)!r}, {{{at_once}, '__qualname__': {v.__qualname__!r}}})"
        )
        name = self.statement(self.fresh(v.__name__), text, v)
        for k, x in own.items():
            value = self.expr(x)
            self.lines.append(f"{self.constant(type.__setattr__, 'set_on_class')}({name}, {k!r}, {value})")
        if is_a(v, abc.ABCMeta):
            self.lines.append(f"{self.constant(abc.update_abstractmethods, 'update_abstractmethods')}({name})")
        return name

    def _exception(self, v: BaseException, t: type) -> str:
        given = ARGS.__get__(v)
        args = self.items(given)
        make = self.expr(t)
        name = self.statement(self.fresh("error"), f"{make}.__new__({make}, {args})" if given else f"{make}.__new__({make})", v)
        # A class may have its own idea of setting attributes.
        own = is_a(t.__setattr__, types.FunctionType)

        def put(descr: Any, text: str) -> None:
            self.lines.append(f"{self.member(descr)}.__set__({name}, {text})" if own else f"{name}.{descr.__name__} = {text}")

        put(ARGS, f"({args}{',' if given else ''})")
        for descr in (CAUSE, CONTEXT):
            if descr.__get__(v) is not None:
                put(descr, self.expr(descr.__get__(v)))
        put(SUPPRESS_CONTEXT, repr(SUPPRESS_CONTEXT.__get__(v)))
        for cls in t.__mro__[: t.__mro__.index(BaseException)]:
            for attr, descr in cls.__dict__.items():
                if type(descr) is types.MemberDescriptorType and not cls.__flags__ & HEAP_TYPE and attr not in ("message", "exceptions"):
                    value = descr.__get__(v, t)
                    if value is not None:
                        put(descr, self.expr(value))
        if DICT.__get__(v):
            self._fill_dict(self._dict_of(name, t), DICT.__get__(v))
        self._fill_slots(name, v, t)
        return name

    def _instance(self, v: Any, t: type) -> str:
        """An object of a class written in Python, or of a subclass of a builtin container."""
        if (
            not t.__flags__ & HEAP_TYPE
            and t not in (deque, OrderedDict, defaultdict, bytearray, object)
            and not hasattr(t, "n_sequence_fields")
        ):
            raise Unrebuildable(f"a {t.__module__}.{t.__qualname__} made in the captured code")
        self._known(v)
        make = self.expr(t)
        base = next(b for b in t.__mro__ if not b.__flags__ & HEAP_TYPE)
        if any(is_a(b.__dict__.get("__new__"), types.BuiltinFunctionType) for b in t.__mro__ if b.__flags__ & HEAP_TYPE):
            raise Unrebuildable(f"a {t.__module__}.{t.__qualname__}, which C makes")
        if issubclass(t, tuple):
            if hasattr(t, "n_sequence_fields"):
                return self.statement(self.fresh(t.__name__), f"{make}(({self.items(v)},))", v)
            name = self.statement(
                self.fresh(t.__name__), f"tuple.__new__({make}, ({self.items(tuple.__iter__(v))}{',' if len(v) else ''}))", v
            )
        elif base in SCALAR_BASES:
            name = self.statement(self.fresh(t.__name__), f"{base.__name__}.__new__({make}, {base.__new__(base, v)!r})", v)  # type: ignore[type-var]
        elif base is frozenset:
            name = self.statement(self.fresh(t.__name__), f"frozenset.__new__({make}, ({self.items(v)}{',' if v else ''}))", v)
        elif base is deque:
            name = self.statement(self.fresh(t.__name__), f"{make}.__new__({make})", v)
            cls = self.constant(deque, "deque")
            self.lines.append(f"{cls}.__init__({name}, ({self.items(deque.__iter__(v))}{',' if len(v) else ''}), {v.maxlen!r})")
        elif base in (object, dict, list, set, OrderedDict, defaultdict):
            name = self.statement(self.fresh(t.__name__), f"{self.constant(base, base.__name__)}.__new__({make})", v)
        elif base is bytearray:
            return self.statement(self.fresh("bytes"), f"bytearray({bytes(v)!r})", v)
        else:
            raise Unrebuildable(f"a {t.__qualname__}, whose memory {base.__name__} lays out")
        if is_a(v, defaultdict):
            self.lines.append(f"{name}.default_factory = {self.expr(v.default_factory)}")
        if is_a(v, dict):
            cls = self.constant(OrderedDict if is_a(v, OrderedDict) else dict, "dict_type")
            for k, x in dict.items(v) if not is_a(v, OrderedDict) else OrderedDict.items(v):
                key = self.expr(k)
                self.lines.append(f"{cls}.__setitem__({name}, {key}, {self.expr(x)})")
        elif is_a(v, list):
            if len(v):
                self.lines.append(f"list.extend({name}, [{self.items(list.__iter__(v))}])")
        elif is_a(v, set) and len(v):
            self.lines.append(f"set.update({name}, ({self.items(set.__iter__(v))},))")
        if t.__dictoffset__:
            self._fill_attributes(name, v, t)
        self._fill_slots(name, v, t)
        return name

    def _fill_slots(self, name: str, v: Any, t: type) -> None:
        for cls in t.__mro__:
            if not cls.__flags__ & HEAP_TYPE:
                continue
            for descr in cls.__dict__.values():
                if type(descr) is types.MemberDescriptorType:
                    try:
                        value = descr.__get__(v, t)
                    except AttributeError:
                        continue
                    text = self.expr(value)
                    self.lines.append(f"{self.member(descr)}.__set__({name}, {text})")

    def member(self, descr: Any) -> str:
        """A C descriptor; that of a class made by the call is the one of the class made by the program."""
        if descr.__objclass__ in self.cap.classes:
            return f"{self.expr(descr.__objclass__)}.__dict__[{descr.__name__!r}]"
        return self.constant(descr, descr.__name__)


def short_name(src: Source) -> str:
    """A readable name for a program's parameter."""
    parts: list[str] = []
    node: Source | None = src
    while node is not None and len(parts) < 6:
        if node.op in ("root", "pin"):
            parts.append(str(node.key))
        elif node.op == "dict" or (node.op == "key" and node.key in ("_modules", "_parameters", "_buffers")):
            pass
        elif node.op in ("key", "index"):
            parts.append(str(node.key) if is_a(node.key, (str, int)) else "item")
        elif node.op == "type_attr":
            parts.append(f"{node.key[0].__name__}_{node.key[1]}")
        else:
            parts.append(getattr(node.key, "__name__", node.op))
        node = node.parent
    return "_".join(reversed(parts))
