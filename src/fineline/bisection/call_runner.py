"""Runs of one call, each captured anew with another part compiled, and the verdict on each."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from fineline.api import recipe_of, region_of
from fineline.backends.registry import lookup_backend
from fineline.bisection.hunt import Bisection, Run, Verdict
from fineline.bisection.rules import EagerRule, can_be_made, policy_of
from fineline.bisection.suspects import Candidate, Suspects
from fineline.bisection.world import World, copied_value
from fineline.bytecode.asynchronous import let_pass
from fineline.errors import BackendFailed, BadArgument
from fineline.policy.stance import set_stance
from fineline.region.descriptions import name_of
from fineline.region.options import KNOWN, split_options
from fineline.region.region import Region
from fineline.report.differences import Noise, Precisions, first_difference, tensors_in
from fineline.torch_facts.random_state import RandomStates, are_equal, random_states

# A call is made again while it captures: the capturing call runs the operators one by one.
MOST_CALLS = 4
_GRADIENTS = "the gradients"


class Outcome(NamedTuple):
    """What a call has returned or raised, and what it has left behind; ``value``: the result itself, for a user's check."""

    value: Any
    error: Exception | None
    left: Mapping[str, Any]
    random: RandomStates


class CallRunner:
    """Runs a call of ``f`` from the state in which the world is now."""

    def __init__(self, f: Callable, args: Sequence[Any], kwargs: Mapping[str, Any], check: Callable[[Any], object] | None, how: dict[str, Any]) -> None:
        self._fn, known = recipe_of(f)
        self.name = name_of(self._fn)
        self._how: dict[str, Any] = {"breaks": "any", "policy": None, "dynamic": None, "mode": None, "options": None, **known, **how, "shares": False}
        if "backend" not in self._how:
            raise BadArgument("bisect needs a backend=, unless the callable is compiled", next_step="Say which backend gives the wrong result.")
        _, rest = split_options(self._how["options"])
        self._how["options"] = {**(self._how["options"] or {}), "suppress_errors": False, "fall_back": False}
        # Checks the backend's arguments.
        self._backend = lookup_backend(self._how["backend"], self._how["mode"], rest or None, KNOWN).source
        self._policy = self._how["policy"]
        self._check = check
        self._world = World(self._fn, args, kwargs)
        self._eager = self._eagerly()
        self._noise = Noise() if check is not None or self._eager.error is not None else self._measured_noise()

    @property
    def what(self) -> str:
        return f"the result of {self.name}"

    @property
    def unsteady(self) -> str:
        """Returns the head of a result that says that verdicts change from run to run."""
        return "the check is flaky" if self._check is not None else f"{self.what} is not the same each time"

    @property
    def raised(self) -> str:
        """Returns what eager code raises, and so compiled code does; "" if it raises nothing."""
        error = self._eager.error
        return f"eager code raises {_line(error)}, and so does compiled code" if error is not None else ""

    def judged_eagerly(self) -> Bisection | None:
        """Returns the result if eager code itself is wrong, or not the same each time; None if it may be relied on."""
        noise = self._noise
        # What changes from call to call has changed with the inputs that are a rounding off, too.
        self._noise = noise._replace(moved=None)
        one, two = self._judged(self._eager), self._judged(self._eagerly())
        self._noise = noise
        if one.kind != two.kind:
            said = (one.text or "right", two.text or "right")
            fault = "in eager code it says {}, and then {}".format(*said) if self._check is not None else f"two eager calls differ: {two.text}"
            return Bisection("flaky", fault, what=self.what, unsteady=self.unsteady)
        return None if one.right else Bisection("eager", one.text, what=self.what)

    def plan(self, text: str) -> None:
        """Says nothing: a call is over soon."""

    def may(self, rule: EagerRule) -> bool:
        return can_be_made(rule)

    def run(self, candidate: Candidate, rules: Sequence[EagerRule]) -> Run:
        """Captures the call anew, with a part of it compiled, and judges what the compiled code does."""
        if not candidate.captures:
            return Run(candidate, (), self._judged(self._eagerly()))
        suspects = Suspects(candidate, modules=self._world.paths, as_eager=self._check is None)
        policy = policy_of(rules, "bisection") if rules else None
        if self._policy is not None:
            policy = self._policy | policy if policy is not None else self._policy
        # Under fullgraph=True a rule may break the graph.
        breaks = "declared" if rules and self._how["breaks"] == "none" else self._how["breaks"]
        region = region_of(self._fn, {**self._how, "backend": suspects.within(self._backend), "policy": policy, "breaks": breaks})
        call = region.entry.dispatcher
        for _ in range(MOST_CALLS):
            programs = _programs(region)
            outcome = self._outcome(call)
            if suspects.refusals or suspects.failures or outcome.error is not None or programs == _programs(region):
                break
        return Run(candidate, tuple(rules), self._judged(outcome, suspects), tuple(suspects.graphs))

    def _eagerly(self, perturbed: bool = False) -> Outcome:
        """Makes a call in which nothing is compiled, not even callables that the user has compiled."""
        with set_stance("force_eager"):
            return self._outcome(self._fn, perturbed)

    def _outcome(self, call: Callable, perturbed: bool = False) -> Outcome:
        """Makes a call, and goes backward through what it returns; returns what this has done."""
        args, kwargs = self._world.put_back()
        if perturbed:
            self._world.perturb((args, kwargs))
        value, error = None, None
        try:
            value = call(*args, **kwargs)
            # A training step goes backward itself.
            if self._check is None and not self._world.has_new_gradients:
                _go_backward(value)
        except Exception as e:
            let_pass(e)
            error = e.with_traceback(None)
        given, random = (args, kwargs), random_states()
        left = {
            "the result": _kept(value), "the arguments": _kept(given), "the tensors that it reaches": self._world.tensors(),
            _GRADIENTS: {**_gradients(given), **self._world.gradients()},
        }  # fmt: skip
        self._world.put_back()
        return Outcome(value if self._check is not None else None, error, left, random)

    def _judged(self, outcome: Outcome, suspects: Suspects | None = None) -> Verdict:
        refusals, failures = (suspects.refusals, suspects.failures) if suspects is not None else ([], [])
        error = [*refusals, *failures, outcome.error][0]
        expected = self._eager.error
        if isinstance(error, BackendFailed) and isinstance(error.__cause__, Exception):
            error = error.__cause__
        # The code of a graph may raise what eager code raises; a backend may not.
        if error is not None and (refusals or type(error) is not type(expected)):
            return Verdict(f"raises {type(error).__name__}", f"it raises {_line(error)}")
        if error is None and expected is not None:
            return Verdict("raises nothing", f"it does not raise {type(expected).__name__}, which eager code raises")
        if self._check is not None:
            return self._checked(outcome)
        for part, kept in self._eager.left.items():
            found = first_difference(kept, outcome.left[part], self._noise_of(part), part)
            if found is not None and not are_equal(outcome.random, self._eager.random):
                return Verdict("random", str(found))
            if found is not None:
                return Verdict("differs", str(found))
        return Verdict()

    def _noise_of(self, part: str) -> Noise:
        exact, moved = [values.get(part) if isinstance(values, Mapping) else None for values in (self._noise.exact, self._noise.moved)]
        # A gradient that is zero but for rounding has the size of the roundings of the others.
        scale = self._noise.scale if part == _GRADIENTS else 0.0
        return Noise(exact, moved, scale, self._noise.tolerance)

    def _checked(self, outcome: Outcome) -> Verdict:
        if outcome.error is not None:
            return Verdict()
        assert self._check is not None
        try:
            answer = self._check(outcome.value)
        except AssertionError as e:
            return Verdict("check", f"the check fails: {str(e).partition(chr(10))[0] or 'AssertionError'}")
        # A check that only asserts returns nothing.
        return Verdict() if answer is None or bool(answer) else Verdict("check", f"the check returns {answer!r}")

    def _measured_noise(self) -> Noise:
        """Returns how exact the results of eager code are: by double precision, by inputs that are a rounding off, by the types of its numbers."""
        precisions = Precisions()
        with precisions:
            moved = self._eagerly(perturbed=True)
        gradients = self._eager.left[_GRADIENTS]
        left = moved.left if moved.error is None and are_equal(moved.random, self._eager.random) else {}
        return Noise(self._in_double_precision(), left, _largest(gradients.values()), precisions.tolerance if moved.error is None else 0.0)

    def _in_double_precision(self) -> Mapping[str, Any] | None:
        """Returns the result in double precision, if a module can be copied and run so; None otherwise."""
        module = self._fn
        if not isinstance(module, nn.Module):
            return None
        args, kwargs = self._world.put_back()
        try:
            with torch.no_grad(), set_stance("force_eager"):
                wide = copy.deepcopy(module).double()
                args, kwargs = tree_map(lambda v: v.double() if isinstance(v, Tensor) and v.is_floating_point() else v, (args, kwargs))
                value = wide(*args, **kwargs)
        except Exception as e:
            let_pass(e)
            return None
        finally:
            self._world.put_back()
        return MappingProxyType({"the result": _kept(value)})


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _programs(region: Region) -> int:
    return sum(event.kind in ("graph", "eager", "recompile", "break") for event in region.reports.events)


def _kept(value: Any) -> Any:
    """Returns a copy of a result, without its history."""
    return copied_value(value, lambda tensors: [t.detach().clone() for t in tensors])


def _gradients(given: Any) -> dict[str, Tensor | None]:
    leaves = [t for t in tensors_in(given) if t.is_leaf]
    return {f"argument {i}": None if t.grad is None else t.grad.detach().clone() for i, t in enumerate(leaves)}


def _largest(gradients: Iterable[Tensor | None]) -> float:
    """Returns the largest number of all gradients; infinite ones do not count."""
    finite = [g[g.isfinite()].abs() for g in gradients if g is not None and g.layout is torch.strided]
    return max([float(g.max()) for g in finite if g.numel()], default=0.0)


def _go_backward(value: Any) -> None:
    """Goes backward through the tensors of a result that have a history."""
    tensors = [t for t in tensors_in(value) if t.requires_grad and t.grad_fn is not None and not t.is_complex()]
    if tensors:
        torch.autograd.backward(tensors, [_weights(t) for t in tensors])


def _weights(t: Tensor) -> Tensor:
    """Returns the gradient of a result: not ones, because the sum of a normalized result is the same for all inputs."""
    numbers = torch.arange(1, t.numel() + 1, dtype=torch.float64, device=t.device)
    return numbers.mul_(1.618).sin_().add_(0.1).to(t.dtype).view(t.shape)
