"""Programs of tests/language that are not captured as they should be, each with what is missing, and in which twins.

Their answers are right: a wrong one is never excused. A line goes when its program passes; until it does, the suite fails.
"""

from __future__ import annotations

GAPS: dict[tuple[str, str], str] = {  # (program, twin) -> what is missing
    ("function_its_apply", "borders"): "where each operator breaks the graph, the node of a function made anew is for one class, and each call captures it",
    ("function_a_partial", "borders"): "where each operator breaks the graph, the node of a function made anew is for one class, and each call captures it",
    ("function_in_a_closure", "borders"): "where each operator breaks the graph, the node of a function made anew is for one class, and each call captures it",
    ("new_and_init", "borders"): "a class that holds its own instances is found not to be complete where the graph breaks, and the second call captures",
}


# Programs that AOTAutograd takes for others, under torch.compile too, or refuses: they have no `aot` twins.
AOT: dict[str, str] = {
    "gradients_that_are_none": "it raises at compilation what the backward pass would",
    "backward_that_raises": "it raises at compilation what the backward pass would",
    "arguments_of_the_call_that_are_written": "an argument into which a Function writes gets no gradient",
    "hook_added_and_removed_later": "it looks at hooks while it compiles",
    "indexing_of_many_kinds": "captured twice, as it can't read an index",
    "dropout": "it draws other random numbers where sizes are symbols",
    "inner_tensors_are_used_after_all": "gradients are added in another order",
    "with_keywords_and_constants": "gradients are added in another order",
    "structures_in_and_out": "gradients are added in another order",
    "warned_by_operators": "it says warnings once more while it compiles",
    "recurrent_layers": "its graph of LSTM layers whose input needs no gradient saves None for tensors, and raises, under torch.compile too",
}
