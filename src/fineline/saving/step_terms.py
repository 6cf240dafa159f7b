"""Guard steps as data, and the sources that messages about them need."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType
from typing import Any

from fineline.bytecode.asynchronous import let_pass
from fineline.bytecode.code import CODES, CodeInfo
from fineline.frames.stub_frames import is_own
from fineline.guards.facts import AmbientFacts, TensorFacts
from fineline.guards.policy_epoch import RULEBOOK
from fineline.guards.source import Reads, Source
from fineline.guards.steps import ACCESS, Step
from fineline.kinds import is_a
from fineline.objects.lru_caches import Entry, entry_for
from fineline.policy.marks import MARKS
from fineline.policy.scope_stack import SCOPE
from fineline.region.disabled_frames import FrameRunner
from fineline.saving.fingerprints import defaults_fingerprint
from fineline.saving.object_names import Name, NotNamed, Part, find, namespace
from fineline.saving.terms import Stale, Term, TermReader, TermWriter

# The places of steps whose code has no name: none.
_NOWHERE = -1
# Access steps whose source is called by a name, which is not their payload.
_NAMED = ("root", "pin")
# The kind of the data of an entry in the cache of a function.
_CACHED = "cached"
_MRO = type.__dict__["__mro__"].__get__


def _rules_without_effect() -> int:
    """Returns the number of the rules of the process, if they are only marks on objects, which fingerprints contain; otherwise 0."""
    return 0 if SCOPE.process is not None or MARKS.operators else RULEBOOK.facts()[0]


class StepWriter:
    """Writes the steps of one program."""

    def __init__(self, writer: TermWriter) -> None:
        self._writer = writer
        self._facts: dict[TensorFacts, int] = {}
        self.facts: list[Term] = []
        # By register: where its object is found from a module.
        self._places: dict[int, Name] = {}

    def steps(self, steps: Sequence[Step], instance_at: int, reads: Reads) -> list[Term]:
        """Returns the data of the steps; raises `NotNamed`, with the user's expression, if an object in one has no name."""
        terms: list[Term] = []
        asked = {src for _, _, src, _ in steps} | {payload for op, _, _, payload in steps if op == "same"}
        for at, step in enumerate(steps):
            op, dst, src, payload = step
            try:
                if at == instance_at or (op == "pin" and dst not in asked and _is_own(payload)):
                    # The loader puts its instance there; of fineline's own functions and objects, most guards ask for nothing, and some have no name.
                    terms.append([op, dst, src, None])
                    continue
                self._suggest(op, src, payload)
                terms.append([op, dst, src, self._entry(src, payload) if is_a(payload, Entry) else self._payload(op, payload)])
                if op in ACCESS:
                    self._note_place(op, dst, src, payload)
            except NotNamed as e:
                source = reads.source(step)
                raise NotNamed(f"a guard on {source.text()}: {e}" if source is not None else str(e)) from None
        return terms

    def _note_place(self, op: str, dst: int, src: int, payload: Any) -> None:
        try:
            place = self._place(op, src, payload)
        except NotNamed:
            # A value, which has no name and needs none.
            return
        if place is not None:
            self._places[dst] = place

    def _place(self, op: str, src: int, payload: Any) -> Name | None:
        """Returns where the value of an access step is found; None if that depends on the call."""
        if op == "pin":
            return self._writer.names.of(payload)
        if op == "type_attr":
            cls, name = payload
            owner = next((base for base in _MRO(cls) if name in namespace(base)), None)
            return None if owner is None else self._within(self._writer.names.of(owner), name)
        place = self._places.get(src)
        if place is None:
            return None
        match op:
            case "dict":
                return self._within(place, ("__dict__", None))
            case "key" if type(payload) is str and place.path[-1:] == (("namespace", None),):
                return place._replace(path=(*place.path[:-1], payload))
            case "key" if type(payload) in (str, int):
                return self._within(place, ("item", payload))
            case "index":
                return self._within(place, ("item", payload))
            case "cell":
                return self._within(place, ("contents", None))
            case "member" if is_a(payload, (MemberDescriptorType, GetSetDescriptorType)):
                return self._within(place, (payload.__name__, None))
        return None

    def _within(self, name: Name, part: Part) -> Name:
        return name._replace(path=(*name.path, part))

    def _suggest(self, op: str, src: int, payload: Any) -> None:
        place = self._places.get(src)
        if place is None:
            return
        if op == "is":
            self._writer.names.suggest(payload, place)
        elif op == "function":
            for part, name in zip(payload, ("__code__", "__defaults__", "__kwdefaults__"), strict=True):
                if part is not None:
                    self._writer.names.suggest(part, self._within(place, (name, None)))

    def _entry(self, src: int, entry: Entry) -> Term:
        """Returns the data of an entry in the cache of a function: the function, by its name, and the arguments."""
        place = self._places.get(src)
        if place is None:
            raise NotNamed("an entry in the cache of a function that no module leads to")
        fn = find(place)
        if fn.cache_parameters()["typed"]:
            raise NotNamed("an entry in a cache that keeps the types of arguments")
        return [_CACHED, self._writer.named(fn), self._writer.term(entry.key)]

    def _payload(self, op: str, payload: Any) -> Term:
        term = self._writer.term
        match op:
            case "tensor":
                number = self._facts.get(payload)
                if number is None:
                    number = self._facts[payload] = len(self.facts)
                    self.facts.append(term(payload))
                return number
            case "function":
                code, defaults, kwdefaults = payload
                named = [None if part is None else self._writer.named(part) for part in (code, defaults, kwdefaults)]
                return [*named, defaults_fingerprint(defaults, kwdefaults)]
            case "weak":
                return self._writer.named(payload())
            case "ambient":
                facts: AmbientFacts = payload
                if facts.rules_of_thread or facts.rules_of_process not in (0, _rules_without_effect()):
                    raise NotNamed("it was captured under rules of the process, a block or a mark that was set later, which have no name")
                return term(facts._replace(rules_of_process=0))
        return term(payload)


def _is_own(v: Any) -> bool:
    """Returns whether an object is a function of fineline's, or what calls functions for a region."""
    return is_own(v.__code__) if is_a(v, FunctionType) else is_a(v, FrameRunner)


class StepReader:
    """Reads the steps of one program."""

    def __init__(self, reader: TermReader, facts: list[Term]) -> None:
        self._reader = reader
        self._facts = [reader.value(term) for term in facts]

    def steps(self, terms: list[Term]) -> tuple[Step, ...]:
        return tuple([(op, dst, src, self._payload(op, term)) for op, dst, src, term in terms])

    def _payload(self, op: str, term: Term) -> Any:
        if op == "tensor":
            return self._facts[term]
        if op == "function":
            code, defaults, kwdefaults = [self._reader.value(part) for part in term[:3]]
            if defaults_fingerprint(defaults, kwdefaults) != term[3]:
                raise Stale(f"the defaults of {code.co_qualname} have changed")
            return code, defaults, kwdefaults
        if type(term) is list and term[0] == _CACHED:
            return self._entry(self._reader.value(term[1]), self._reader.value(term[2]))
        value = self._reader.value(term)
        if op == "ambient":
            return value._replace(rules_of_process=_rules_without_effect())
        return weakref.ref(value) if op == "weak" else value

    def _entry(self, fn: Any, key: Any) -> Entry:
        try:
            found = entry_for(fn, key)
        except Exception as e:
            let_pass(e)
            raise Stale(f"the cached function {fn.__qualname__} raises {type(e).__name__}") from e
        if found is None:
            raise Stale(f"the cache of {fn.__qualname__} cannot be read")
        return found


class SavedReads(Reads):
    """The reads of a program from a file. Code is decoded when a message shows a place."""

    __slots__ = ("_codes", "_read")

    def __init__(self, codes: list[int], ips: list[int], read: Callable[[int], Any]) -> None:
        super().__init__()
        self._codes, self.ips, self._read = codes, ips, read

    def place(self, at: int) -> tuple[CodeInfo, int] | None:
        number = self._codes[at]
        try:
            return None if number == _NOWHERE else (CODES[self._read(number)], self.ips[at])
        except Stale:
            return None


def reads_term(reads: Reads, steps: Sequence[Step], writer: TermWriter) -> Term:
    """Returns the names of sources, and the places of steps."""
    names = {str(src.reg): src.key for src in reads.sources if src.op in (*_NAMED, "instance")}
    numbers: dict[int, int] = {}
    codes = []
    for at in range(len(steps)):
        place = reads.place(at)
        if place is None or is_own(place[0].code):
            codes.append(_NOWHERE)
            continue
        code = place[0].code
        if id(code) not in numbers:
            try:
                numbers[id(code)] = writer.named(code)[1]
            except NotNamed:
                numbers[id(code)] = _NOWHERE
        codes.append(numbers[id(code)])
    return {"names": names, "codes": codes, "ips": list(reads.ips)}


def reads_of(term: Term, steps: Sequence[Step], instance_at: int, reader: TermReader) -> SavedReads:
    """Returns the reads of the data."""
    reads = SavedReads(term["codes"], term["ips"], reader.named)
    names, sources = term["names"], reads.sources
    for at, (op, dst, parent, payload) in enumerate(steps):
        if op in ACCESS:
            kind = "instance" if at == instance_at else op
            key = names[str(dst)] if op in _NAMED else payload
            sources.append(Source(dst, sources[parent] if parent >= 0 else None, kind, key, payload if kind == "pin" else None))
    return reads
