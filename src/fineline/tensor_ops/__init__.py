"""Operators on tensors: which are recorded, which run, which break the graph, and what is known about their results.

In: an operator with its arguments, real or fake. Out: its result, and a node of the graph. `subgraphs` has the operators that run
functions. It does not know instructions or the tables of builtins.
"""
