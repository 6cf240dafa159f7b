"""Functions that become graphs of their own inside a graph: control flow, autograd functions, checkpoints, opaque calls.

In: a Python callable with its operands. Out: a node whose arguments are graphs, or the reason why there is none. A failed attempt leaves
no effect.
"""
