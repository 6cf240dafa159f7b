"""Files that are refused, programs that do not fit the process, and parts that cannot be saved: each with its id and reason."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch

import fineline
from fineline.saving.file import FORMAT, KEYS, versions_now
from tests.saving.conftest import Project

STEP = """
        def helper(x, by=2):
            return x * by

        def step(x):
            return helper(x) + 1
        """
SAVE = """
        compiled = fineline.compile(step, backend="eager")
        compiled(x)
        fineline.save(compiled, "step.captures")
        """


def refused(project: Project, fn: str = "step") -> str:
    """Returns the id and the reason with which a new process refuses the file; nothing of it may have run."""
    return project.run(f"""
        try:
            fineline.load("step.captures", {fn})
        except fineline.errors.BadCaptures as e:
            print(e.id, e.reason)
        else:
            print("loaded")
        """)


def test_a_damaged_file_is_refused(project: Project) -> None:
    """Changed, cut, empty, of another kind, absent: before anything in it runs, and the file stays as it is."""
    project.write(STEP)
    project.run(SAVE)
    path = project.folder / "step.captures"
    whole = path.read_bytes()
    # A program that would be seen if it ran.
    evil = whole.replace(b"return", b"boom()")
    assert evil != whole
    middle = len(whole) // 2
    damaged = {
        "changed": evil, "one byte": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :], "cut": whole[:-10], "longer": whole + b"x",
        "empty": b"", "another": b"PK\x03\x04" + whole,
    }  # fmt: skip
    for what, data in damaged.items():
        path.write_bytes(data)
        try:
            fineline.load(path, torch.sin)
        except fineline.errors.BadCaptures as e:
            assert e.id == "FL221", (what, e)
        else:
            raise AssertionError(what)
        assert path.read_bytes() == data
    path.unlink()
    try:
        fineline.load(path, torch.sin)
    except fineline.errors.BadCaptures as e:
        assert e.id == "FL221" and "No such file" in e.reason


def test_a_file_with_a_right_hash_and_other_contents_is_refused(tmp_path: Path) -> None:
    versions = json.dumps(versions_now()).encode()
    path, whole = tmp_path / "step.captures", {key: [] for key in KEYS}
    contents = {
        "no lines": b"", "no JSON": b"a\nb\n0\n", "no objects": b"3\n[4]\n0\n", "no length": versions + b"\n{}\nmuch\n",
        "missing keys": versions + b'\n{"entries": []}\n0\n', "cut": b"\n".join([versions, json.dumps(whole).encode(), b"9", b""]),
    }  # fmt: skip
    for what, body in contents.items():
        path.write_bytes(f"fineline captures, format {FORMAT}\nsha256 {hashlib.sha256(body).hexdigest()}\n".encode() + body)
        with pytest.raises(fineline.errors.BadCaptures) as caught:
            fineline.load(path, torch.sin)
        assert caught.value.id == "FL221", (what, caught.value)


def test_other_versions_are_refused(project: Project) -> None:
    """Of the format, of fineline's source, PyTorch and Python. The hash of such a file is right."""
    project.write(STEP)
    out = project.run(
        SAVE
        + """
        from pathlib import Path
        from fineline.saving import file
        path, now = Path("step.captures"), file.versions_now
        whole = path.read_bytes()

        def tried():
            try:
                fineline.load(path, step)
            except fineline.errors.BadCaptures as e:
                print(e.id, e.reason)

        path.write_bytes(whole.replace(b"format %d" % file.FORMAT, b"format 999", 1))
        tried()
        path.write_bytes(whole)
        for name in now():
            file.versions_now = lambda: {**now(), name: "another"}
            tried()
        """
    )
    lines = out.splitlines()
    assert [line[:5] for line in lines] == ["FL222"] * 4
    assert "format is 999" in lines[0] and all(name in line for name, line in zip(("fineline", "torch", "python"), lines[1:], strict=True))


@pytest.mark.later
def test_another_callable_is_refused(project: Project) -> None:
    project.write(STEP)
    project.run(SAVE)
    assert "FL223 it is for the function users_code.step.__code__, and this is the function users_code.helper.__code__" in refused(project, "helper")
    assert refused(project, "nn.ReLU()").startswith("FL223")
    project.write(STEP.replace("+ 1", "+ 2"))
    assert "FL223 the function users_code.step.__code__ has changed" in refused(project)


def test_a_change_of_code_below_is_a_miss_with_its_reason(project: Project) -> None:
    """Of a callee's code, and of its defaults, which are no part of the code; a change of a global is a guard's matter."""
    project.write(STEP)
    project.run(SAVE)
    loading = """
        compiled = fineline.load("step.captures", step)
        assert torch.equal(compiled(x), step(x)) and kinds(compiled) == ["stale", "graph"]
        [stale] = events(compiled, "stale")
        print(stale.id, stale.reason)
        """
    project.write(STEP.replace("x * by", "x / by"))
    assert "FL014 a program of step.captures: users_code.helper.__code__ has changed" in project.run(loading)
    project.write(STEP.replace("by=2", "by=3"))
    assert "FL014 a program of step.captures: users_code.helper.__defaults__ has changed" in project.run(loading)
    project.write(STEP.replace("def helper(x, by=2):\n            return x * by", "helper = torch.sin\n        by = 2"))
    assert "FL014 a program of step.captures: users_code.helper.__code__ is not there" in project.run(loading)


# What never changes in a process, and is therefore known by its identity there: the next process may have made it of something else.
ONCE = """
        import collections, enum, functools, operator, re

        class Kind(enum.Enum):
            A = 2
            B = [2]
            C = enum.auto()

        class Level(enum.IntEnum):
            LOW = 2

        Pair = collections.namedtuple("Pair", ["a", "b"])
        pair, first, named = Pair(3, 4), operator.itemgetter(0), operator.attrgetter("a")
        maker, word, either = operator.methodcaller("mul", 2), re.compile("a"), int | str

        class Holder:
            size = property(functools.partial(lambda self, by: by, by=2))

        holder = Holder()

        def of_enum(x): return x * Kind.A.value
        def of_list(x): return x * Kind.B.value[0]
        def of_members(x): return x * len([*Kind])
        def of_number(x): return x * (Level.LOW + 1)
        def of_field(x): return x * pair.a
        def of_item(x): return x * first((2, 3))
        def of_attribute(x): return x * named(pair)
        def of_key(x): return x * max([(1, 9), (2, 3)], key=first)[0]
        def of_method(x): return maker(x)
        def of_partial(x): return x * holder.size
        def of_pattern(x): return x * (2 if word.match("a") else 3)
        def of_union(x): return x * (2 if isinstance("a", either) else 3)
        ALL = [of_enum, of_list, of_members, of_number, of_field, of_item, of_attribute, of_key, of_method, of_partial, of_pattern, of_union]
        """
CHANGES = (
    ("A = 2", "A = 3"), ("B = [2]", "B = [3]"), ("C = enum.auto()", "C = D = 9; E = 8"), ("LOW = 2", "LOW = 3"), ('["a", "b"]', '["b", "a"]'),
    ("itemgetter(0)", "itemgetter(1)"), ('attrgetter("a")', 'attrgetter("b")'), ('("mul", 2)', '("mul", 3)'), ("by=2)", "by=3)"),
    ('compile("a")', 'compile("b")'), ("int | str", "int | float"),
)  # fmt: skip


def test_what_never_changes_in_a_process_is_compared(project: Project) -> None:
    project.write(ONCE)
    project.save_all()
    loading = """
        seen = set()
        for fn in ALL:
            compiled = fineline.load(f"{fn.__name__}.captures", fn)
            assert torch.equal(compiled(x), fn(x)), fn
            seen.add(tuple(kinds(compiled)[:1]))
        print(seen)
        """
    assert project.run(loading) == "{('loaded',)}\n"
    changed = ONCE
    for old, new in CHANGES:
        assert old in changed
        changed = changed.replace(old, new)
    project.write(changed)
    assert project.run(loading) == "{('stale',)}\n"


def test_what_cannot_be_saved_leaves_the_rest(project: Project) -> None:
    """An object without a name in one program; a rule of a block in another."""
    project.write("""
        class Local:
            pass

        def step(x, mode=None):
            return x * 2 if mode is None else (x + 1, mode)

        def hidden():
            class Inner:
                by = 3
            return Inner
        """)
    out = project.run("""
        compiled = fineline.compile(step, backend="eager")
        compiled(x), compiled(x, hidden())
        with torch.no_grad():
            compiled(x)
        print(len(fineline.report(compiled).programs), fineline.save(compiled, "step.captures"))
        for event in events(compiled, "unsaved"):
            print(event.id, event.reason)
        """)
    assert out.startswith("3 2\nFL013 ") and "Inner" in out, out
    project.run("""
        compiled = fineline.load("step.captures", step)
        assert torch.equal(compiled(x), step(x)) and kinds(compiled) == ["loaded", "loaded"]
        """)


@pytest.mark.later
def test_nothing_to_save(project: Project) -> None:
    project.write(STEP)
    out = project.run("""
        def tried(compiled):
            try:
                fineline.save(compiled, "step.captures")
            except fineline.errors.BadArgument as e:
                print(e.id, e.reason)

        tried(fineline.compile(step, backend="eager"))
        compiled = fineline.compile(step, backend="eager", policy=fineline.Policy())
        compiled(x)
        tried(compiled)
        tried(step)
        local = fineline.compile(lambda x: x + 1, backend="eager")
        local(x)
        tried(local)
        assert not os.path.exists("step.captures")
        """)
    assert [line[:5] for line in out.splitlines()] == ["FL224", "FL224", "FL208", "FL224"], out


def test_a_compiled_callable_stands_for_what_it_was_made_from(project: Project) -> None:
    project.write(STEP + """
        class Net(nn.Linear):
            pass
        """)
    project.run("""
        for fn in (step, Net(4, 4)):
            compiled = fineline.compile(fn, backend="eager")
            compiled(x)
            fineline.save(compiled, "one.captures")
            loaded = fineline.load("one.captures", compiled)
            assert torch.equal(loaded(x), fn(x)) and kinds(loaded) == ["loaded"]
        """)
