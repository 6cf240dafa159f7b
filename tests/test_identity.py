"""Tables whose keys are objects by identity: what is in them, who keeps it alive, and what runs when it goes."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from fineline import identity, identity_in_python

PYTHON_TYPES, NATIVE_TYPES = [(m.IdentityMap, m.IdentitySet, m.AddressMap, m.AddressSet) for m in (identity_in_python, identity)]
KINDS = [pytest.param(PYTHON_TYPES, id="python"), *[pytest.param(NATIVE_TYPES, id="native")] * (NATIVE_TYPES != PYTHON_TYPES)]


class Thing:
    """An object that equals all others, and says so only where nobody should ask it."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError("compared")

    def __hash__(self) -> int:
        raise AssertionError("hashed")

    def __repr__(self) -> str:
        raise AssertionError("printed")


@pytest.fixture(params=KINDS)
def kinds(request: pytest.FixtureRequest) -> Iterator[tuple[Any, Any, Any, Any]]:
    yield request.param


@pytest.fixture
def maps(kinds: tuple) -> list[Any]:
    return [kinds[0], kinds[2]]


@pytest.fixture
def sets(kinds: tuple) -> list[Any]:
    return [kinds[1], kinds[3]]


def things(n: int) -> list[Any]:
    return [Thing() for _ in range(n)]


def same(found: Any, expected: Any) -> bool:
    """Returns whether two lists hold the same objects."""
    return [id(x) for x in found] == [id(x) for x in expected]


# -- what is in them ---------------------------------------------------------------------------------------------------


def test_a_map_tells_objects_apart_by_identity(maps: list) -> None:
    one, other = things(2)
    for cls in maps:
        table = cls()
        assert not table and one not in table and table.get(one) is None and table.get(one, 3) == 3
        table[one] = "one"
        assert table and len(table) == 1 and one in table and other not in table
        assert table[one] == table.get(one) == table.get(one, 3) == table.setdefault(one, "two") == "one"
        table[one] = "two"
        assert table.setdefault(other, "three") == table[other] == "three" and table.values() == ["two", "three"]


def test_equal_numbers_are_different_keys(kinds: tuple) -> None:
    number, equal = float("1000.5"), float("1000.5")
    assert number in kinds[0]([(number, 1)]) and equal not in kinds[0]([(number, 1)])
    assert number in kinds[1]([number]) and equal not in kinds[1]([number])


def test_a_map_lets_go_of_entries(maps: list) -> None:
    one, other = things(2)
    for cls in maps:
        table = cls([(one, 1), (other, 2)])
        assert table.pop(one) == 1 and table.pop(one, None) is None and table.pop(one, 7) == 7 and one not in table
        del table[other]
        assert len(table) == 0 and table.values() == []
        table.update([(one, 1), (other, 2)])
        table.clear()
        assert not table and one not in table
        table[one] = 3
        assert table.values() == [3]


def test_a_missing_key_is_an_error_that_asks_the_key_nothing(maps: list) -> None:
    for cls in maps:
        table, key = cls(), Thing()
        for ask in (lambda: table[key], lambda: table.pop(key), lambda: table.__delitem__(key)):
            with pytest.raises(KeyError, match="an object of type Thing"):
                ask()
        ref = weakref.ref(key)
        try:
            table[key]
        except KeyError as error:
            del key, ask
            error.__traceback__ = None
            assert ref() is None


def test_a_set_tells_objects_apart_by_identity(sets: list) -> None:
    one, other = things(2)
    for cls in sets:
        table = cls()
        assert not table and one not in table
        for _ in range(2):
            table.add(one)
            assert table and len(table) == 1 and one in table and other not in table
        table.update((one, other))
        assert len(table) == 2 and other in table
        table.discard(one)
        table.discard(one)
        assert one not in table and len(table) == 1
        table.clear()
        assert not table and other not in table


def test_copies_are_tables_of_their_own(kinds: tuple) -> None:
    one, other = things(2)
    for cls in (kinds[0], kinds[2]):
        table = cls([(one, 1)])
        copy = table.copy()
        copy[other], copy[one] = 2, 3
        assert type(copy) is cls and table.values() == [1] and copy.values() == [3, 2]
    for cls in (kinds[1], kinds[3]):
        table = cls((one,))
        copy = table.copy()
        copy.add(other)
        assert type(copy) is cls and other not in table and one in copy and other in copy


def test_tables_keep_the_order_of_insertion(kinds: tuple) -> None:
    keys = things(50)
    table = kinds[0]([(key, i) for i, key in enumerate(keys)])
    table[keys[3]] = -3
    assert same(table, keys) and table.values() == [0, 1, 2, -3, *range(4, 50)]
    table.pop(keys[3])
    table[keys[3]] = 50
    assert table.values() == [0, 1, 2, *range(4, 51)] and same([key for key, _ in table.items()], list(table))
    assert same(kinds[1](keys), keys)


def test_a_table_does_what_a_dict_does(kinds: tuple) -> None:
    """Many objects come and go, so that the index grows, fills with deleted entries and is made anew."""
    keys = things(300)
    table, group, model = kinds[0](), kinds[3](), dict[int, int]()
    for turn in range(5000):
        key = keys[turn * turn % 300 if turn % 3 else turn % 7]
        if turn % 5 in (0, 3) and id(key) in model:
            assert table.pop(key) == model.pop(id(key))
            group.discard(key)
        else:
            table[key] = model[id(key)] = turn
            group.add(key)
        assert len(table) == len(group) == len(model)
    assert table.values() == [*model.values()] and [id(key) for key in table] == [*model]
    assert all((key in table) is (key in group) is (id(key) in model) for key in keys)


def test_what_lists_a_table_may_change_it(kinds: tuple) -> None:
    keys = things(5)
    table = kinds[0]([(key, key) for key in keys])
    for key in table:
        table.pop(key)
        table[Thing()] = None
    assert len(table) == 5 and not any(key in table for key in keys)


def test_addresses_of_tables(kinds: tuple) -> None:
    one, two, three = things(3)
    found = kinds[2]([(one, 1), (two, 2)]).addresses()
    assert type(found) is kinds[3] and len(found) == 2 and one in found and two in found
    both = found.intersection(kinds[3]((three, two)))
    assert type(both) is kinds[3] and len(both) == 1 and two in both and not found.intersection(kinds[3]())
    joined = kinds[3]((three,))
    joined.update(found)
    assert len(joined) == 3 and one in joined


def test_values_at_addresses(kinds: tuple) -> None:
    one, two, three = things(3)
    table = kinds[0]([(one, "one"), (two, "two")])
    assert table.at(kinds[3]((three, two))) == ["two"] and table.at(kinds[3]()) == []


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_what_borrows_its_keys_does_not_give_them(kinds: tuple) -> None:
    for table in (kinds[2](), kinds[3]()):
        with pytest.raises(TypeError, match="not iterable"):
            iter(table)
    with pytest.raises(TypeError, match="not iterable"):
        kinds[1](kinds[3]())
    assert not hasattr(kinds[2], "items") and not hasattr(kinds[2], "keys")


@pytest.mark.parametrize("pairs", [(1,), [[1, 2]], [(1, 2, 3)]], ids=repr)
def test_a_map_is_made_of_pairs(maps: list, pairs: Any) -> None:
    for cls in maps:
        with pytest.raises(TypeError, match="a map is made of pairs"):
            cls(pairs)


def test_wrong_arguments(kinds: tuple) -> None:
    for cls in kinds:
        for wrong in (lambda cls=cls: cls(1), lambda cls=cls: cls((), ()), lambda cls=cls: cls(pairs=())):
            with pytest.raises(TypeError):
                wrong()
    for wrong in (lambda: kinds[0]().get(), lambda: kinds[0]().pop(1, 2, 3), lambda: kinds[2]().setdefault(1)):
        with pytest.raises(TypeError):
            wrong()
    for wrong in (lambda: kinds[0]().at([1]), lambda: kinds[3]().intersection({1})):
        with pytest.raises(TypeError, match="takes an AddressSet"):
            wrong()
    with pytest.raises(TypeError):
        kinds[0](kinds[2]())


def test_an_error_of_an_iterable_comes_out(kinds: tuple) -> None:
    one = Thing()
    for cls, first in ((kinds[0], (one, 1)), (kinds[3], one)):
        table = cls()

        def give(first: Any = first) -> Iterator[Any]:
            yield first
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            table.update(give())
        assert one in table


# -- who keeps a key alive ---------------------------------------------------------------------------------------------


def test_what_owns_its_keys_keeps_them_alive(kinds: tuple) -> None:
    for table, put in ((kinds[0](), lambda t, k: t.__setitem__(k, 1)), (kinds[1](), lambda t, k: t.add(k))):
        for let_go in (lambda t, k: t.clear(), lambda t, k: t.pop(k) if hasattr(t, "pop") else t.discard(k)):
            key = Thing()
            ref = weakref.ref(key)
            put(table, key)
            put(table, key)
            del key
            assert ref() in table
            let_go(table, ref())
            assert ref() is None and not table


def test_a_table_that_goes_lets_go_of_its_keys(kinds: tuple) -> None:
    key, value = things(2)
    refs = weakref.ref(key), weakref.ref(value)
    tables = [kinds[0]([(key, value)]), kinds[1]((key,)), kinds[2]([(value, value)])]
    del key, value
    assert all(ref() is not None for ref in refs)
    tables.clear()
    assert all(ref() is None for ref in refs)


def test_what_borrows_its_keys_keeps_only_values_alive(kinds: tuple) -> None:
    key, value = things(2)
    refs = weakref.ref(key), weakref.ref(value)
    table, group = kinds[2]([(key, value)]), kinds[3]((key,))
    count = sys.getrefcount(key)
    group.copy()
    table.copy()
    assert sys.getrefcount(key) == count
    del key, value
    assert refs[0]() is None and refs[1]() is not None and len(table) == len(group) == 1
    table.clear()
    assert refs[1]() is None


def test_another_object_may_get_a_borrowed_address(kinds: tuple) -> None:
    key = Thing()
    table, group, address = kinds[2]([(key, weakref.ref(key))]), kinds[3]((key,)), id(key)
    del key
    kept = []
    for _ in range(10_000):
        kept.append(Thing())
        if id(kept[-1]) == address:
            # As with a dict by ``id()``: the entry is found, and its value has to tell.
            assert kept[-1] in table and kept[-1] in group and table[kept[-1]]() is None
            assert kinds[0]([(kept[-1], "there now")]).at(group) == ["there now"]
            break
    else:
        pytest.skip("the address is not given again")


def test_references_are_counted_once(kinds: tuple) -> None:
    key, value = things(2)
    before = sys.getrefcount(key), sys.getrefcount(value)
    table = kinds[0]()
    for _ in range(3):
        table[key] = value
        table.setdefault(key, value)
        table.update([(key, value)])
        table.update(table.copy())
    assert (sys.getrefcount(key), sys.getrefcount(value)) == (before[0] + 1, before[1] + 1)
    list(table), table.items(), table.values(), table.get(key), table[key]
    assert (sys.getrefcount(key), sys.getrefcount(value)) == (before[0] + 1, before[1] + 1)
    del table[key]
    assert (sys.getrefcount(key), sys.getrefcount(value)) == before


@pytest.mark.parametrize("at", [0, 1, 2])
def test_cycles_through_tables_are_collected(kinds: tuple, at: int) -> None:
    key, value = things(2)
    table = kinds[at]() if at == 1 else kinds[at]([(key, value)])
    if at == 1:
        table.add(key)
    key.table = value.table = table
    assert any(found in (id(key), id(value)) for found in map(id, gc.get_referents(table))) or type(table) in PYTHON_TYPES
    refs = weakref.ref(key), weakref.ref(value)
    del key, value, table
    gc.collect()
    assert refs[0]() is None and refs[1]() is None


def test_what_goes_may_use_the_table(kinds: tuple) -> None:
    seen = []

    class Last(Thing):
        def __del__(self) -> None:
            seen.append(len(table))
            table[seen] = self.__class__
            table.pop(seen)

    table = kinds[0]([(Last(), Last()) for _ in range(20)])
    table.clear()
    assert seen == [0] * 40 and not table
    table.update([(key, Last()) for key in things(20)])
    for key in table:
        table[key] = None
        table.pop(key)
    assert len(seen) == 60 and not table


def test_subclasses_of_a_set_that_borrows(kinds: tuple) -> None:
    class All(kinds[3]):  # type: ignore[misc, name-defined]
        def __contains__(self, item: object) -> bool:
            return True

    one = Thing()
    group = All()
    assert one in group and len(group) == 0
    group.add(one)
    assert len(group) == 1 and type(group.copy()) is kinds[3]
    group.itself = group
    ref = weakref.ref(group)
    del group
    gc.collect()
    assert ref() is None


@pytest.mark.skipif(NATIVE_TYPES == PYTHON_TYPES, reason="there is no native core")
@pytest.mark.parametrize("at", range(4))
def test_both_kinds_of_types_offer_the_same(at: int) -> None:
    native, python = [{name for name in dir(types[at]) if not name.startswith("_")} for types in (NATIVE_TYPES, PYTHON_TYPES)]
    assert native == python and NATIVE_TYPES[at].__qualname__ == PYTHON_TYPES[at].__qualname__
