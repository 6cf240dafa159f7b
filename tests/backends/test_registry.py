"""Backends by name: what is listed, looked up, loaded late, and refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fineline
from fineline.backends.registry import BUILTIN, PLUGIN_GROUP, BackendRegistry
from fineline.errors import BackendFailed, BadArgument, FinelineError


@pytest.fixture
def registry() -> BackendRegistry:
    return BackendRegistry(BUILTIN, PLUGIN_GROUP)


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An installed package that brings the backends ``plug``, ``broken`` and ``number``."""
    info = tmp_path / "plug-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plug\nVersion: 1.0\n")
    points = ["plug = plugged_backend:compile_it", "broken = plugged_nothing:f", "number = plugged_backend:NUMBER"]
    (info / "entry_points.txt").write_text("\n".join(["[torch_dynamo_backends]", *points, ""]))
    (tmp_path / "plugged_backend.py").write_text("NUMBER = 3\ndef compile_it(gm, inputs):\n    return ('plug', gm)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return "plug"


def test_the_builtin_ones_are_listed(registry: BackendRegistry) -> None:
    assert registry.names() == ["aot_eager", "eager", "inductor"]


def test_register_as_call_and_as_decorator(registry: BackendRegistry) -> None:
    def plain(gm: Any, inputs: Any) -> Any:
        return gm

    @registry.register(name="other", tags=["debug"])
    def fancy(gm: Any, inputs: Any) -> Any:
        return gm

    assert registry.register(plain) is plain
    assert "plain" in registry.names() and "other" not in registry.names()
    assert "other" in registry.names(exclude_tags=()) and "other" in registry.names(exclude_tags=None)
    assert registry.lookup("other").source.source is fancy
    assert not hasattr(fancy, "_tags")


def test_one_name_stands_for_one_backend(registry: BackendRegistry) -> None:
    def mine(gm: Any, inputs: Any) -> Any:
        return gm

    registry.register(mine)
    registry.register(mine)
    with pytest.raises(BadArgument, match="FL204.*'eager'"):
        registry.register(mine, name="eager")
    with pytest.raises(BadArgument, match="__name__"):
        registry.register(type("Nameless", (), {"__call__": lambda self: None})())
    with pytest.raises(BadArgument, match="FL203"):
        registry.register(3)  # type: ignore[arg-type]


def test_an_unknown_name_lists_the_known_and_the_closest(registry: BackendRegistry) -> None:
    with pytest.raises(BadArgument) as caught:
        registry.lookup("indutor")
    text = str(caught.value)
    assert "FL202" in text and "did you mean 'inductor'?" in text and "aot_eager, eager, inductor" in text
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, FinelineError)
    with pytest.raises(BadArgument) as caught:
        registry.lookup("zzz")
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize("backend", [None, 3, ["eager"]])
def test_neither_name_nor_callable(registry: BackendRegistry, backend: Any) -> None:
    with pytest.raises(BadArgument, match="FL203"):
        registry.lookup(backend)


def test_a_callable_is_its_own_backend(registry: BackendRegistry) -> None:
    seen: list[Any] = []

    class Mine:
        def __call__(self, gm: Any, inputs: Any, **kwargs: Any) -> Any:
            seen.append((gm, inputs, kwargs))
            return "compiled"

    found = registry.lookup(Mine(), options={"a": 1})
    assert found.name == "Mine"
    assert found("graph", (1, 2)) == "compiled"
    assert seen == [("graph", [1, 2], {"options": {"a": 1}})]
    assert registry.lookup(lambda gm, inputs: gm, mode="default").kwargs == {}


def test_plugins_are_found_and_loaded_late(registry: BackendRegistry, plugin: str) -> None:
    assert {"plug", "broken", "number"} <= set(registry.names())
    found = registry.lookup("plug")
    assert "plugged_backend" not in sys.modules
    assert found("graph", []) == ("plug", "graph")
    sys.modules.pop("plugged_backend")


def test_a_plugin_that_does_not_load(registry: BackendRegistry, plugin: str) -> None:
    with pytest.raises(BackendFailed, match="plugged_nothing:f") as caught:
        registry.lookup("broken")("graph", [])
    assert caught.value.id == "FL303" and isinstance(caught.value.__cause__, ModuleNotFoundError)
    with pytest.raises(BackendFailed, match="is a int"):
        registry.lookup("number")("graph", [])
    sys.modules.pop("plugged_backend")


def test_mode_and_options_are_checked_at_once(registry: BackendRegistry) -> None:
    with pytest.raises(BadArgument, match="FL205"):
        registry.lookup("inductor", mode="max-autotune", options={"max_autotune": True})
    with pytest.raises(BadArgument, match="reduce-overhead"):
        registry.lookup("inductor", mode="fast")
    with pytest.raises(BadArgument, match="no option 'max-autotunes'"):
        registry.lookup("inductor", options={"max-autotunes": True})
    with pytest.raises(BadArgument, match="is a str, and should be a bool"):
        registry.lookup("inductor", options={"max-autotune": "yes"})
    assert registry.lookup("inductor", mode="max-autotune").kwargs == {"mode": "max-autotune"}


def bare(gm: Any, inputs: Any) -> Any:
    return gm


def takes(gm: Any, inputs: Any, options: Any = None) -> Any:
    return gm


@pytest.mark.parametrize("option", ["recompile_limt", "recompile-limit", "fallback", "recompil_limit", "verfy"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor", bare])
def test_a_misspelled_option_of_finelines(option: str, backend: Any) -> None:
    with pytest.raises(BadArgument, match="FL206.*did you mean fineline's"):
        fineline.compile(lambda x: x, backend=backend, options={option: 3})


def test_a_misspelled_option_of_inductors() -> None:
    with pytest.raises(BadArgument, match="'max_autotun'; did you mean 'max_autotune'"):
        fineline.compile(lambda x: x, backend="inductor", options={"max_autotun": True})


def test_a_backend_that_takes_no_options(registry: BackendRegistry) -> None:
    for how in ({"options": {"level": 3}}, {"mode": "max-autotune"}):
        with pytest.raises(BadArgument, match="FL206.*'bare' takes no"):
            registry.lookup(bare, **how)


def test_an_option_may_be_the_backends_own(registry: BackendRegistry, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody but the backend knows: what looks like a misspelled one is a warning."""
    for options, warned in (({"level": 3}, False), ({"recompile_limt": 3}, True)):
        caplog.clear()
        assert registry.lookup(takes, options=options, own=["recompile_limit"]).kwargs == {"options": options}
        assert any("did you mean fineline's 'recompile_limit'" in text for text in caplog.messages) is warned


def test_modes_are_those_of_torch_compile(registry: BackendRegistry) -> None:
    check = registry.lookup("inductor").source.load().check_arguments
    assert check() == check("default") == {}
    assert check("reduce-overhead") == {"triton.cudagraphs": True}
    assert check("max-autotune-no-cudagraphs") == {"max_autotune": True, "coordinate_descent_tuning": True}
    assert check(None, {"max-autotune": True, "triton.cudagraphs": False}) == {"max_autotune": True, "triton.cudagraphs": False}


def test_eager_loads_no_compiler() -> None:
    code = (
        "import sys\nfrom fineline.backends.registry import lookup_backend\n"
        "lookup_backend('eager').source.load(); lookup_backend('inductor')\n"
        "print([m for m in ('torch._dynamo', 'torch._inductor.compile_fx', 'torch._functorch.aot_autograd') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
