"""Programs of tests/language that do not hold yet, each with what is missing. A line goes when its program passes."""

from __future__ import annotations

GAPS: dict[str, str] = {}

_BY_REASON = {
    "The answer is right, but the call runs eagerly: a class made in the captured code is alive at a graph break, or escapes.": (
        "class_attribute_written class_returned_with_its_instance classmethod_property_chain dataclass_inherited "
        "dataclass_made_inside del_of_many_kinds descriptor_called_by_hand dict_of_an_instance dict_subclass "
        "dir_and_mro_reads dunder_class_assigned generic_and_annotations getattr_with_defaults "
        "init_subclass_and_set_name int_and_float_subclasses list_subclass metaclass prepare rich_comparisons slots "
        "slots_with_dict strings_of_objects tensor_with_reflected_object total_ordering truth tuple_and_str_subclasses "
        "hash_and_equality_in_dicts partialmethod single_dispatch partial numeric_conversions "
        ""
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
