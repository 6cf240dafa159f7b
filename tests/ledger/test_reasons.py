"""Stable reasons: without values, numbers, lines, folders and addresses; and each recompile message that a test knows has one."""

from __future__ import annotations

import pytest

from fineline.guards.facts import TensorFacts
from fineline.ledger.reasons import ASPECTS, stable_reason

REASONS = {
    "break": {
        "print can't be captured": "print can't be captured",
        "conv2d of a torch.float32 tensor on cuda:1": "conv2d of a torch.float32 tensor on cuda:N",
        "the text of a tensor, made at /home/me/my-pkg/net.py:12, is read by print": "the text of a tensor, made at net.py, is read by print",
        "open('/var/run/some dir/x.txt') reads": "open('some dir/x.txt') reads",
        "no such file: '/tmp/pytest-of-me/pytest-7/x.txt'": "no such file: 'x.txt'",
        "no such file: tmpab1_9xyz": "no such file: tmpN",
        "<Box object at 0x7f00aa12>": "<Box object at N>",
        "addmm raises RuntimeError: mat1 and mat2 shapes cannot be multiplied (3x4 and 5x6)":
            "addmm raises RuntimeError: mat1 and mat2 shapes cannot be multiplied (N and N)",
        "graph_break('phase 2 of 3')": "graph_break('phase N of N')",
        "layers.0.weight of size (2, 3) and [4] at 1e-05 and -2.5": "layers.N.weight of size (N) and [N] at N and N",
        "read/write of a/b": "read/write of a/b",
        "the rest of f.<locals>.<listcomp>, which met 6 graph breaks, runs eagerly": "the rest of f, which met N graph breaks, runs eagerly",
        "two\n  lines": "two lines",
    },
    "eager": {
        "1 operator after a graph break: min_graph_operators is 3": "N operators after a graph break: min_graph_operators is N",
        "12 operators after a graph break: min_graph_operators is 30": "N operators after a graph break: min_graph_operators is N",
    },
    "limit": {
        "8 programs, with a recompile_limit of 8; calls that fit none of them run eagerly; the guard that fails most: v":
            "N programs, with a recompile_limit of N",
    },
    "recompile": {
        "x: sizes (3, 4) -> (4, 4)": "x: sizes changed",
        "x: sizes (4,) -> (2, 3), strides (1,) -> (3, 1)": "x: sizes changed",
        "x: class torch.Tensor -> torch.nn.parameter.Parameter": "x: class changed",
        "v: length 1 -> 2": "v: length changed",
        "d: keys ['a'] -> ['b']": "d: keys changed",
        "d: other objects as keys, [a Box]": "d: other objects as keys",
        "d['a: b']: it is gone": "d['a: b']: it is gone",
        "d: 'a' is there now": "d: 'a' is there now",
        "self.level: 1 -> 2 (read at /home/me/net.py:11)": "self.level changed",
        "v: a Tensor -> None": "v changed",
        "v: function one -> function two": "v changed",
        "t[1][1]: 'a: -> b' -> 'c'": "t[N][N] changed",
        "v: no longer true: == 1; it is Number(2)": "v changed",
        "v[1]: the same object as v[0] -> another object": "v[N] changed",
        "PyTorch's state: grad_mode True -> False": "PyTorch's state: grad_mode changed",
        "the tensors' memory: which of y and x share memory has changed": "the tensors' memory: which of y and x share memory has changed",
        "the relation: Max(1, x.size(0)) <= 10, and it is 20": "the relation: Max(N, x.size(N)) <= N",
        "b[0]: [1, 2] does not have it (read at /home/me/net.py:11)": "b[N]: does not have it",
        "v: which objects are one changed, for [a Box, a Box]": "v: which objects are one changed",
        "whether the iterator has ended: False -> True": "whether the iterator has ended changed",
        "no program has been made yet": "no program has been made yet",
    },
}  # fmt: skip


@pytest.mark.parametrize(("kind", "reason"), [(kind, reason) for kind, reasons in REASONS.items() for reason in reasons])
def test_reasons(kind: str, reason: str) -> None:
    stable = stable_reason(kind, reason)
    assert stable == REASONS[kind][reason]
    assert stable_reason(kind, stable) == stable


def test_long_reasons_end() -> None:
    assert len(stable_reason("break", "a word " * 1000)) <= 200
    assert stable_reason("recompile", "'" * 5000) == "'" * 200


def test_the_aspects_are_the_facts_of_a_tensor() -> None:
    assert ASPECTS == {field.partition("_")[0] if field == "dispatch_keys" else field.replace("cls", "class") for field in TensorFacts._fields} | {"length", "keys"}
