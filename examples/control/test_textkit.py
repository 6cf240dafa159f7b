"""Tests of the project, as pytest runs them: the fixture `fineline` compares with the list beside this file."""

import torch
from textkit.model import Model
from train import TEXTS, WIDTH, WORDS, forward

import fineline as fl


def test_forward(fineline):
    torch.manual_seed(0)
    step = fl.compile(forward, backend="eager", policy=fl.load_policy("policy.toml"))
    model = Model(WORDS, WIDTH)
    loss, _ = step(model, TEXTS)
    assert torch.allclose(loss, forward(model, TEXTS)[0])
    fineline.assert_ledger(step)
