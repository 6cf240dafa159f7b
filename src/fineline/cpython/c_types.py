"""Facts about the methods of CPython's own types: what calling each does, and what it reads.

One row per type: the class of a method that no other line names, then the methods that differ. `EVERYWHERE` holds for
all types, unless the type's own row names the method. See `native_table` for the words.
"""

from __future__ import annotations

import collections
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
    differ: Mapping[str, str]
    """class -> names of methods; the class `-` leaves methods out of the table (calling them breaks the graph)"""


_SAMPLES: tuple[Any, ...] = (
    iter([]), iter(()), iter({}), iter({}.values()), iter({}.items()), reversed({}), reversed({}.values()), reversed({}.items()),
    iter(set()), iter(""), iter("\u20ac"), iter(b""), iter(bytearray()), iter(range(0)), iter(range(1 << 70)), reversed([]),
    iter(collections.deque()), reversed(collections.deque()), iter(collections.OrderedDict()), iter(types.GenericAlias(list, int)),
    itertools.count(), itertools.repeat(0), itertools.product(), itertools.permutations(()), itertools.combinations((), 0),
    itertools.combinations_with_replacement((), 0),
)  # fmt: skip
ITERATORS: tuple[type, ...] = tuple(type(it) for it in _SAMPLES)
"""Iterators over C containers and numbers: advancing one never runs Python code."""

DRIVERS: tuple[type, ...] = (
    zip, enumerate, reversed, itertools.chain, itertools.compress, itertools.cycle, itertools.islice, itertools.pairwise,
    itertools.zip_longest, type(itertools.tee(())[0]),
)  # fmt: skip
"""Iterators that advance other iterators: advancing one runs Python code if one of those does."""

CALLERS: tuple[type, ...] = (
    map, filter, itertools.accumulate, itertools.dropwhile, itertools.filterfalse, itertools.groupby, itertools.starmap,
    itertools.takewhile,
)  # fmt: skip
"""Iterators that call a function for each item; fineline runs their polyfills instead."""

EVERYWHERE: Mapping[str, str] = MappingProxyType(
    {
        "special": "__getattribute__ __setattr__ __delattr__ __init__ __reduce__ __reduce_ex__ __getstate__ __setstate__ __dir__ "
        "__init_subclass__ __subclasshook__ __get__ __set__ __delete__ __set_name__ __instancecheck__ __subclasscheck__ __call__",
        "pure none": "__class_getitem__ __sizeof__ __length_hint__ __getnewargs__",
        "-": "__del__ __alloc__",
    }
)

_NUMBER = "__new__ __format__"
_SEQUENCE_TEXT = "join translate maketrans __mod__ __rmod__ __contains__ __getitem__ __mul__ __rmul__ __format__ __new__ find rfind index "
_BYTES_TEXT = "rindex count startswith endswith center ljust rjust zfill expandtabs hex fromhex split rsplit splitlines replace"
_COMPARE = "__eq__ __ne__ __lt__ __le__ __gt__ __ge__"
_SET_COMPARE_AND_ALGEBRA = (
    f"{_COMPARE} __contains__ __and__ __rand__ __or__ __ror__ __sub__ __rsub__ __xor__ __rxor__ "
    "difference intersection isdisjoint issubset issuperset symmetric_difference union __hash__"
)

TYPES: tuple[TypeFacts, ...] = (
    TypeFacts(
        object,
        "special",
        {"pure none": "__eq__ __lt__ __le__ __gt__ __ge__ __sizeof__", "pure deep": "__ne__ __format__"},
    ),
    TypeFacts(int, "pure none", {"pure deep": f"{_NUMBER} from_bytes to_bytes __round__"}),
    TypeFacts(float, "pure none", {"pure deep": f"{_NUMBER} __round__"}),
    TypeFacts(complex, "pure none", {"pure deep": _NUMBER}),
    TypeFacts(bool, "pure none", {"pure deep": "__new__"}),
    TypeFacts(
        str,
        "pure none",
        {"pure deep": _SEQUENCE_TEXT + "rindex count format format_map startswith endswith center ljust rjust zfill expandtabs "
         "split rsplit splitlines replace removeprefix removesuffix"},
    ),
    TypeFacts(
        bytes,
        "pure none",
        {"pure deep": _SEQUENCE_TEXT + _BYTES_TEXT},
    ),
    TypeFacts(
        bytearray,
        "pure none",
        {
            "pure deep": _SEQUENCE_TEXT + _BYTES_TEXT,
            "mutator none": "clear pop reverse",
            "mutator deep": "append extend insert remove __delitem__ __iadd__ __imul__ __setitem__",
        },
    ),
    TypeFacts(
        list,
        "pure shallow",
        {
            "pure none": "__new__ __len__ __iter__ __reversed__ __class_getitem__",
            "pure deep": f"{_COMPARE} __contains__ __repr__ count index",
            "mutator shallow": "append clear extend insert pop reverse __delitem__ __iadd__ __imul__ __setitem__",
            "mutator deep": "remove sort",
        },
    ),
    TypeFacts(
        tuple,
        "pure shallow",
        {
            "pure none": "__len__ __iter__ __class_getitem__",
            "pure deep": f"{_COMPARE} __contains__ __hash__ __repr__ count index",
        },
    ),
    TypeFacts(
        dict,
        "pure shallow",
        {
            "pure none": "__new__ __len__ __iter__ __reversed__ keys values items __class_getitem__",
            "pure key": "__contains__ __getitem__ get fromkeys __or__ __ror__",
            "pure deep": f"{_COMPARE} __repr__",
            "mutator shallow": "clear popitem",
            "mutator key": "__delitem__ __setitem__ __ior__ pop setdefault update",
        },
    ),
    TypeFacts(
        collections.OrderedDict,
        "pure shallow",
        {
            "pure none": "__iter__ __reversed__ keys values items",
            "pure key": "fromkeys __or__ __ror__",
            "pure deep": f"{_COMPARE} __repr__",
            "mutator shallow": "clear popitem",
            "mutator key": "__delitem__ __setitem__ __ior__ move_to_end pop setdefault update",
        },
    ),
    TypeFacts(
        collections.defaultdict,
        "pure shallow",
        {"pure key": "__or__ __ror__", "pure deep": "__repr__", "callback key": "__missing__"},
    ),
    TypeFacts(
        set,
        "pure shallow",
        {
            "pure none": "__new__ __len__ __iter__ __class_getitem__",
            "pure key": _SET_COMPARE_AND_ALGEBRA,
            "pure deep": "__repr__",
            "mutator shallow": "clear pop",
            "mutator key": "add discard remove update difference_update intersection_update symmetric_difference_update __iand__ "
            "__ior__ __isub__ __ixor__",
        },
    ),
    TypeFacts(
        frozenset,
        "pure shallow",
        {"pure none": "__len__ __iter__ __class_getitem__", "pure key": _SET_COMPARE_AND_ALGEBRA + " __new__", "pure deep": "__repr__"},
    ),
    TypeFacts(
        collections.deque,
        "pure shallow",
        {
            "pure none": "__new__ __len__ __iter__ __reversed__ __class_getitem__",
            "pure deep": f"{_COMPARE} __contains__ __repr__ count index",
            "mutator shallow": "append appendleft clear extend extendleft insert pop popleft reverse rotate __delitem__ __iadd__ "
            "__imul__ __setitem__",
            "mutator deep": "remove",
        },
    ),
    TypeFacts(range, "pure none", {"pure deep": "__new__ __contains__ __getitem__ count index"}),
    TypeFacts(slice, "pure none", {"pure deep": f"{_COMPARE} __repr__ indices"}),
    TypeFacts(type(None), "pure none", {}),
    TypeFacts(type(...), "pure none", {}),
    TypeFacts(type(NotImplemented), "pure none", {}),
    TypeFacts(
        types.MappingProxyType,
        "pure shallow",
        {
            "pure none": "__new__ __len__ __iter__ __reversed__ keys values items __class_getitem__",
            "pure key": "__contains__ __getitem__ get __or__ __ror__ __ior__",
            "pure deep": f"{_COMPARE} __repr__ __str__",
        },
    ),
    TypeFacts(types.SimpleNamespace, "pure none", {"pure deep": f"{_COMPARE} __repr__"}),
    TypeFacts(
        type({}.keys()),
        "pure none",
        {"pure key": f"{_COMPARE} __contains__ isdisjoint __and__ __rand__ __or__ __ror__ __sub__ __rsub__ __xor__ __rxor__",
         "pure deep": "__repr__"},
    ),
    TypeFacts(type({}.values()), "pure none", {"pure deep": "__repr__"}),
    TypeFacts(
        type({}.items()),
        "pure none",
        {"pure deep": f"{_COMPARE} __contains__ isdisjoint __and__ __rand__ __or__ __ror__ __sub__ __rsub__ __xor__ __rxor__ __repr__"},
    ),
    TypeFacts(type, "special", {"pure none": "__new__ __or__ __ror__ __repr__ __sizeof__ mro", "special": "__call__ __prepare__ __new__"}),
    TypeFacts(super, "special", {}),
    TypeFacts(property, "special", {"pure none": "getter setter deleter"}),
    TypeFacts(staticmethod, "special", {}),
    TypeFacts(classmethod, "special", {}),
    TypeFacts(BaseException, "special", {"pure deep": "__repr__ __str__", "special": "__new__ add_note with_traceback"}),
    TypeFacts(types.FunctionType, "special", {"pure none": "__repr__"}),
    TypeFacts(types.MethodType, "special", {"pure deep": "__eq__ __ne__ __hash__ __repr__"}),
    TypeFacts(types.BuiltinFunctionType, "special", {"pure none": "__eq__ __ne__ __hash__ __repr__"}),
    TypeFacts(types.GeneratorType, "special", {"pure none": "__iter__ __repr__"}),
    TypeFacts(types.CodeType, "-", {"pure none": f"{_COMPARE} __hash__ __repr__ co_lines co_positions replace"}),
    TypeFacts(types.CellType, "pure none", {"pure deep": f"{_COMPARE} __repr__", "special": "__new__"}),
    TypeFacts(types.GenericAlias, "pure none", {"pure deep": f"{_COMPARE} __getitem__ __hash__ __repr__", "special": "__call__"}),
    TypeFacts(types.UnionType, "pure none", {"pure deep": f"{_COMPARE} __hash__ __repr__"}),
    TypeFacts(types.ModuleType, "special", {}),
    TypeFacts(functools.partial, "special", {"pure none": "__new__"}),
    TypeFacts(operator.itemgetter, "special", {"pure none": "__new__ __repr__ __reduce__", "callback deep": "__call__"}),
    TypeFacts(operator.attrgetter, "special", {"pure none": "__new__ __repr__ __reduce__", "callback deep": "__call__"}),
    TypeFacts(operator.methodcaller, "special", {"pure none": "__new__ __repr__ __reduce__", "callback deep": "__call__"}),
    TypeFacts(weakref.ref, "special", {}),
    TypeFacts(
        re.Pattern,
        "pure none",
        {"pure deep": f"{_COMPARE} __hash__", "callback deep": "sub subn", "-": "scanner", "special": "__copy__ __deepcopy__"},
    ),
    TypeFacts(re.Match, "pure none", {"pure deep": "__getitem__ group start end span", "special": "__copy__ __deepcopy__"}),
    *(TypeFacts(it, "special", {"pure none": "__iter__ __length_hint__ __copy__", "advance shallow": "__next__"}) for it in ITERATORS),
    *(
        TypeFacts(
            it,
            "special",
            {"pure none": "__iter__ __length_hint__ __copy__", "pure shallow": "from_iterable", "advance deep": "__next__"},
        )
        for it in DRIVERS
    ),
    *(TypeFacts(it, "special", {"pure none": "__iter__", "-": "__next__"}) for it in CALLERS),
)  # fmt: skip

C_DESCRIPTORS: tuple[type, ...] = (
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.BuiltinFunctionType,
)


def methods() -> Iterator[tuple[Any, str]]:
    """Yields each C method of each type above, unbound, with its class."""
    everywhere = _by_name(EVERYWHERE)
    for facts in TYPES:
        own = everywhere | _by_name(facts.differ)
        for name, attribute in vars(facts.type).items():
            value: Any = attribute.__func__ if is_a(attribute, staticmethod) else attribute
            if is_a(value, C_DESCRIPTORS):
                verdict = own.get(name, facts.default)
                if verdict != "-":
                    yield value, verdict
                    if is_a(value, types.ClassMethodDescriptorType):
                        yield getattr(facts.type, name), verdict


def _by_name(differ: Mapping[str, str]) -> dict[str, str]:
    return {name: verdict for verdict, names in differ.items() for name in names.split()}
