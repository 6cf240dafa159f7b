"""Objects in files: by which names they are found, and what is compared of them."""

from __future__ import annotations

import types

import pytest
from torch import nn

from fineline.saving.fingerprints import Fingerprints
from fineline.saving.terms import TermReader, TermWriter


class Scale:
    def apply(self, x: int) -> int:
        return x * 2


def apply(self: Scale, x: int) -> int:
    return x * 3


class Net(nn.Module):
    pass


SCALE = Scale()
OWN = SCALE.apply
# Its class has another method of this name.
GIVEN = types.MethodType(apply, SCALE)


@pytest.mark.parametrize("method", [OWN, GIVEN], ids=["own", "given"])
def test_a_method_is_its_function_and_its_object(method: types.MethodType) -> None:
    writer = TermWriter()
    term = writer.term(method)
    found = TermReader(writer.table).value(term)
    assert found == method and found(1) == method(1)


def test_what_pytorch_puts_into_its_own_classes_is_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """TorchDynamo does so at its first use; functions of the user's are a change."""

    def patched(self: nn.Module) -> None:
        pass

    before = Fingerprints().of(Net)
    monkeypatch.setattr(nn.Module, "__setstate__", patched)
    assert Fingerprints().of(Net) != before
    patched.__module__ = "torch._dynamo.mutation_guard"
    assert Fingerprints().of(Net) == before
