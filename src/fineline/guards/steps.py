"""The instruction set of guard programs: steps that read values, and steps that check them.

A guard program is a list of steps over registers. A step is a tuple
``(op, dst, src, payload)``; ``dst`` and ``src`` are register numbers, less than
the number of steps (-1 where unused). Access steps fill ``dst``; check steps
only pass or fail. Any failing step, and any exception raised while a step is
evaluated, is a miss. Steps are in the order in which capture made the reads, so
a step may rely on all before it.

Access steps                        payload
  root        a call's raw argument          its position (positionals, then keyword values in call order)
  pin         an object held by the program  the object
  dict        ``__dict__`` of ``src``        None
  key         raw dict item of ``src``       the key (missing: miss)
  index       tuple or list item             the index, >= 0 (out of range: miss)
  cell        contents of a cell             None (empty: miss)
  member      a C descriptor's value         the getset or member descriptor (``type(d).__get__(d, src)``)
  type_attr   raw MRO lookup, no binding     (type, name) (missing: miss); no ``src``

Check steps                         payload
  is          identity                       the object
  type        exact type                     the type
  eq          same type and equal value      a constant: None, bool, int, float (bitwise), complex, str, bytes,
                                             dtype, device, ..., and tuples, slices, ranges, frozensets of these
  len         length of list/tuple/dict/set  the length (raw C length, no user ``__len__``)
  keys        keys of a dict, in order       tuple of keys (compared by identity, else type and ``==``)
  absent      a dict has no such key         the key
  type_lacks  nothing in the MRO             (type, name); no ``src``
  function    a Python function's code       (code, defaults, kwdefaults): code by identity; each of the two others
                                             None or a tuple/dict compared by identity
  same        two registers, one object      the other register
  distinct    which registers are not one    (ones, others): the objects of ``ones`` differ from each other and from those of
                                             ``others``; no ``src``
  tensor      metadata of a tensor           ``facts.tensor_facts(t)``; sizes and strides may be None: any
  storages    which tensors share storage    (registers, pattern): pattern[i] is the first position with i's storage
  ambient     process and thread state       ``facts.ambient_facts()``; no ``src``
  weak        identity with a live object    a weakref.ref
  set_eq      a set of constants             a frozenset
  predicate   anything else                  (callable(value) -> bool, text)
  relation    between sizes and numbers      (leaves, code, text); no ``src``. A leaf is (kind, register, index): the size or
                                             stride at an index, or the offset, of a tensor, or a number that the register
                                             holds itself; ``postfix.run(code, leaves)`` must be true
"""

from __future__ import annotations

from typing import TypeVar

# The type of a payload goes with the op of its step.
PayloadT = TypeVar("PayloadT")
Step = tuple[str, int, int, PayloadT]

ACCESS = frozenset({"root", "pin", "dict", "key", "index", "cell", "member", "type_attr"})
CHECKS = frozenset(
    {
        "is", "type", "eq", "len", "keys", "absent", "type_lacks", "function", "same", "distinct", "tensor", "storages",
        "ambient", "weak", "set_eq", "predicate", "relation",
    }
)  # fmt: skip
