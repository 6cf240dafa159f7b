"""Policy files: "TOML, the same keys as `Policy`, under `[tool.fineline]` in pyproject.toml or alone in a file"."""

from __future__ import annotations

import importlib
import sys

import pytest
import torch

import fineline
from fineline import Policy, load_policy
from fineline.errors import BadRule
from fineline.policy.files import PolicyFile, find_policy

X = torch.arange(4.0)
PACKAGE = {
    "__init__.py": "",
    "data.py": "def load(x):\n    return x.cos()\n",
    "model.py": "from mypkg.data import load\ndef step(x):\n    return load(x * 2) + 1\ndef tan(x):\n    return x.tan()\n",
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with a package, on ``sys.path``, and a writer of policy files in it."""
    (tmp_path / "mypkg").mkdir()
    for name, text in PACKAGE.items():
        (tmp_path / "mypkg" / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(text, name="pyproject.toml"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    yield write
    for name in [n for n in sys.modules if n.partition(".")[0] == "mypkg"]:
        del sys.modules[name]


def rules(policy):
    return [(r.verb, r.selector.text, r.reason, r.place) for r in policy.rules]


def test_the_same_keys_as_policy_under_tool_fineline(project):
    path = project(
        """[project]
name = "x"

[tool.fineline]
disable = [
    "mypkg/data.py",  # a file
    # and a glob
    {select = "mypkg.da*", reason = "reads files"},
]
disable_frame = "mypkg.model.tan"
disallow = ["torch.ops.aten.nonzero", "torch.sub"]
trace = ["mypkg.model.step"]

[tool.fineline.substitute]
"mypkg.data.load" = "mypkg.model.tan"

[tool.ruff]
line-length = 100
"""
    )
    assert rules(load_policy(path)) == [
        ("disable", "mypkg/data.py", "", "pyproject.toml:6"),
        ("disable", "mypkg.da*", "reads files", "pyproject.toml:8"),
        ("disable_frame", "mypkg.model.tan", "", "pyproject.toml:10"),
        ("disallow", "torch.ops.aten.nonzero", "", "pyproject.toml:11"),
        ("disallow", "torch.sub", "", "pyproject.toml:11"),
        ("trace", "mypkg.model.step", "", "pyproject.toml:12"),
        ("substitute", "mypkg.data.load", "", "pyproject.toml:15"),
    ]


def test_alone_in_a_file(project):
    path = project('reason = "because"\nallow = "mypkg.data.load"\n\n[[disable]]\nselect = "mypkg.model.*"\nreason = "own"\n', "rules.toml")
    assert rules(load_policy(str(path))) == [
        ("allow", "mypkg.data.load", "because", "rules.toml:2"),
        ("disable", "mypkg.model.*", "own", "rules.toml:5"),
    ]
    assert load_policy(path) == load_policy(path)
    path = project('[substitute]\n"mypkg.data.load" = {by = "mypkg.model.tan", reason = "faster"}\n', "rules.toml")
    assert rules(load_policy(path)) == [("substitute", "mypkg.data.load", "faster", "rules.toml:2")]


def test_its_rules_decide(project):
    from mypkg.model import step

    for text in ('disable = ["mypkg/data.py"]', 'disable = "mypkg.data.*"', 'disable = "mypkg/dat*"'):
        e = fineline.explain(step, policy=load_policy(project(text, "rules.toml")))(X)
        assert len(e.breaks) == 1 and "rules.toml:1" in e.breaks[0].rule
    policy = load_policy(project('substitute = {"mypkg.data.load" = "mypkg.model.tan"}', "rules.toml"))
    assert torch.equal(fineline.compile(step, backend="eager", policy=policy)(X), (X * 2).tan() + 1)


WRONG = [
    ('disable = []\nnope = ["a"]', 2, "FL215", "no key 'nope'"),
    ("\n\n[nope]\nx = 1", 3, "FL215", "no key 'nope'"),
    ("\n\ndisable = 3", 3, "FL215", "an integer"),
    ('disable = [\n  "mypkg.data",\n  1.5,\n]', 3, "FL215", "a number"),
    ('disable = ["mypkg.data",\n  {reason = "x"}]', 2, "FL215", "needs select"),
    ('disable = [{select = "mypkg.data", why = "x"}]', 1, "FL215", "no key 'why'"),
    ('disable = [{select = "mypkg.data", reason = 1}]', 1, "FL215", "reason is a text"),
    ("reason = 1", 1, "FL215", "a reason is a text"),
    ('substitute = ["a"]', 1, "FL215", "an array"),
    ('disable = ["mypkg.data",\n\n  "mypkg.nothing"]', 3, "FL212", "there is no mypkg.nothing"),
    ('forbid = "no.such.thing.*"', 1, "FL212", "there is no no.such"),
    ('forbid = "mypkg.data.nothing*"', 1, "FL212", "nothing in mypkg.data begins with 'nothing'"),
    ('\n\nforbid = "mypkg.nothing*.load"', 3, "FL212", "nothing in mypkg begins with 'nothing'"),
    ('\ndisable = ["mypkg/none/**"]', 2, "FL212", "no file matches"),
    ('\ndisallow = ["nolib::*"]', 2, "FL212", "no registered operator"),
    ('[substitute]\n"mypkg.data.load" = "mypkg.data.nope"', 2, "FL212", "there is no mypkg.data.nope"),
    ('[substitute]\n\n"mypkg.data.load" = "builtins.print"', 3, "FL214", "takes"),
    ('disable = ["mypkg.data"\nallow = 1', 2, "FL215", "not TOML"),
    ('disable = "mypkg.data"\ndisable = "mypkg.data"', 2, "FL215", "not TOML"),
]


@pytest.mark.parametrize("head", ["", "[tool.fineline]\n"], ids=["alone", "pyproject"])
@pytest.mark.parametrize("text, line, id, words", WRONG, ids=[w[0].replace("\n", " ")[:40] for w in WRONG])
def test_a_wrong_key_type_or_selector_is_an_error_with_the_file_and_line(project, text, line, id, words, head):
    if head:
        text = text.replace("[nope]", "[tool.fineline.nope]").replace("[substitute]", "[tool.fineline.substitute]")
    name = "pyproject.toml" if head else "rules.toml"
    with pytest.raises(BadRule) as caught:
        load_policy(project(head + text, name))
    assert caught.value.where == f"{name}:{line + bool(head)}"
    assert caught.value.id == id and words in str(caught.value)


def test_files_that_are_no_policy(project, tmp_path):
    with pytest.raises(BadRule, match="can't be read"):
        load_policy(tmp_path / "none.toml")
    with pytest.raises(BadRule, match=r"has no \[tool.fineline\]"):
        load_policy(project("[project]\nname = 'x'\n"))
    with pytest.raises(BadRule, match="is a table"):
        load_policy(project("[tool]\nfineline = 3\n"))


def test_the_nearest_pyproject_that_has_one_upward(project, tmp_path, monkeypatch):
    deep = tmp_path / "mypkg" / "deep"
    deep.mkdir()
    assert find_policy(deep) is None or tmp_path not in find_policy(deep).parents
    path = project('[tool.fineline]\ndisable = "mypkg/data.py"\n')
    (deep / "pyproject.toml").write_text("[project]\nname = 'y'\n")
    assert find_policy(deep) == path
    monkeypatch.chdir(deep)
    assert rules(load_policy(path))[0][1:] == ("mypkg/data.py", "", f"{path}:2")  # files are looked for beside the policy


def test_names_of_the_script_come_with_it(project):
    file = project('[tool.fineline]\ndisable = ["__main__.helper", "__main__.Net.*"]')
    with pytest.raises(BadRule):
        PolicyFile(file).policy()
    early = PolicyFile(file)
    assert [rule.selector.kind for rule in early.policy(early=True).rules] == ["name", "glob"]
    assert [e.id for e in early.still_wrong()] == ["FL212"] * 2 and "__main__.helper" in str(early.still_wrong()[0])


def test_operators_that_come_later(project):
    """Before the program has begun, its operator libraries are not loaded: what never comes is told at the end."""
    file = PolicyFile(project('disallow = ["h_cli_later::*",\n"h_cli_never::op"]', "rules.toml"))
    assert [r.selector.text for r in file.policy(early=True).rules] == ["h_cli_later::*", "h_cli_never::op"]
    assert [e.where for e in file.still_wrong()] == ["rules.toml:1", "rules.toml:2"]
    library = torch.library.Library("h_cli_later", "DEF")
    library.define("op(Tensor x) -> Tensor")
    assert [e.where for e in file.still_wrong()] == ["rules.toml:2"]


def test_tool_tables_in_any_order(project):
    path = project(
        '[tool.fineline]\ndisable = "mypkg.data"\n[other]\nx = 1\n[tool.fineline.substitute]\n"mypkg.data.load" = "mypkg.model.tan"\n'
    )
    assert [r[3] for r in rules(load_policy(path))] == ["pyproject.toml:2", "pyproject.toml:6"]


def test_import_fineline_stays_cheap():
    import subprocess

    code = "import sys, fineline; print([n for n in ('click', 'rich', 'tomlkit') if n in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_policy_is_still_one(project):
    assert isinstance(load_policy(project("", "empty.toml")), Policy)


def test_a_folder_of_folders(tmp_path, monkeypatch) -> None:
    """It is a folder with all that is in it, as one that holds files itself."""
    (tmp_path / "outer_of_rules" / "inner").mkdir(parents=True)
    (tmp_path / "outer_of_rules" / "inner" / "mod.py").write_text("def f(x):\n    return x.sin()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    f = importlib.import_module("outer_of_rules.inner.mod").f
    policy = Policy(disable="outer_of_rules/")
    assert fineline.why(f, policy=policy).verb == "disable"
    with pytest.raises(BadRule):
        Policy(disable="outer_of_rules/inner/none/")
