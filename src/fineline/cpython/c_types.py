"""Facts about the methods of CPython's own types: what a call of each does, and what it reads.

One block per type: the effect of methods that no line of the block names, then lines of words and the methods to which they apply. A
method may be in several lines: one with its effect, others with traits. The lines of `EVERYWHERE` apply to all types; the effect in the
type's own block overrides one there. `c_callables` explains the words.
"""

from __future__ import annotations

import collections
import contextvars
import functools
import itertools
import operator
import re
import types
import weakref
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from fineline.kinds import is_a


class TypeFacts(NamedTuple):
    type: type
    default: str
    lines: Mapping[str, str]
    """Names of methods by words; the word `-` leaves methods out of the table (a call of them breaks the graph)."""


_SAMPLES: tuple[Any, ...] = (
    iter([]), iter(()), iter({}), iter({}.values()), iter({}.items()), reversed({}), reversed({}.values()), reversed({}.items()),
    iter(set()), iter(""), iter("\u20ac"), iter(b""), iter(bytearray()), iter(range(0)), iter(range(1 << 70)), reversed([]),
    iter(collections.deque()), reversed(collections.deque()), iter(collections.OrderedDict()), iter(types.GenericAlias(list, int)),
    itertools.count(), itertools.repeat(0), itertools.product(), itertools.permutations(()), itertools.combinations((), 0),
    itertools.combinations_with_replacement((), 0),
)  # fmt: skip
ITERATORS: tuple[type, ...] = tuple(type(it) for it in _SAMPLES)
"""Iterators over C containers and numbers: to advance one never runs Python code."""

DRIVERS: tuple[type, ...] = (
    zip, enumerate, reversed, itertools.chain, itertools.compress, itertools.cycle, itertools.islice, itertools.pairwise,
    itertools.zip_longest, type(itertools.tee(())[0]),
)  # fmt: skip
"""Iterators that advance other iterators: to advance one runs Python code if these do."""

CALLERS: tuple[type, ...] = (
    map, filter, itertools.accumulate, itertools.dropwhile, itertools.filterfalse, itertools.groupby, itertools.starmap,
    itertools.takewhile,
)  # fmt: skip
"""Iterators that call a function for each item; fineline runs their polyfills instead."""

EVERYWHERE: Mapping[str, str] = MappingProxyType(
    {
        "refused": "__getattribute__ __setattr__ __delattr__ __init__ __reduce__ __reduce_ex__ __getstate__ __setstate__ __dir__ "
        "__init_subclass__ __subclasshook__ __get__ __set__ __delete__ __set_name__ __instancecheck__ __subclasscheck__ __call__",
        "pure none": "__class_getitem__ __sizeof__ __length_hint__ __getnewargs__",
        "prints writes_out": "__str__ __repr__ __format__ __mod__ __rmod__ format format_map",
        "writes_out": "__hash__",
        "-": "__del__ __alloc__",
    }
)

_NUMBER = "__new__ __format__"
_SEQUENCE_TEXT = "join translate maketrans __mod__ __rmod__ __contains__ __getitem__ __mul__ __rmul__ __format__ __new__ find rfind index "
_BYTES_TEXT = "__buffer__ rindex count startswith endswith center ljust rjust zfill expandtabs hex fromhex split rsplit splitlines replace"
_COMPARE = "__eq__ __ne__ __lt__ __le__ __gt__ __ge__"
_SEARCH = "__eq__ __ne__ __contains__ count index"
_VIEW_ALGEBRA = f"{_COMPARE} isdisjoint __and__ __rand__ __or__ __ror__ __sub__ __rsub__ __xor__ __rxor__"
_SET_ALGEBRA = f"{_VIEW_ALGEBRA} difference intersection issubset issuperset symmetric_difference union"
_SET_UPDATES = "difference_update intersection_update symmetric_difference_update __iand__ __ior__ __isub__ __ixor__"
_SET_TESTS = "__contains__ __len__ __eq__ __ne__ isdisjoint issubset issuperset"
_BETWEEN_SETS = "set_algebra walks compares_identity"

TYPES: tuple[TypeFacts, ...] = (
    TypeFacts(object, "refused", {
        "handled": "__new__ __init__",
        "handled args:2,2": "__delattr__ __getattribute__",
        "handled args:3,3": "__setattr__",
        "pure none": "__eq__ __lt__ __le__ __gt__ __ge__ __sizeof__",
        "pure deep": "__ne__ __format__",
        "asks_identity": "__eq__ __ne__",
    }),
    TypeFacts(int, "pure none", {"pure deep": f"{_NUMBER} from_bytes to_bytes __round__"}),
    TypeFacts(float, "pure none", {"pure deep": f"{_NUMBER} __round__"}),
    TypeFacts(complex, "pure none", {"pure deep": _NUMBER}),
    TypeFacts(bool, "pure none", {"pure deep": "__new__"}),
    TypeFacts(str, "pure none", {
        "pure deep": _SEQUENCE_TEXT + "rindex count format format_map startswith endswith center ljust rjust zfill expandtabs "
        "split rsplit splitlines replace removeprefix removesuffix",
        "index:1": "__getitem__ __mul__ __rmul__ center ljust rjust zfill",
    }),
    TypeFacts(bytes, "pure none", {"pure deep": _SEQUENCE_TEXT + _BYTES_TEXT, "index:1": "__getitem__ __mul__ __rmul__"}),
    TypeFacts(bytearray, "pure none", {
        "pure deep": _SEQUENCE_TEXT + _BYTES_TEXT,
        "mutator none": "clear pop reverse",
        "mutator deep": "append extend insert remove __delitem__ __iadd__ __imul__ __setitem__",
        "sets_slice": "__setitem__",
    }),
    TypeFacts(list, "pure shallow", {
        "handled args:1": "__init__",
        "pure none": "__new__ __len__ __iter__ __reversed__ __class_getitem__",
        "pure deep": f"{_COMPARE} __contains__ __repr__ count index",
        "mutator shallow": "append clear extend insert pop reverse __delitem__ __iadd__ __imul__ __setitem__",
        "mutator deep": "remove sort",
        "index:1": "__getitem__ __mul__ __rmul__ __setitem__ __delitem__ __imul__ insert pop",
        "moves_only": "__iter__ copy append clear extend insert pop reverse __iadd__",
        "appends": "append extend",
        "walks": "extend __iadd__",
        "sets_slice": "__setitem__",
        "one_by_one": f"{_COMPARE} __contains__ count index",
        "one_by_one sorts keyed": "sort",
        "compares_identity": f"{_SEARCH} remove",
    }),
    TypeFacts(tuple, "pure shallow", {
        "pure shallow handler_first": "__new__",
        "pure none": "__len__ __iter__ __class_getitem__",
        "pure deep": f"{_COMPARE} __contains__ __hash__ __repr__ count index",
        "index:1": "__getitem__ __mul__ __rmul__",
        "moves_only": "__iter__",
        "one_by_one": f"{_COMPARE} __contains__ count index",
        "compares_identity": _SEARCH,
    }),
    TypeFacts(dict, "pure shallow", {
        "handled args:1": "__init__",
        "pure none": "__new__ __len__ __iter__ __reversed__ keys values items __class_getitem__",
        "pure key": "__contains__ __getitem__ fromkeys __or__ __ror__",
        "pure key handler_first": "get",
        "pure deep": f"{_COMPARE} __repr__",
        "mutator shallow": "clear popitem",
        "mutator key": "__delitem__ __setitem__ __ior__ pop update",
        "mutator key handler_first": "setdefault",
        "moves_only": "values items update",
        "walks": "update",
        "nested": "__ior__ update",
        "merges": "__or__ __ror__",
        "compares_identity": "__eq__ __ne__",
    }),
    TypeFacts(collections.OrderedDict, "pure shallow", {
        "handled args:1": "__init__",
        "pure none": "__iter__ __reversed__ keys values items",
        "pure key": "fromkeys __or__ __ror__",
        "pure deep": f"{_COMPARE} __repr__",
        "mutator shallow": "clear popitem",
        "mutator key": "__delitem__ __setitem__ __ior__ move_to_end pop setdefault update",
        "index:1": "popitem",
        "index:2": "move_to_end",
        "nested": "__ior__ update",
        "merges": "__or__ __ror__",
    }),
    TypeFacts(collections.defaultdict, "pure shallow", {
        "handled args:1": "__init__",
        "pure key merges": "__or__ __ror__",
        "pure deep": "__repr__",
        "callback key": "__missing__",
    }),
    TypeFacts(set, "pure shallow", {
        "handled args:1": "__init__",
        "pure none": "__new__ __len__ __iter__ __class_getitem__",
        "pure key": f"{_SET_ALGEBRA} __contains__ __hash__",
        "pure deep": "__repr__",
        "mutator shallow": "clear pop",
        "mutator key": f"add discard remove update {_SET_UPDATES}",
        _BETWEEN_SETS: f"{_SET_ALGEBRA} {_SET_UPDATES}",
        "walks": "update",
        "one_element": "add discard remove",
        "order_independent": f"{_SET_TESTS} add discard remove",
    }),
    TypeFacts(frozenset, "pure shallow", {
        "pure none": "__len__ __iter__ __class_getitem__",
        "pure key": f"{_SET_ALGEBRA} __contains__ __hash__ __new__",
        "pure deep": "__repr__",
        _BETWEEN_SETS: _SET_ALGEBRA,
        "order_independent": _SET_TESTS,
    }),
    TypeFacts(collections.deque, "pure shallow", {
        "handled args:1": "__init__",
        "pure none": "__new__ __len__ __iter__ __reversed__ __class_getitem__",
        "pure deep": f"{_COMPARE} __contains__ __repr__ count index",
        "mutator shallow": "append appendleft clear extend extendleft insert pop popleft reverse rotate __delitem__ __iadd__ "
        "__imul__ __setitem__",
        "mutator deep": "remove",
        "index:1": "__getitem__ __mul__ __rmul__ __setitem__ __delitem__ __imul__ insert rotate",
        "moves_only appends": "append extend",
        "walks": "extend extendleft",
        "compares_identity": f"{_SEARCH} remove",
    }),
    TypeFacts(range, "pure none", {"pure deep": "__new__ __contains__ __getitem__ count index"}),
    TypeFacts(slice, "pure none", {"pure deep": f"{_COMPARE} __repr__ indices"}),
    TypeFacts(type(None), "pure none", {}),
    TypeFacts(type(...), "pure none", {}),
    TypeFacts(type(NotImplemented), "pure none", {}),
    TypeFacts(types.MappingProxyType, "pure shallow", {
        "pure none": "__new__ __len__ __iter__ __reversed__ keys values items __class_getitem__",
        "pure key": "__contains__ __getitem__ __or__ __ror__ __ior__",
        "pure key handler_first": "get",
        "pure deep": f"{_COMPARE} __repr__ __str__",
    }),
    TypeFacts(types.SimpleNamespace, "pure none", {"pure deep": f"{_COMPARE} __repr__"}),
    TypeFacts(type({}.keys()), "pure none", {"pure key": f"{_VIEW_ALGEBRA} __contains__", "pure deep": "__repr__", _BETWEEN_SETS: _VIEW_ALGEBRA}),
    TypeFacts(type({}.values()), "pure none", {"pure deep": "__repr__"}),
    TypeFacts(type({}.items()), "pure none", {"pure deep": f"{_VIEW_ALGEBRA} __contains__ __repr__", _BETWEEN_SETS: _VIEW_ALGEBRA}),
    TypeFacts(type, "refused", {
        "pure none": "__or__ __ror__ __repr__ __sizeof__ mro", "handled args:1,1": "__subclasses__",
        "handled args:3,3": "__setattr__", "handled args:2,2": "__delattr__", "callback deep": "__instancecheck__", "refused handler_first": "__call__",
    }),
    TypeFacts(super, "refused", {}),
    TypeFacts(property, "refused", {"handled": "getter setter deleter", "mutator none": "__init__"}),
    TypeFacts(staticmethod, "refused", {}),
    TypeFacts(classmethod, "refused", {}),
    TypeFacts(BaseException, "refused", {"pure deep": "__repr__ __str__"}),
    TypeFacts(types.FunctionType, "refused", {"pure none": "__repr__", "handled": "__get__"}),
    TypeFacts(types.MethodType, "refused", {"pure deep": "__eq__ __ne__ __hash__ __repr__", "compares_identity": "__eq__ __ne__"}),
    TypeFacts(types.BuiltinFunctionType, "refused", {"pure none": "__eq__ __ne__ __hash__ __repr__", "compares_identity": "__eq__ __ne__"}),
    TypeFacts(types.GeneratorType, "refused", {"pure none": "__iter__ __repr__"}),
    TypeFacts(types.CodeType, "-", {"pure none": f"{_COMPARE} __hash__ __repr__ co_lines co_positions replace"}),
    TypeFacts(types.CellType, "pure none", {"pure deep": f"{_COMPARE} __repr__", "refused": "__new__"}),
    TypeFacts(types.GenericAlias, "pure none", {"pure deep": f"{_COMPARE} __getitem__ __hash__ __repr__", "refused": "__call__"}),
    TypeFacts(types.UnionType, "pure none", {"pure deep": f"{_COMPARE} __hash__ __repr__"}),
    TypeFacts(types.ModuleType, "refused", {"handled": "__getattribute__"}),
    TypeFacts(functools.partial, "refused", {"pure none": "__new__"}),
    *(
        TypeFacts(getter, "refused", {"pure none": "__new__ __repr__ __reduce__", "callback deep": "__call__"})
        for getter in (operator.itemgetter, operator.attrgetter, operator.methodcaller)
    ),
    TypeFacts(contextvars.ContextVar, "refused", {"handled": "get set reset"}),
    TypeFacts(weakref.ref, "refused", {"handled": "__call__"}),
    TypeFacts(re.Pattern, "pure none", {
        "pure deep": f"{_COMPARE} __hash__", "handled": "sub subn", "-": "scanner", "refused": "__copy__ __deepcopy__",
    }),
    TypeFacts(re.Match, "pure none", {"pure deep": "__getitem__ group start end span", "refused": "__copy__ __deepcopy__"}),
    *(TypeFacts(it, "refused", {"pure none": "__iter__ __length_hint__ __copy__", "advance shallow": "__next__"}) for it in ITERATORS),
    *[TypeFacts(it, "refused", {
        "pure none": "__iter__ __length_hint__ __copy__",
        "pure shallow nested makes_iterators": "from_iterable",
        "advance deep": "__next__",
    }) for it in DRIVERS],
    *(TypeFacts(it, "refused", {"pure none": "__iter__", "-": "__next__"}) for it in CALLERS),
)  # fmt: skip

C_DESCRIPTORS = (types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType, types.BuiltinFunctionType)


def methods() -> Iterator[tuple[Any, str]]:
    """Yields each C method of each type in `TYPES`, unbound, with its words."""
    everywhere = words_by_name(EVERYWHERE)
    for facts in TYPES:
        own = words_by_name(facts.lines)
        for name, attribute in vars(facts.type).items():
            value: Any = attribute.__func__ if is_a(attribute, staticmethod) else attribute
            if is_a(value, C_DESCRIPTORS):
                # The last effect counts.
                words = f"{facts.default} {everywhere.get(name, '')} {own.get(name, '')}"
                yield value, words
                if is_a(value, types.ClassMethodDescriptorType):
                    yield getattr(facts.type, name), words


def words_by_name(lines: Mapping[str, str]) -> dict[str, str]:
    """Returns the words for each name, from all its lines."""
    found: dict[str, str] = {}
    for words, names in lines.items():
        for name in names.split():
            found[name] = f"{found[name]} {words}" if name in found else words
    return found
