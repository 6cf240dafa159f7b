"""The artefacts of compiled graphs in PyTorch's own caches, those of AOTAutograd and Inductor, in the form that PyTorch gives them.

An artefact is found by its key, so that the process that loads it neither traces the graph nor hashes PyTorch to compute one.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import operator
import platform
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
import torch._functorch.config
from torch import Tensor
from torch._inductor import config, cpu_vec_isa
from torch._inductor.standalone_compile import CacheCompiledArtifact
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.compiler._cache import CacheArtifactManager
from torch.fx import GraphModule
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from fineline.backends.inductor import inductor
from fineline.backends.registry import Backend
from fineline.bytecode.asynchronous import let_pass
from fineline.codegen.ambient_state import in_state, override_state
from fineline.codegen.programs import GraphCall
from fineline.guards.ambient_table import AMBIENT
from fineline.guards.facts import AmbientFacts, TensorFacts
from fineline.guards.steps import Step

log = logging.getLogger("fineline")
# The backend whose compiled graphs PyTorch's caches keep.
_CACHED = "inductor"


class Artifact(NamedTuple):
    """The artefact of one graph: its key in AOTAutograd's cache, and the entries of the caches as PyTorch writes them."""

    key: str
    entries: bytes


class Machine(NamedTuple):
    """Where artefacts were made. ``supported``, ``usable``: vector instructions of the machine, and those that its compiler knows.

    ``settings``: a hash of the settings of AOTAutograd and Inductor. ``gpu``: the GPU and the libraries that made code for it, "" if none was in use.
    """

    name: str
    supported: tuple[str, ...]
    usable: tuple[str, ...]
    settings: str
    gpu: str


class NotRestored(Exception):
    """PyTorch cannot load an artefact here; the text says why."""


# -- saving ------------------------------------------------------------------------------------------------------------------
def artifact_of(call: GraphCall, gm: GraphModule, steps: Iterable[Step], backend: Backend, compile_graph: Callable[..., Any]) -> Artifact | None:
    """Compiles a graph again, from the caches of this process, and returns its artefact; None if the caches do not keep it."""
    if backend.name != _CACHED or not backend.builtin or not call.compiled:
        return None
    steps = tuple(steps)
    start = next((facts for op, _, _, facts in steps if op == "ambient"), None)
    facts = {src: facts for op, _, src, facts in steps if op == "tensor"}
    inputs = [facts.get(register) for register in call.registers]
    if start is None or not all([known is not None and _is_plain(known) for known in inputs]):
        return None
    with config.patch(_changes(backend)):
        if config.triton.cudagraphs and any([known is not None and known.device.type != "cpu" for known in inputs]):
            # A CUDA graph is recorded around the compiled graph, and the entries do not contain it.
            return None
    try:
        found = _compile(call, gm, [known for known in inputs if known is not None], start, compile_graph)
    except Exception as e:
        let_pass(e)
        log.debug("fineline: no artefact of a graph", exc_info=True)
        return None
    keys = [] if found is None else found[1].aot_autograd_artifacts
    return Artifact(keys[0], found[0]) if found is not None and len(keys) == 1 else None


def _changes(backend: Backend) -> dict[str, object]:
    """Returns the changes to Inductor's settings that the mode and the options of the region mean."""
    return inductor.check_arguments(**backend.kwargs)


def _is_plain(facts: TensorFacts) -> bool:
    """Returns whether the facts are all that a backend knows of a tensor."""
    return facts.cls in (Tensor, torch.nn.Parameter) and facts.layout is torch.strided and facts.strides is not None and None not in facts.sizes


def _compile(call: GraphCall, gm: GraphModule, inputs: list[TensorFacts], start: AmbientFacts, compile_graph: Callable[..., Any]) -> Any:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    with mode, torch.inference_mode(False):
        examples = [_example(facts) for facts in inputs]
    # The backward pass is compiled now, too: its code is a part of the entry.
    eagerly = torch._functorch.config.patch(force_non_lazy_backward_lowering=True)
    state = in_state(start, AMBIENT.now(), {})
    with torch._C.DisableTorchFunctionSubclass(), state, override_state(call.state), eagerly, CacheArtifactManager.with_fresh_cache():
        compile_graph(gm, examples)
        return CacheArtifactManager.serialize()


def _example(facts: TensorFacts) -> Tensor:
    t = torch.empty_strided(facts.sizes, facts.strides, dtype=facts.dtype, device=facts.device)  # type: ignore[arg-type]
    return t.requires_grad_(facts.requires_grad)


def machine() -> Machine:
    """Returns this machine, for the file."""
    gpu = _gpu() if torch.cuda.is_initialized() else ""
    return Machine(platform.node(), tuple(sorted(cpu_vec_isa.x86_isa_checker())), _usable(), _settings(), gpu)


def _usable() -> tuple[str, ...]:
    return tuple(map(str, cpu_vec_isa.valid_vec_isa_list()))


def _gpu() -> str:
    """Returns the name of the GPU, its architecture, and the versions of what makes code for it; "" if there is none."""
    if not torch.cuda.is_available():
        return ""
    of = torch.cuda.get_device_properties(torch.cuda.current_device())
    triton = importlib.import_module("triton").__version__ if importlib.util.find_spec("triton") else "none"
    return f"{of.name} {of.major}.{of.minor}, {torch.version.cuda or torch.version.hip}, Triton {triton}"


def _settings() -> str:
    """Returns a hash of the settings that compiled code depends on; passes of the user's count by what they say that they are."""
    found = []
    for module in (config, torch._functorch.config):
        settings = module.save_config_portable(ignore_private_configs=False)
        # PyTorch leaves these out, because they cannot be pickled.
        others = {name: _pass_text(operator.attrgetter(name)(module)) for name in getattr(module, "_save_config_ignore", ())}
        found.append(sorted(map(repr, {**settings, **others}.items())))
    return hashlib.sha256(repr(found).encode()).hexdigest()[:24]


def _pass_text(setting: Any) -> str:
    """Returns a text of a setting. That of a pass without an id of its own holds in this process only."""
    uuid = getattr(setting, "uuid", None)
    own = uuid() if callable(uuid) else None
    return repr(setting) if own is None else f"{type(setting).__qualname__} {own!r}"


# -- loading -----------------------------------------------------------------------------------------------------------------
def restore(artifact: Artifact, on: Machine, backend: Backend) -> Callable[..., Any]:
    """Returns the compiled graph of an artefact; raises `NotRestored` if it is for another machine or other settings, or PyTorch cannot load it.

    ``backend``: the region's, with the mode and the options that the artefact was made with.
    """
    if on.settings != _settings():
        raise NotRestored("the settings of AOTAutograd or Inductor are not those that it was compiled with")
    if on.gpu and on.gpu != (gpu := _gpu()):
        raise NotRestored(f"it was compiled for {on.gpu}, and this is {gpu or 'a machine without a GPU'}")
    _know_instructions(on)
    # Its code goes through memory in steps of their size: under others it would read and write beside the tensors.
    if on.usable != (usable := _usable()):
        raise NotRestored(f"it was compiled for the vector instructions {', '.join(on.usable)}, and here are {', '.join(usable) or 'none'}")
    try:
        torch.compiler.load_cache_artifacts(artifact.entries)
        with config.patch(_changes(backend)):
            loaded = CacheCompiledArtifact._load_impl(nullcontext(), artifact.key)
        found: Callable[..., Any] = getattr(loaded, "_compiled_fn", loaded)
        return found
    except Exception as e:
        let_pass(e)
        raise NotRestored(f"PyTorch cannot load it ({type(e).__name__}: {e})") from e


def _know_instructions(on: Machine) -> None:
    """Spares Inductor the test of which vector instructions its compiler can use, which starts several processes: the saving process has made it here."""
    known = cpu_vec_isa.valid_vec_isa_list
    if known.cache_info().currsize or (platform.node(), tuple(sorted(cpu_vec_isa.x86_isa_checker()))) != on[:2]:
        return
    untested: AbstractContextManager[Any] = config.patch({"cpp.vec_isa_ok": True})
    with untested:
        usable = _usable()
    if usable != on.usable:
        known.cache_clear()
