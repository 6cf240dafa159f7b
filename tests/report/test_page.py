"""The page of a report: what it holds, how it is written, and that it stands alone."""

from __future__ import annotations

import html.parser
import json
import linecache
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import fineline
from fineline import Policy
from fineline.report.costs import total
from fineline.report.page import page
from fineline.report.page_facts import MOST_FRAMES, FunctionReport, page_facts
from fineline.report.tree import Node
from tests.models.test_zoo import zoo_modules
from tests.report.pages import guards_of, page_data

X = torch.ones(3)


def cosine(x):
    return x.cos()


def reads(x):
    return x * x.sum().item()


def program(x):
    y = cosine(x.sin()) + 1
    return reads(y.relu())


POLICY = Policy(disable=[cosine], reason="mine")


class Checker(html.parser.HTMLParser):
    """Asserts that all elements are closed in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("meta", "br", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_stands_alone_is_well_formed_and_escapes() -> None:
    def evil(x):
        fineline.graph_break("</script><script>alert(1)</script><!-- \u2028")
        return cosine(x) + 1

    told = fineline.explain(evil, policy=POLICY)(X)
    text = page([told.for_page(), fineline.explain(program)(X).for_page("process 7 (<b>.py)")])
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    data = page_data(text)
    assert "</script><script>alert(1)</script><!-- " in str([found["reason"] for found in data["functions"][0]["breaks"]])
    # No text of the user's ends a script: the page's own two are all there is, and the rest is escaped.
    assert text.count("<script") == text.count("</script") == 2 and "<script>alert" not in text and "<!--" not in text
    assert data["functions"][1]["process"] == "process 7 (<b>.py)"
    assert all(word not in text for word in ("http://", "https://", "src=", "@import", "url(", "fetch(", "innerHTML"))
    assert "default-src 'none'" in text
    assert "No compiled function was called." in page([])


def frames(function) -> list[tuple[str, str]]:
    tree = function["tree"]
    return [(name, ["captured", "opaque", "rule", "reason", "constant"][kind]) for name, kind in zip(tree["name"], tree["kind"], strict=True)]


def test_each_frame_has_its_kind_operators_time_and_graph() -> None:
    told = fineline.explain(program, policy=POLICY)(X)
    [function] = page_facts([told.for_page()])["functions"]
    assert frames(function) == [("program", "captured"), ("cosine", "rule"), ("reads", "captured"), ("Tensor.item", "reason")]
    tree = function["tree"]
    assert tree["operators"] == [3, 0, 2, 0] and tree["parent"] == [-1, 0, 0, 2] and all(time > 0 for time in tree["time"])
    # The frame `reads` has operators in the graph before its break, and in the one after it.
    programs = [[function["programs"][number]["operators"] for number in numbers] for numbers in tree["programs"]]
    assert programs[0] == [1, 3] and programs[2] == [3, 1] and programs[1] == programs[3] == []
    # The times of frames are parts of the call's, and none counts twice.
    assert sum(tree["time"]) < function["seconds"] * 1e6


@fineline.allow_in_graph
def opaque(x):
    return x.exp()


def constant():
    return 7


def test_opaque_and_constant_frames() -> None:
    told = fineline.explain(lambda x: opaque(x) * constant(), policy=Policy(constant=[constant]))(X)
    [function] = page_facts([told.for_page()])["functions"]
    assert ("opaque", "opaque") in frames(function) and (f"{__name__}.constant", "constant") in frames(function)


def test_a_break_has_its_rule_its_next_step_and_where_it_was_declared() -> None:
    told = fineline.explain(program, policy=POLICY)(X)
    data = page_facts([told.for_page()])
    [function] = data["functions"]
    assert all(found["id"] in data["refusals"] and data["refusals"][found["id"]]["next"] for found in function["breaks"])
    [ruled] = [found for found in function["breaks"] if not found["built_in"]]
    assert ruled["id"] == "FL400" and f"{__file__}:{POLICY_LINE}" in ruled["rule"] and "mine" in ruled["rule"]
    [place] = ruled["places"]
    source = data["sources"][place["at"][0]]
    assert source["path"] == __file__ and linecache.getline(__file__, place["at"][1]).strip() == "y = cosine(x.sin()) + 1"
    assert "y = cosine(x.sin()) + 1" in "\n".join(text for _, text in source["runs"])


POLICY_LINE = next(i for i, line in enumerate(Path(__file__).read_text().splitlines(), 1) if line.startswith("POLICY = "))


def slow(x):
    torch.ones(200, 200).mm(torch.ones(200, 200))
    return sum(i * i for i in range(20_000)) + x


def test_breaks_are_grouped_by_cause_the_most_expensive_first() -> None:
    def f(x):
        for _ in range(3):
            x = x * x.sum().item()
        return slow(x) + 1

    told = fineline.explain(f, policy=Policy(disable=[slow]))(X)
    [function] = page_facts([told.for_page()])["functions"]
    assert [(found["id"], found["times"]) for found in function["breaks"]] == [("FL400", 1), ("FL502", 3)]
    assert function["breaks"][0]["time"] > function["breaks"][1]["time"] > 0


def test_breaks_and_rules_have_the_costs_of_the_explanation() -> None:
    def f(x):
        for _ in range(2):
            x = x * x.sum().item()
        return cosine(x) + reads(x)

    told = fineline.explain(f, policy=Policy(disable=[cosine], allow=[opaque]), savings=True)(X)
    [function] = page_facts([told.for_page()])["functions"]
    for found in function["breaks"]:
        own = [cost for cost in told.costs if (cost.place.id, cost.place.rule) == (found["id"], found["rule"])]
        assert found["cost"] == total(own).as_dict() and found["cost"]["breaks"] == found["times"] == len(own)
        assert found["time"] == pytest.approx(total(own).seconds * 1e6, abs=0.1)
        assert sum(place["cost"]["graphs"] for place in found["places"]) == found["cost"]["graphs"]
    assert {len(found["places"]) for found in function["breaks"]} == {1, 2}
    # The same words as in the text; a rule that never matched has cost nothing.
    [disabled, unmatched] = function["rules"]
    assert len(disabled["costs"]) == 2 and all(f"      {text}\n" in str(told) for text in disabled["costs"])
    assert (unmatched["times"], unmatched["costs"]) == (0, [])


def test_an_eager_call_that_was_not_measured_has_the_time_of_its_frame() -> None:
    told = fineline.explain(reads)(X)
    [cost] = told.costs
    told.costs = [replace(cost, cost=replace(cost.cost, seconds=0.0, unmeasured=1))]
    [found] = page_facts([told.for_page()])["functions"][0]["breaks"]
    assert found["cost"]["unmeasured"] == 1 and found["time"] > 0


def test_recompiles_say_what_changed_from_what_to_what() -> None:
    compiled = fineline.compile(program, backend="eager", dynamic=False)
    compiled(X)
    compiled(torch.ones(4))
    [function] = page_facts([fineline.report(compiled).for_page()])["functions"]
    [found, *_] = function["recompiles"]
    assert (found["value"], found["changes"]) == ("x", [("sizes", "(3,)", "(4,)")])


def test_a_value_that_changed_in_two_ways() -> None:
    compiled = fineline.compile(lambda x: x + 1, backend="eager", dynamic=False)
    compiled(torch.ones(2, 3, dtype=torch.float64))
    compiled(torch.ones(4, 5, dtype=torch.float64))
    [function] = page_facts([fineline.report(compiled).for_page()])["functions"]
    assert function["recompiles"][0]["changes"] == [("sizes", "(2, 3)", "(4, 5)"), ("strides", "(3, 1)", "(5, 1)")]


ODD = "a: b -> c, sizes d -> e (read at"


@pytest.mark.parametrize(("before", "after", "expected"), [
    ({ODD: ODD}, {ODD: "f"}, (f"words[{ODD!r}]", [("", repr(ODD), "'f'")])),
    ({ODD: ODD}, {}, (f"words[{ODD!r}]", [("", "", "it is gone")])),
])  # fmt: skip
def test_recompiles_about_texts_that_look_like_a_change(before: dict, after: dict, expected: tuple) -> None:
    def f(x, words):
        return x * len(words[ODD]) if ODD in words else x

    compiled = fineline.compile(f, backend="eager")
    compiled(X, before)
    compiled(X, after)
    data = page_facts([fineline.report(compiled).for_page()])
    [found] = data["functions"][0]["recompiles"]
    assert (found["value"], found["changes"]) == expected
    assert found["read"][0] >= 0 and data["sources"][found["read"][0]]["path"] == __file__


def test_guards_have_the_users_expression_the_line_and_a_cost() -> None:
    told = fineline.explain(Scaled())(X)
    data = page_facts([told.for_page()])
    guards = [guard for program in data["functions"][0]["programs"] for guard in guards_of(program)]
    [(name, _, (file, line), cost)] = [guard for guard in guards if guard[1] == "is 2.5"]
    assert name == "Scaled.scale" and cost > 0 and data["sources"][file]["path"] == __file__ and "self.scale" in linecache.getline(__file__, line)
    [program] = data["functions"][0]["programs"]
    assert program["check"] > 0 and program["backend"] > 0 and program["writing"] > 0


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 2.5

    def forward(self, x):
        return x * self.scale


def test_a_graphs_code_is_readable_and_each_operator_has_its_line() -> None:
    told = fineline.explain(program)(X)
    data = page_facts([told.for_page()])
    shown = data["functions"][0]["programs"][0]
    lines = shown["code"].split("\n")
    assert lines[0].startswith("def forward(") and "= None" not in shown["code"]
    places = {text.strip().partition(" = ")[0]: at[1] for text, at in zip(lines, shown["lines"], strict=True) if at[0] >= 0}
    assert "x.sin()" in linecache.getline(__file__, places["sin"]) and "x.cos()" in linecache.getline(__file__, places["cos"])


def test_the_graphs_that_operators_run_are_below_the_graph() -> None:
    def f(x):
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,)) + 1

    [shown] = page_facts([fineline.explain(f)(X).for_page()])["functions"][0]["programs"]
    graph, *parts = shown["code"].split("\n\n# ")
    assert "higher_order.cond" in graph and len(parts) == 2 and ".sin()" in parts[0] and ".cos()" in parts[1] and parts[0].partition("\n")[0] in graph
    assert len(shown["lines"]) == len(graph.split("\n"))


def test_report_has_the_same_page_without_what_was_not_measured() -> None:
    compiled = fineline.compile(program, backend="eager", policy=POLICY)
    compiled(X)
    [function] = page_facts([fineline.report(compiled).for_page()])["functions"]
    assert not function["recorded"] and sum(function["tree"]["time"]) == 0
    # The frames that events name.
    assert frames(function) == [
        ("program", "captured"), ("cosine is disabled: mine", "rule"), ("reads", "captured"), ("item reads a tensor's values", "reason"),
    ]  # fmt: skip
    assert all(program["check"] < 0 for program in function["programs"]) and guards_of(function["programs"][0])


def test_a_call_that_is_not_captured_at_all_is_one_eager_frame() -> None:
    async def coroutine(x):
        return x

    compiled = fineline.compile(coroutine, backend="eager")
    compiled(X).close()
    [function] = page_facts([fineline.report(compiled).for_page()])["functions"]
    assert [kind for _, kind in frames(function)] == ["reason"] and function["tree"]["causes"][0]["reason"] == function["breaks"][0]["reason"]


def test_save_writes_a_page_json_or_text(tmp_path: Path) -> None:
    told = fineline.explain(program)(X)
    told.save(tmp_path / "report.html")
    told.save(str(tmp_path / "report.json"))
    told.save(tmp_path / "report.txt")
    assert page_data((tmp_path / "report.html").read_text())["functions"][0]["name"] == "program"
    facts = json.loads((tmp_path / "report.json").read_text())
    assert facts["name"] == "program" and facts["tree"][0]["seconds"] > 0 and facts["programs"][0]["measures"] and facts["programs"][0]["guards"]
    assert (tmp_path / "report.txt").read_text() == f"{told}\n"
    with pytest.raises(FileNotFoundError):
        told.save(tmp_path / "nowhere" / "report.html")


def test_names_and_texts_that_are_not_utf_8_are_shown(tmp_path: Path) -> None:
    file = tmp_path / os.fsdecode(b"step_\xff.py")
    file.write_text('def step(x, name="\\ud800"):\n    fineline.graph_break(name)\n    return x * len(name)\n')
    module = {"fineline": fineline}
    exec(compile(file.read_text(), str(file), "exec"), module)
    told = fineline.explain(module["step"])(X, "\ud801")
    assert "\udcff" in str(told)
    for name in ("report.html", "report.json", "report.txt"):
        told.save(tmp_path / name)
    data = page_data((tmp_path / "report.html").read_text())
    assert [source["path"] for source in data["sources"] if "\\ud800" in str(source["runs"])] == [str(file)]
    events = json.loads((tmp_path / "report.json").read_text())["events"]
    assert {event["file"] for event in events if event["kind"] == "break"} == {str(file)}
    assert "step_\\udcff.py" in (tmp_path / "report.txt").read_text()
    assert page_data(html.unescape(told._repr_html_()))["sources"] == data["sources"]


def test_a_notebook_shows_the_page_in_a_frame_of_its_own() -> None:
    shown = fineline.explain(program)(X)._repr_html_()
    assert shown.startswith("<iframe ") and 'sandbox="allow-scripts"' in shown and shown.count("<") == 2
    assert page_data(html.unescape(shown))["functions"][0]["name"] == "program"


def test_a_tree_with_too_many_frames_keeps_the_most_expensive() -> None:
    root = Node("root", __file__, 1, "captured", children=[Node(f"n{i}", __file__, 1, "captured", seconds=i * 1e-6) for i in range(MOST_FRAMES + 10)])
    report = FunctionReport("root", "", "", "", (__file__, 1), [], [], {}, {}, root, 0.0, {})
    tree = page_facts([report])["functions"][0]["tree"]
    assert len(tree["name"]) == MOST_FRAMES and tree["left_out"] == 11 and "n10" not in tree["name"] and "n11" in tree["name"]


@pytest.mark.later
def test_the_page_of_the_zoos_t5_is_under_a_megabyte(tmp_path: Path) -> None:
    zoo, _ = zoo_modules()
    built = zoo.build("hf_t5", 0)
    fineline.explain(built.fn)(*built.args, **built.kwargs).save(tmp_path / "t5.html")
    text = (tmp_path / "t5.html").read_text()
    assert len(text.encode()) < 1_000_000
    [function] = page_data(text)["functions"]
    assert len(function["tree"]["name"]) > 1000 and len(guards_of(function["programs"][0])) > 1000 and len(function["programs"][0]["lines"]) > 800
