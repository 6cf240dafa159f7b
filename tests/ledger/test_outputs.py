"""The outputs of a comparison: GitHub's escapes, the structure that SARIF 2.1.0 requires, and paths."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest

from fineline.ledger.comparison import Comparison, compare
from fineline.ledger.file import Ledger
from fineline.ledger.findings import Finding, Key
from fineline.ledger.outputs import FORMATS, Paths

LEDGER = """\
version = 1

[[break]]
function = "m.gone"
id = "FL411"
reason = "print can't be captured"

[[break]]
function = "m.f"
id = "FL502"
reason = "item reads a tensor's values"

[[eager]]
function = "m.fewer"
id = "FL404"
reason = "few"
count = 3
"""


@pytest.fixture
def comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Comparison:
    (tmp_path / ".git").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    path = tmp_path / "work" / "breaks.toml"
    path.write_text(LEDGER)
    file = str(tmp_path / "work" / "my, net.py")
    findings = [
        Finding(Key("break", "m.new", "FL401", "100%: N,\nno"), "100%: 1,\r\nno", "graph_break()", file, 7, [f"{file}:3 in f", f"{file}:7 in new"], ["a", "b"]),
        Finding(Key("break", "m.f", "FL502", "item reads a tensor's values"), "item reads a tensor's values", "", "/else/where.py", 2, [], ["a", "b"]),
        Finding(Key("eager", "m.fewer", "FL404", "few"), "few", "", file, 9, [], ["a"]),
        Finding(Key("recompile", "<string>:f", "FL407", "x changed"), "x: 1 -> 2", "", "<string>", 0, [], ["a"]),
    ]
    return compare(Ledger.read(path), findings)


def test_text(comparison: Comparison) -> None:
    assert FORMATS["text"](comparison, Paths(), "do that") == """\
breaks.toml: 3 new, 1 gone, 1 at fewer places
  new:   graph break FL401 in m.new: 100%: 1,\r\nno
    at   my, net.py:7 and 1 other place
    from my, net.py:3 in f
         my, net.py:7 in new
    rule graph_break()
    next Remove the graph_break() if you want one graph.
  more:  graph break FL502 in m.f: item reads a tensor's values
    now  at 2 places; the ledger lists 1
    at   /else/where.py:2
    next Keep the number a tensor; where it decides a branch, use torch.where, torch.cond or a mask.
  new:   recompile FL407 in <string>:f: x: 1 -> 2
    at   <string>:0
    next If it happens often, keep that value constant, or pass it as a tensor.
  gone:  graph break FL411 in m.gone: print can't be captured
  fewer: eager stretch FL404 in m.fewer: few: at 1 of 3 places
  Accept what is new, and remove what is gone: do that
"""


def test_github(comparison: Comparison) -> None:
    lines = FORMATS["github"](comparison, Paths(), "do that").splitlines()
    assert lines == [
        "::error file=work/my%2C net.py,line=7,title=graph break FL401%3A an explicit graph break::graph break in m.new: 100%25: 1,%0D%0Ano"
        "%0ARemove the graph_break() if you want one graph.%0AAccept it: do that",
        "::error file=/else/where.py,line=2,title=graph break FL502%3A a tensor's values are read::graph break in m.f: item reads a tensor's values; at 2 places, "
        "and the ledger lists 1%0AKeep the number a tensor; where it decides a branch, use torch.where, torch.cond or a mask.%0AAccept it: do that",
        "::error title=recompile FL407%3A captured again::recompile in <string>:f: x: 1 -> 2"
        "%0AIf it happens often, keep that value constant, or pass it as a tensor.%0AAccept it: do that",
        "::notice file=work/breaks.toml,line=3,title=gone from the program%2C still in the ledger::graph break FL411 in m.gone: print can't be captured",
        "::notice file=work/breaks.toml,line=13,title=at fewer places than the ledger lists::eager stretch FL404 in m.fewer: few: at 1 of 3 places",
    ]


# What the schema of SARIF 2.1.0 says of the objects that are written: required properties, and the kinds of values.
LEVELS = {"none", "note", "warning", "error"}
STATES = {"new", "unchanged", "updated", "absent"}


def message(value: Any) -> None:
    assert value.keys() <= {"text", "markdown", "id", "arguments"} and value["text"] and type(value["text"]) is str


def check_sarif(log: Any) -> None:
    assert log.keys() == {"$schema", "version", "runs"} and log["version"] == "2.1.0" and urlparse(log["$schema"]).scheme == "https"
    for run in log["runs"]:
        assert run.keys() <= {"tool", "originalUriBaseIds", "invocations", "results"}
        driver = run["tool"]["driver"]
        assert driver["name"] == "fineline" and driver["version"]
        ids = [rule["id"] for rule in driver["rules"]]
        assert len({*ids}) == len(ids)
        for rule in driver["rules"]:
            assert rule.keys() == {"id", "shortDescription", "fullDescription", "help"}
            for name in ("shortDescription", "fullDescription", "help"):
                message(rule[name])
        for base in run["originalUriBaseIds"].values():
            assert urlparse(base["uri"]).scheme == "file" and base["uri"].endswith("/")
        for invocation in run["invocations"]:
            assert type(invocation["executionSuccessful"]) is bool
            for note in invocation["toolExecutionNotifications"]:
                assert note["level"] in LEVELS
                message(note["message"])
        for result in run["results"]:
            message(result["message"])
            assert ids[result["ruleIndex"]] == result["ruleId"] and result["level"] in LEVELS and result["baselineState"] in STATES
            assert all(type(value) is str for value in result["partialFingerprints"].values())
            for location in result["locations"]:
                assert location["logicalLocations"][0]["fullyQualifiedName"]
                if "physicalLocation" in location:
                    artifact = location["physicalLocation"]["artifactLocation"]
                    assert " " not in artifact["uri"] and artifact.get("uriBaseId", "REPOSITORY") in run["originalUriBaseIds"]
                    assert location["physicalLocation"]["region"]["startLine"] >= 1


def test_sarif(comparison: Comparison, tmp_path: Path) -> None:
    log = json.loads(FORMATS["sarif"](comparison, Paths(), "do that"))
    check_sarif(log)
    [run] = log["runs"]
    assert run["originalUriBaseIds"]["REPOSITORY"]["uri"] == f"{tmp_path.as_uri()}/"
    places = [result["locations"][0].get("physicalLocation", {}).get("artifactLocation") for result in run["results"]]
    assert places == [{"uri": "work/my%2C%20net.py", "uriBaseId": "REPOSITORY"}, {"uri": "file:///else/where.py"}, None]
    assert [result["ruleId"] for result in run["results"]] == ["FL401", "FL502", "FL407"]
    assert len({result["partialFingerprints"]["finelineLedger/v1"] for result in run["results"]}) == 3
    assert len(run["invocations"][0]["toolExecutionNotifications"]) == 2
    # A fingerprint is that of the entry, wherever the line is.
    for finding in comparison.findings:
        finding.line += 10
    moved = json.loads(FORMATS["sarif"](comparison, Paths(), "do that"))["runs"][0]["results"]
    assert [result["partialFingerprints"] for result in moved] == [result["partialFingerprints"] for result in run["results"]]


def test_nothing_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    comparison = compare(Ledger.read(tmp_path / "breaks.toml"), [])
    assert FORMATS["text"](comparison, Paths(), "") == "breaks.toml: as listed, 0 of 0 entries\n"
    assert FORMATS["github"](comparison, Paths(), "") == ""
    log = json.loads(FORMATS["sarif"](comparison, Paths(), ""))
    check_sarif(log)
    assert log["runs"][0]["results"] == []
