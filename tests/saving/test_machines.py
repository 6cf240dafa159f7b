"""Compiled graphs in a file: which machines and settings they are for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch._functorch.config
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomGraphPass

from fineline.backends.registry import BACKENDS
from fineline.saving import artifacts


class Pass(CustomGraphPass):
    def __init__(self, by: str) -> None:
        self.by = by

    def __call__(self, graph: torch.fx.Graph) -> None:
        pass

    def uuid(self) -> str:
        return self.by


def why_not(on: artifacts.Machine) -> str:
    """Returns why an artefact of another machine is not loaded here; that of this machine would only fail in PyTorch."""
    with pytest.raises(artifacts.NotRestored) as caught:
        artifacts.restore(artifacts.Artifact("a key", b""), on, BACKENDS.lookup("inductor"))
    return str(caught.value)


def test_the_code_is_for_the_vector_instructions_and_the_gpu_of_its_machine() -> None:
    """Code for wider vectors, on a machine with narrower ones, writes beside the tensors, and raises nothing."""
    here = artifacts.machine()
    assert "PyTorch cannot load it" in why_not(here)
    assert "vector instructions wide, wider, and here are" in why_not(here._replace(name="another", usable=("wide", "wider")))
    assert "it was compiled for Some GPU, and this is" in why_not(here._replace(gpu="Some GPU"))


@pytest.mark.parametrize(
    ("module", "name", "one", "other"),
    [
        (config, "post_grad_custom_pre_pass", Pass("one"), Pass("other")),
        (config, "joint_custom_post_pass", lambda graph: None, lambda graph: None),
        (torch._functorch.config, "joint_custom_pass", Pass("one"), Pass("other")),
        (config, "_fuse_ddp_bucket_size", 1, 2),
    ],
)
def test_passes_of_the_users_are_settings(module: Any, name: str, one: Any, other: Any) -> None:
    """PyTorch leaves them out of what it writes about its settings."""
    before = artifacts.machine()
    with module.patch({name: one}):
        with_one = artifacts.machine()
        assert "the settings" in why_not(before)
    with module.patch({name: other}):
        assert len({before.settings, with_one.settings, artifacts.machine().settings}) == 3
    if isinstance(one, Pass):
        with module.patch({name: Pass("one")}):
            assert artifacts.machine() == with_one
    assert artifacts.machine() == before
