"""Programs of tests/language that do not hold yet, each with what is missing. A line goes when its program passes."""

from __future__ import annotations

GAPS: dict[str, str] = {}

_BY_REASON = {
    "The answer is right, but the call runs eagerly.": (
        "generic_and_annotations "  # a typing alias of a class that the call makes
        "hash_and_equality_in_dicts "  # C asks a user's __hash__ and __eq__ when a dict is built
        "partialmethod single_dispatch partial numeric_conversions "
    ),
    "The answer is right, but the operators lie between graph breaks and are too few for a graph of their own, or run eagerly.": (
        "dict_methods eval_and_exec import_errors inference_mode "
    ),
    "The answer is right, but each call is captured anew: it makes a class or a cache, or changes what it reads.": (
        "cached_property enums flags lru_cache_inside "
    ),
    "The answer is right; a class-level list that the program clears and then reads has another length at the second call, so that is captured again.": (
        "add_not_implemented arithmetic_dunders items_by_protocol objects_with_operators_as_arguments "
    ),
    "Wrong: isinstance() inside fineline asks an object with its own __getattribute__ for __class__, and the program logs that.": (
        "getattribute "
    ),
}
for _reason, _names in _BY_REASON.items():
    GAPS.update(dict.fromkeys(_names.split(), _reason))
