"""Loops over lists, views, iterators and loaders with graph breaks in them: the iterations share their programs, and are right where they can't."""

from __future__ import annotations

import collections
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler, TensorDataset

import fineline
from fineline.report.events import LISTENERS
from tests.oracle import Program, Table, check, t

table = Table()
# The batches of each call: their number changes, and so do the numbers in them.
LENGTHS = (6, 9, 6, 11, 3)


def batches(place: int) -> tuple[list[torch.Tensor]]:
    return ([t(100 * place + k, 2, 3) for k in range(LENGTHS[place])],)


ANY: dict[str, Any] = {"calls": 5, "args": batches, "breaks": True, "recompiles": tuple(range(5)), "backward": False}


def step(x: Any, total: float = 0.0) -> float:
    return total + (x * 2).sin().sum().item()


def counted(iterable: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    n = 0
    try:
        for x in iterable:
            n += 1
            yield n, x
    finally:
        fineline.graph_break()


class Progress:
    """A wrapper as progress bars are."""

    def __init__(self, iterable):
        self.iterable, self.n = iterable, 0

    def __iter__(self):
        for x in self.iterable:
            yield x
            self.n += 1

    def __len__(self):
        return len(self.iterable)


class Stream(IterableDataset):
    def __iter__(self):
        return iter([t(k, 3) for k in range(8)])


# -- what the iterations give -----------------------------------------------------------------------------------------------------
def over_list(b, total=0.0):
    for x in b:
        total = step(x, total)
    return total


def over_enumerate(b, total=0.0):
    for i, x in enumerate(b, 5):
        total = step(x, total) + i
    return total


def over_zip(b, total=0.0):
    for x, y, k in zip(b, reversed(b), range(len(b)), strict=True):
        total = step(x + y, total) + k
    return total


def over_values(b, total=0.0):
    for x in dict(enumerate(b)).values():
        total = step(x, total)
    return total


def over_items(b, total=0.0):
    for k, x in dict(enumerate(b)).items():
        total = step(x, total) + k
    return total


def over_split(b, total=0.0):
    for x in torch.cat(b).split(2):
        total = step(x, total)
    return total


def over_rows(b, total=0.0):
    for x in torch.cat(b):
        total = step(x, total)
    return total


def over_generator(b, total=0.0):
    for x in (x * 3 for x in b):
        total = step(x, total)
    return total


def over_generator_function(b, total=0.0):
    for n, x in counted(b):
        total = step(x, total) + n
    return total


def over_enumerated_generator(b, total=0.0):
    for i, (n, x) in enumerate(counted(b)):
        total = step(x, total) + n * i
    return total


def over_map(b, total=0.0):
    for x in map(lambda x: x + 1, b):
        total = step(x, total)
    return total


def over_filter(b, total=0.0):
    for x in filter(lambda x: x.dim() == 2, b):
        total = step(x, total)
    return total


def over_chain(b, total=0.0):
    for x in itertools.chain(b, tuple(b)):
        total = step(x, total)
    return total


def over_slice(b, total=0.0):
    for x in itertools.islice(b, 1, None):
        total = step(x, total)
    return total


def over_count(b, total=0.0):
    for k, x in zip(itertools.count(3), b):
        total = step(x, total) + k
    return total


def over_pairs(b, total=0.0):
    for x, y in itertools.pairwise(b):
        total = step(x - y, total)
    return total


def over_progress(b, total=0.0):
    for x in Progress(b):
        total = step(x, total)
    return total


def in_a_called_function(b, total=0.0):
    return over_list(b, over_enumerate(b, total))


def in_a_comprehension(b):
    return [step(x) for x in b]


def in_a_generator_expression(b):
    return sum(step(x) for x in b)


def to_the_end(b, total=0.0):
    for x in b:
        if x.dim() == 7:
            break
        total = step(x, total)
    else:
        total += 1
    return total


SHARED = [
    over_list, over_enumerate, over_zip, over_values, over_items, over_split, over_rows, over_generator, over_generator_function,
    over_enumerated_generator, over_map, over_filter, over_chain, over_slice, over_count, over_pairs, over_progress, in_a_called_function,
    in_a_comprehension, in_a_generator_expression, to_the_end,
]  # fmt: skip
for fn in SHARED:
    table.snippet(**ANY)(fn)


def programs(compiled: Callable, fn: Callable, lengths: Iterable[int]) -> list[int]:
    """How many programs each call with so many batches makes."""
    found, before = [], LISTENERS.all
    for n in lengths:
        heard: list[str] = []
        b = [t(n + k, 2, 3) for k in range(n)]
        expected = fn(b)
        LISTENERS.all = (*before, lambda event, heard=heard: heard.append(event.kind))
        try:
            assert compiled(b) == expected
        finally:
            LISTENERS.all = before
        found.append(heard.count("program"))
    return found


@pytest.mark.parametrize("fn", SHARED, ids=lambda fn: fn.__name__)
def test_iterations_share_their_programs(fn: Callable) -> None:
    """A first call of 20 iterations makes a few more than one for each of the first iterations; calls with more batches add next to none."""
    found = programs(fineline.compile(fn, backend="eager"), fn, [20, 20, 60, 41])
    assert found[0] <= 17 and found[1] <= 5
    assert max(found[2:]) <= 6


def test_the_second_call_is_not_captured_iteration_by_iteration() -> None:
    """A total that the iterations add to varies from the first call on."""
    model = torch.nn.Linear(3, 3)
    optimizer = torch.optim.AdamW(model.parameters())

    def train(b):
        total = 0.0
        for x in b:
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            total += loss.item()
        return total

    compiled, found = fineline.compile(train, backend="eager"), []
    before = LISTENERS.all
    for place in range(3):
        heard: list[str] = []
        LISTENERS.all = (*before, lambda event, heard=heard: heard.append(event.kind))
        try:
            compiled([t(place * 50 + k, 2, 3) for k in range(16)])
        finally:
            LISTENERS.all = before
        found.append(heard.count("program"))
    assert found[1] < found[0] / 2 and not found[2]


# -- loaders -----------------------------------------------------------------------------------------------------------------
def loader(place: int, **options: Any) -> DataLoader:
    generator = torch.Generator().manual_seed(place)
    return DataLoader(TensorDataset(torch.stack([t(k, 3) for k in range(12)])), 2, generator=generator, **options)


LOADERS: dict[str, Callable[[int], Any]] = {
    "plain": loader,
    "shuffled": lambda place: loader(place, shuffle=True),
    "one_worker": lambda place: loader(place, num_workers=1),
    "batch_sampler": lambda place: DataLoader(
        TensorDataset(torch.stack([t(k, 3) for k in range(12)])), batch_sampler=BatchSampler(SequentialSampler(range(12)), 5, False)
    ),
    "stream": lambda place: DataLoader(Stream(), 3, collate_fn=lambda items: (torch.stack(items),)),
}


@pytest.mark.parametrize("enumerated", [False, True], ids=["plainly", "enumerated"])
@pytest.mark.parametrize("kind", LOADERS)
def test_loaders(kind: str, enumerated: bool) -> None:
    """The model in the loop's body is captured, and nothing of it runs eagerly."""

    def plain(data):
        total = 0.0
        for (x,) in data:
            total += (x.sin() * 2).cos().sum().item()
        return total

    def numbered(data):
        total = 0.0
        for i, (x,) in enumerate(data):
            total += (x.sin() * 2).cos().sum().item() + i
        return total

    fn = numbered if enumerated else plain
    told = fineline.explain(fn)(LOADERS[kind](0))
    assert not [e.reason for e in told.events if e.id == "FL409"]
    compiled = fineline.compile(fn, backend="eager")
    for place in range(4):
        torch.manual_seed(place)
        expected = fn(LOADERS[kind](place))
        torch.manual_seed(place)
        assert compiled(LOADERS[kind](place)) == expected


# -- where iterations differ, and what moves while they run -----------------------------------------------------------------------
@fineline.disable
def grow(items: list, k: int) -> None:
    if len(items) < 9:
        items.append(torch.ones(2, 3) * k)


@table.snippet(**ANY)
def that_eager_code_adds_to(b):
    b, total = list(b), 0.0
    for k, x in enumerate(b):
        total += (x * k).sum()
        grow(b, k)
    return total, len(b)


@table.snippet(**ANY)
def that_the_body_adds_to(b):
    b, total, n = list(b), 0.0, len(b)
    for x in b:
        total = step(x, total)
        if len(b) < n + 3:
            b.append(x * 2)
    return total, len(b)


@table.snippet(**ANY)
def that_the_body_takes_from(b):
    b, total = list(b), 0.0
    for x in b:
        total = step(x, total)
        b.pop(0)
    return total, len(b)


@table.snippet(**ANY)
def over_an_argument_that_the_body_writes_to(b):
    total = 0.0
    for k, x in enumerate(b):
        total = step(x, total)
        b[-1] = x * k
    return total, b[-1]


@table.snippet(**ANY)
def over_a_dict_that_eager_code_adds_to(b):
    held, total = dict(enumerate(b)), 0.0
    try:
        for k in held:
            total = step(held[k], total)
            if k == 2:
                other(held)
    except RuntimeError as e:
        return total, str(e)
    return total


@fineline.disable
def other(held: dict) -> None:
    held["more"] = 1


@table.snippet(**ANY)
def over_one_iterator_twice(b):
    it, total = iter(b), 0.0
    for x in it:
        total = step(x, total)
        if x is b[1]:
            break
    return total, [step(x) for x in it], next(it, None)


@table.snippet(**ANY)
def over_an_iterator_that_two_read(b):
    it, total = iter(b), 0.0
    for x, y in zip(it, it):
        total = step(x - 2 * y, total)
    return total, len(list(it))


@table.snippet(**ANY)
def over_an_iterator_that_a_list_holds(b):
    held = [iter(b), enumerate(b)]
    total = 0.0
    for x in held[0]:
        total = step(x, total) + next(held[1])[0]
    return total, len(list(held[1]))


@table.snippet(**ANY)
def that_give_back_the_iterator(b):
    it, total = iter(b), 0.0
    for x in it:
        total = step(x, total)
        break
    return total, list(it)


@table.snippet(**ANY)
def over_iterators_in_turn(b):
    iterators, total = [iter(b), iter(b[::-1])], 0.0
    while iterators:
        for it in list(iterators):
            try:
                total = step(next(it), total) * 0.5
            except StopIteration:
                iterators.remove(it)
    return total


@table.snippet(**ANY)
def in_one_another(b):
    total, seen = 0.0, []
    for i, x in enumerate(b):
        for k, y in zip(range(i), b):
            total = step(x + y, total) * 0.5
            seen.append((i, k))
            if k == 3:
                break
        else:
            continue
        seen.append(i)
    return total, seen


@table.snippet(**ANY)
def over_things_of_other_kinds(b):
    total = 0.0
    for x in [*b, b[0].double(), b[0][0], 3, "word", None, b[0]]:
        total = total * 0.5 + (step(x) if isinstance(x, torch.Tensor) else len(str(x)))
        fineline.graph_break()
    return total


@table.snippet(**ANY)
def over_texts(b):
    total = 0.0
    for word in ("a", "b", "cc", *"defg"):
        total = step(b[0], total) + len(word) * ord(word[0])
    return total


@table.snippet(**ANY)
def over_a_deque_and_a_set(b):
    total = 0.0
    for x in collections.deque(b):
        total = step(x, total)
    for k in {1, 2, 3}:
        total = step(b[k % 2], total) * k
    return total


@table.snippet(**ANY)
def over_a_cycle(b):
    total = 0.0
    for k, x in zip(itertools.cycle([1, 2]), b):
        total = step(x, total) * k
    return total


@table.snippet(**ANY)
def over_what_is_the_same_twice(b):
    total = 0.0
    for x, y in zip(b, [b[0], *b[1:3], b[0], *b]):
        total = step(x, total) + (x is y)
    return total


@table.snippet(**ANY)
def that_add_up_a_list_of_numbers(b):
    found = [0.5]
    for i in range(len(b)):
        found.append(step(b[0] * i))
    return sum(found)


@table.snippet(**ANY)
def whose_iterator_is_asked(b):
    it = iter(b)
    fineline.graph_break()
    y = next(it) * 2
    found = [it.__length_hint__(), operator.length_hint(it), type(it).__length_hint__(it), it.__reduce__()[2], iter(it) is it, type(it).__name__]
    it.__setstate__(0)
    return y, found, it.__next__(), b[1] in it


@table.snippet(**ANY)
def whose_iterator_goes_elsewhere(b):
    held, it = collections.deque(), iter(b)
    fineline.graph_break()
    y = next(it) * 2
    held.append(it)
    fineline.graph_break()
    return y, list(itertools.islice(held[0], 1)), next(it, 5), sum(1 for _ in it)


LAYERS = [torch.nn.Linear(3, 3) for _ in range(6)] + [torch.nn.Linear(3, 4), torch.nn.Linear(4, 3)]


@table.snippet(**ANY)
def over_layers_in_a_list(b):
    x = b[0]
    for name, layer in [(f"layer {k}", layer) for k, layer in enumerate(LAYERS)]:
        x = layer(x)
        if not x.isfinite().all():
            return name
    return x.detach()


# -- texts that the iterations go through ----------------------------------------------------------------------------------------
def over_texts_in_a_list(b, total=0.0):
    for s in [f"n{i}" for i in range(len(b))]:
        total = step(b[0], total) + len(s)
    return total


def over_letters(b, total=0.0):
    for s in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ12345678"[: len(b)]:
        total = step(b[0], total) + (s == "c")
    return total


def over_words(b, total=0.0):
    for _ in " ".join(f"w{i}" for i in range(len(b))).split():
        total = step(b[0], total)
    return total


def over_a_set_of_texts(b, total=0.0):
    for s in sorted({f"n{i}" for i in range(len(b))}):
        total = step(b[0], total) + s.endswith("1")
    return total


def over_keys(b, total=0.0):
    for _ in {f"k{i}": x for i, x in enumerate(b)}:
        total = step(b[0], total)
    return total


def over_keys_that_are_used(b, total=0.0):
    named = {f"k{i}": x for i, x in enumerate(b)}
    for k in named.keys():
        total = step(named[k], total)
    return total


def over_named_items(b, total=0.0):
    for _, x in {f"k{i}": x for i, x in enumerate(b)}.items():
        total = step(x, total)
    return total


def that_fill_a_dict(b):
    found = {}
    for k, x in {f"k{i}": x for i, x in enumerate(b)}.items():
        found[k] = step(x)
    return found


def over_numbered_texts(b, total=0.0):
    for i, s in enumerate([f"n{i}" for i in range(len(b))]):
        total = step(b[i], total) + len(s)
    return total


def over_texts_beside_tensors(b, total=0.0):
    for s, x in zip([f"n{i}" for i in range(len(b))], b, strict=True):
        total = step(x, total) + ("n3" in s)
    return total


def that_keep_the_texts(b):
    kept = []
    for s in [f"n{i}" for i in range(len(b))]:
        kept.append((s, step(b[0])))
    return kept


OVER_TEXTS = [
    over_texts_in_a_list, over_letters, over_words, over_a_set_of_texts, over_keys, over_keys_that_are_used, over_named_items, that_fill_a_dict,
    over_numbered_texts, over_texts_beside_tensors, that_keep_the_texts,
]  # fmt: skip
for fn in OVER_TEXTS:
    table.snippet(**ANY)(fn)


@pytest.mark.parametrize("fn", OVER_TEXTS, ids=lambda fn: fn.__name__)
def test_texts_do_not_tell_the_iterations_apart(fn: Callable) -> None:
    counts = [sum(programs(fineline.compile(fn, backend="eager"), fn, [n])) for n in (40, 60)]
    assert counts[1] <= counts[0] < 24


# -- lists that a loop reads item by item -----------------------------------------------------------------------------------
def mixed(place: int) -> tuple[list[Any]]:
    items = [1, 2.5, "text", None, t(place, 3), [t(place + 1, 2)], (t(place + 2, 2), 3), 7 + place]
    return (items[place:] + items[:place],)


@table.snippet(calls=6, args=mixed, breaks=True, recompiles=tuple(range(6)), backward=False)
def over_values_of_all_kinds(b):
    found = []
    for x in b:
        y = x[0] if type(x) in (list, tuple) else x
        found.append((y * 2).sum().item() if isinstance(y, torch.Tensor) else y)
    return found


@table.snippet(calls=6, args=mixed, breaks=True, recompiles=tuple(range(6)), backward=False)
def that_leave_at_an_item(b):
    total = 0.0
    for x in b:
        if x is None:
            break
        if isinstance(x, torch.Tensor):
            total = step(x, total)
    else:
        return -1
    return total


@table.snippet(calls=6, args=lambda place: ([t(k, 2) for k in range(place % 3)],), recompiles=tuple(range(6)))
def without_a_break(b):
    total = torch.zeros(2)
    for x in b:
        total = total + x
    return total


@table.snippet(calls=6, args=lambda place: ([t(0, 2), t(1, 2 + place % 2), place // 3],), recompiles=tuple(range(6)), backward=False)
def of_which_one_item_changes(b):
    total = torch.zeros(())
    for x in b:
        total = total + (x if type(x) is int else x.sum())
    return total


@table.snippet(calls=4, args=lambda place: ([t(k, 2) for k in range(3)],))
def that_write_to_the_list_first(b):
    b[1] = b[0] * 2
    total = torch.zeros(2)
    for x in b:
        total = total + x
    return total


@table.snippet(calls=4, args=lambda place: ([t(k, 2) for k in range(3 + place)],), recompiles=tuple(range(4)))
def that_write_behind_the_first_item(b):
    total = torch.zeros(2)
    for x in b:
        total = total + x
        if len(b) < 8:
            b.append(x * 2)
        b[-1] = x + 1
    return total, len(b)


@table.snippet(calls=4, args=lambda place: ([t(k, 2) for k in range(3 + place)],), recompiles=tuple(range(4)))
def over_the_same_list_within(b):
    total = torch.zeros(2)
    for x in b:
        for y in b:
            total = total + x * y
            if y is x:
                break
    return total


def over_reversed(b, total=0.0):
    for x in reversed(b):
        total = step(x, total)
    return total


def over_a_sorted_list(b, total=0.0):
    for x in sorted(b, key=lambda x: x.dim()):
        total = step(x, total)
    return total


def over_a_tuple_of_it(b, total=0.0):
    for x in tuple(b):
        total = step(x, total)
    return total


def over_a_deque(b, total=0.0):
    for x in collections.deque(b):
        total = step(x, total)
    return total


def while_there_is_one(b, total=0.0):
    q = collections.deque(b)
    while q:
        total = step(q.popleft(), total)
    return total


def over_slices(b, total=0.0):
    for i in range(0, len(b), 2):
        total = step(torch.stack(b[i : i + 2]), total)
    return total


def over_items_of_slices(b, total=0.0):
    for i in range(0, len(b) - 1, 2):
        for x in b[i : i + 2]:
            total = step(x, total)
    return total


def over_numbers_below_its_length(b, total=0.0):
    for i in range(len(b)):
        total = step(b[i], total)
    return total


def over_numbers_in_a_comprehension(b):
    return [step(b[0] * i) for i in range(len(b))]


def divided_by_its_length(b, total=0.0):
    for x in b:
        total = step(x, total) / len(b)
    return total


def strictly_together(b, total=0.0):
    for i, (x, y) in enumerate(zip(b, b, strict=True)):
        total = step(x + y, total) + i
    return total


ANY_LENGTH = [
    over_list, over_enumerate, over_map, over_progress, over_slice, over_pairs, in_a_comprehension,
    in_a_generator_expression, to_the_end, over_reversed, over_a_sorted_list, over_a_tuple_of_it, over_a_deque,
    over_slices, over_numbers_below_its_length, over_numbers_in_a_comprehension, divided_by_its_length, strictly_together,
]  # fmt: skip
for fn in (
    over_reversed, over_a_sorted_list, over_a_tuple_of_it, over_a_deque, while_there_is_one, over_slices, over_items_of_slices,
    over_numbers_below_its_length, over_numbers_in_a_comprehension, divided_by_its_length, strictly_together,
):  # fmt: skip
    table.snippet(**ANY)(fn)


@pytest.mark.parametrize("fn", [over_a_deque, over_slices, over_items_of_slices], ids=lambda fn: fn.__name__)
def test_the_programs_do_not_grow_with_the_iterations(fn: Callable) -> None:
    counts = [sum(programs(fineline.compile(fn, backend="eager"), fn, [n])) for n in (20, 40, 80)]
    assert counts[0] == counts[1] == counts[2] < 16


@fineline.disable
def add_to(q: collections.deque, x: torch.Tensor) -> None:
    q.append(x)


@table.snippet(**ANY)
def over_a_deque_that_eager_code_adds_to(b):
    q, total = collections.deque(b), 0.0
    try:
        for k, x in enumerate(q):
            total = step(x, total)
            if k == 2:
                add_to(q, x)
                q.popleft()
    except RuntimeError as e:
        return total, str(e)
    return total


@table.snippet(**ANY)
def over_a_deque_that_the_body_adds_to(b):
    q, total = collections.deque(b), 0.0
    try:
        for x in q:
            total = step(x, total)
            if total > 1.0:
                q.append(x)
    except RuntimeError as e:
        return total, str(e)
    return total


@pytest.mark.parametrize("container", [dict, collections.deque, tuple], ids=lambda t: t.__name__)
def test_other_containers_of_any_length(container: type) -> None:
    """A tuple that the call is given is guarded on its length: the recompile limit holds."""

    def total_of(b):
        total = 0.0
        for x in b.values() if type(b) is dict else b:
            total = step(x, total)
        return total

    compiled = fineline.compile(total_of, backend="eager")
    for n in range(8, 24):
        items = [t(n + k, 2, 3) for k in range(n)]
        b = dict(enumerate(items)) if container is dict else container(items)
        assert compiled(b) == total_of(b)
    limits = [event for event in fineline.report(compiled).events if event.kind == "limit"]
    assert bool(limits) is (container is tuple)


@pytest.mark.parametrize("fn", ANY_LENGTH, ids=lambda fn: fn.__name__)
def test_lists_of_any_length_take_few_programs(fn: Callable) -> None:
    """What is read of the list before the first graph break is guarded, and not its length."""
    compiled = fineline.compile(fn, backend="eager")
    found = programs(compiled, fn, range(8, 28))
    assert not sum(found[10:])
    assert not [event for event in fineline.report(compiled).events if event.kind == "limit"]


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_loops_over_iterables(program: Program, twin: str) -> None:
    check(program, twin)
