"""Programs of tests/language that are not captured as they should be, each with what is missing, and in which twins.

Their answers are right: a wrong one is never excused. A line goes when its program passes; until it does, the suite fails.
"""

from __future__ import annotations

GAPS: dict[tuple[str, str], str] = {}  # (program, twin)

_BY_REASON = {
    ("captured", "The call runs eagerly."): (
        "generic_and_annotations "  # a typing alias of a class that the call makes
        "hash_and_equality_in_dicts "  # C asks a user's __hash__ and __eq__ when a dict is built
        "single_dispatch "  # a weak dict and typing.get_type_hints, inside
    ),
    ("borders", "The first call finds out that the mode's context has to cross graph breaks, the second captures anew."): "inference_mode",
}
for (_twins, _reason), _names in _BY_REASON.items():
    GAPS |= {(_name, _twin): _reason for _name in _names.split() for _twin in _twins.split()}
