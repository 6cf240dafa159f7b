"""Source that rebuilds the objects that the captured code made: one expression or a few statements for each."""

from __future__ import annotations

import functools
import math
from contextvars import Token
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.hooks import RemovableHandle

from fineline.codegen.program_text import ProgramText, short_name
from fineline.codegen.reconstruct_builtins import MAKERS, iterator
from fineline.codegen.reconstruct_classes import made_class, part_of_class
from fineline.codegen.reconstruct_instances import exception, fill_instance, instance
from fineline.fake.fake_tensors import carry, own_attributes
from fineline.frames.graph_breaks import NotReconstructible
from fineline.fx.hook_node import tell
from fineline.fx.output_fixups import as_plain, disowned, hides_class, needs_gradients, remake
from fineline.guards.facts import storage_of, tensor_number
from fineline.guards.relation import python_text, symbols_of
from fineline.guards.source import Source
from fineline.identity import IdentitySet
from fineline.kinds import is_a
from fineline.objects.deferred_texts import call_of
from fineline.objects.hook_order import count_handle, make_handle
from fineline.objects.iterator_stand_ins import KINDS, recipe_of
from fineline.torch_facts.distributed_tensors import holds_masks, is_distributed, layout_of
from fineline.torch_facts.tensor_backup import set_version
from fineline.torch_facts.wrapper_subclasses import leaves_of, lies_in_ragged, parts_of, ragged_size, stands_for_lengths
from fineline.tracing.plain_values import PLAIN_TENSORS, SINGLETONS, VALUES, is_value
from fineline.tracing.recreated_classes import CLASS_MEMBERS
from fineline.tracing.symbols import Carried

LONG = 2000  # bits
WRITTEN_OUT = (type(None), bool, int, str, bytes, type(...))


class Reconstructor(ProgramText):
    """Writes the expression of each value into a program."""

    LITERALS = SINGLETONS | VALUES - {slice}

    def existing(self, v: Any, src: Source) -> str:
        return self.param(src)

    def literal(self, v: Any) -> str:
        t = type(v)
        if t is int and v.bit_length() > LONG:
            # Python refuses to write out the digits of very large numbers.
            return hex(v)
        if t in WRITTEN_OUT or (t is float and math.isfinite(v)):
            return repr(v)
        return self.constant(v, t.__name__)

    def symbolic_number(self, v: Any) -> str:
        """Returns the expression of a symbolic number, computed from the sizes and numbers that the program gets."""
        if stands_for_lengths(v):
            return f"{self.constant(ragged_size, 'ragged_size')}({self.expr(self.trace.symbols.holder(v))})"
        names = {}
        term = self.trace.symbols.term(v)
        for symbol in symbols_of(term):
            if symbol in self.trace.symbols.draws.of:
                names[symbol] = self.draws[symbol]
                continue
            node = self.trace.symbols.leaf(symbol)
            if node is not None:
                names[symbol] = self.output(node)
                continue
            leaf = self.trace.symbols.places.leaves[symbol]
            name = self.param(leaf.source)
            if leaf.kind == "number":
                names[symbol] = name
            elif type(leaf.source.value) in PLAIN_TENSORS:
                names[symbol] = f"{name}.{leaf.kind}({leaf.dim})"
            else:
                # The tensor's class must not see the read.
                names[symbol] = f"{self.constant(tensor_number, 'tensor_number')}({name}, {leaf.kind!r}, {leaf.dim})"
        text = python_text(term, names)
        if "math." in text:
            self.constants["math"] = math
        return f"({text})"

    def deferred_text(self, v: str) -> str:
        name = self._memo.get(v)
        if name is not None:
            return name
        fn, args = call_of(self.trace, v)
        return self.statement("text", f"{self.constant(fn, fn.__name__)}({self.call(args, {})})", v)

    def graph_input(self, src: Source | Carried) -> str:
        """Returns the expression of an input of the graph."""
        if not is_a(src, Carried):
            text = self.param(src)
            return f"{self.constant(as_plain, 'as_plain')}({text})" if hides_class(src.value) else text
        text = self.expr(src.value)
        if type(src.value) is not torch.SymFloat:
            return text
        tally = self.trace.guards.interp.tally
        return f"{self.constant(carry if tally is None else functools.partial(tally.during, '', carry), 'carry')}({text})"

    def graph_result(self, v: Tensor) -> str:
        recorder, outputs = self.trace.recorder, self.outputs
        making = self.trace.containers.wrappers.making(v)
        if making is not None and not self._is_shared(v):
            return self._made_wrapper(v, making)
        node = recorder.find(v) if recorder.known(v) else None
        if node is None:
            raise NotReconstructible(f"a tensor of unknown origin, shape {tuple(v.shape)}")
        new = node not in outputs.names
        name = self.output(node)
        if new:
            if storage := storage_of(v):
                outputs.places.setdefault(storage, []).append(node)
            outputs.disowned = outputs.disowned or disowned(v)
            outputs.transformed = outputs.transformed or torch._C._functorch.is_functorch_wrapped_tensor(v)
            outputs.beyond_aot = outputs.beyond_aot or self._beyond_aot(v)
            change = remake(v, self.trace.state.start.inference_mode, recorder.traits.leaves)
            if change is not None:
                outputs.remade.append((node, change))
            if own := self._set_attributes(v):
                self.fill_dict(f"{name}.__dict__", own)
        return name

    def _beyond_aot(self, v: Tensor) -> str:
        """Returns why AOTAutograd cannot give a result of the graph; "" if it can."""
        recorder, distributed = self.trace.recorder, is_distributed(v)
        if holds_masks(v):
            return "it returns a DTensor whose placements hold a mask, which AOTAutograd takes for a constant"
        memory = functools.partial(self.trace.guards.interp.backing.memory, self.trace.guards.interp)
        own, storages = memory(v), recorder.writes.storages
        written = storages.intersection(map(storage_of, leaves_of(own))) if storages else set()
        ragged = self.trace.containers.wrappers.met and not disowned(own) and lies_in_ragged(own)
        if not distributed and not written and not ragged:
            return ""
        given = [memory(src.value) for _, src in recorder.inputs if is_a(src.value, Tensor)]
        outer = [x for x in given if storage_of(x) == storage_of(own)]
        alike = [layout_of(x) for x in outer if is_distributed(x)]
        if distributed and alike and layout_of(v) not in alike:
            return "it returns a view of a DTensor, which AOTAutograd makes by strides, and a DTensor takes none"
        if ragged and outer:
            return "it returns the values of a tensor with a ragged dimension made of an input, and AOTAutograd would give no gradients to that"
        # A view of an input as a whole is made from that input again.
        if not outer and not written.isdisjoint([storage_of(part) for x in given for part in leaves_of(x)]):
            return f"it returns a {type(v).__name__} in memory of an input that it writes into, and AOTAutograd would give that other memory"
        return ""

    def _is_shared(self, v: Tensor) -> bool:
        """Returns whether only the graph's own tensor stands for ``v``, which the code has made: operators have written into it, or it has aliases."""
        recorder, wrappers, interp = self.trace.recorder, self.trace.containers.wrappers, self.trace.guards.interp
        own = interp.backing.memory(interp, v)
        written, aliased = wrappers.version(v, own) is not None, recorder.has_aliases(own)
        if not recorder.known(v) or not (written or aliased):
            return False
        if wrappers.is_leaf(v):
            raise NotReconstructible(f"a {type(v).__name__} that the code has made as a leaf of autograd, and then used")
        of_inputs = {storage_of(x) for _, src in recorder.inputs if is_a(src.value, Tensor) for x in leaves_of(interp.backing.memory(interp, src.value))}
        places = of_inputs.intersection(map(storage_of, leaves_of(own)))
        # Otherwise the graph writes into its inner tensors, which are all that it consists of.
        return not written or not places or aliased or needs_gradients(own) or v.is_inference()

    def _made_wrapper(self, v: Any, making: tuple[list, dict[str, Any]]) -> str:
        """Makes a tensor of a wrapper subclass again as the captured code has made it, without its constructor."""
        interp = self.trace.guards.interp
        own = interp.backing.memory(interp, v)
        version = self.trace.containers.wrappers.version(v, own)
        if version is not None and (needs_gradients(own) or v.is_inference() or not self.trace.recorder.known(v)):
            raise NotReconstructible(f"a {type(v).__name__} that the code has made and then written into")
        args, kwargs = making
        name = self.statement(type(v).__name__, f"{self.constant(Tensor._make_wrapper_subclass, 'make')}({self.call(args, kwargs)})", v)
        fill_instance(self, name, v)
        if version is not None:
            self.lines.append(f"{self.constant(set_version, 'set_version')}({name}, {version})")
        return name

    def _set_attributes(self, v: Tensor) -> dict[str, Any]:
        """Returns the attributes that the user's code has set on a result of the graph."""
        if type(v) is FakeTensor:
            return {k: x for k, x in v.__dict__.items() if k not in own_attributes()}
        wrappers = self.trace.containers.wrappers
        if v not in wrappers:
            return v.__dict__
        if wrappers.removed(v) or wrappers.changed(v, parts_of(v)):
            raise NotReconstructible(f"a {type(v).__name__} whose inner tensors or context the code has replaced")
        if wrappers.making(v) is not None:
            inner = IdentitySet(parts_of(v).tensors)
            return {k: x for k, x in v.__dict__.items() if x not in inner}
        return wrappers.added(v)

    def register_hooks(self) -> None:
        """Writes the statements that make the handles of hooks on modules, and those that register and remove hooks on tensors, in their order."""
        for hook in self.trace.mutations.hooks.of_modules.values():
            if hook.lasts:
                text = f"{self.constant(make_handle, 'make_handle')}({self.items(hook.dicts)})"
                self.statement("handle", text, hook.handle)
            else:
                self.lines.append(f"{self.constant(count_handle, 'count_handle')}()")
        for made, removed in self.trace.mutations.hooks.events:
            if removed:
                self.lines.append(f"{self._memo[made.handle]}.remove()")
            else:
                register = f"{self.expr(made.tensor)}.{made.method}(" if made.method else f"{self.constant(tell, 'tell')}({self.expr(made.tensor)}, "
                self.statement("handle", f"{register}{self.expr(made.hook)})", made.handle)

    def set_variables(self) -> None:
        """Writes the statements that set context variables, in their order; the tokens are for the code after them."""
        for made in self.trace.mutations.settings.events:
            try:
                text = f"{self.expr(made.var)}.set({self.expr(made.value)})"
            except NotReconstructible as e:
                raise NotReconstructible(str(e), made.called_at) from None
            self.statement("token", text, made.token)

    def other_object(self, v: Any, src: Source | None) -> str:
        trace, t = self.trace, type(v)
        if t in CLASS_MEMBERS and v.__objclass__ in trace.classes.local:
            return self.member(v)
        if type(v) is RemovableHandle and v in trace.mutations.hooks.of_modules:
            raise trace.mutations.hooks.of_modules[v].outside
        if type(v) is RemovableHandle and v in trace.mutations.hooks.by_handle:
            raise trace.mutations.hooks.by_handle[v].outside("the handle of a hook that is in the graph, or that its own hook reads")
        if type(v) is Token and v in trace.mutations.settings.by_token:
            raise NotReconstructible("the token of a context variable that was reset", trace.mutations.settings.by_token[v].called_at)
        local = v in trace.classes.local
        if src is not None:
            if src.op == "pin":
                return self.constant(v, short_name(src))
            if is_value(v) and t is not tuple and not local:
                return self.constant(v, getattr(v, "__name__", t.__name__))
            return self.param(src)
        classes = trace.classes
        if v in classes.parts and classes.parts[v] in classes.made:
            return part_of_class(self, v, classes.parts[v])
        if v in classes.made:
            return made_class(self, v, classes.made[v])
        if local and is_a(v, type):
            raise NotReconstructible(f"the class {v.__qualname__}, of unknown origin")
        if t is not tuple and is_value(v) and not local and not (t is frozenset and v in trace.made):
            return self.constant(v, getattr(v, "__name__", t.__name__))
        if v in self.busy:
            raise NotReconstructible(f"a {t.__name__} that is made of itself")
        self._kept.append(v)
        if v in trace.namespaces.bound:
            given = trace.namespaces.bound[v]
            get = self.constant(type(given[0]).__get__, "get")
            return self.statement("bound", f"{get}({self.items(given)})", v)
        make = MAKERS.get(t)
        if make is not None:
            return make(self, v)
        recipe = recipe_of(v)
        if recipe is not None:
            return iterator(self, v, recipe)
        if t in KINDS:
            raise NotReconstructible(f"a {KINDS[t].__qualname__} that is under way")
        return exception(self, v) if is_a(v, BaseException) else instance(self, v)

