"""Functions that become graphs of their own inside of a graph: control flow, autograd functions, checkpoints, opaque calls.

In: a Python callable with its operands. Out: a node whose arguments are graphs, or the reason why there is none. Nothing that a function
does while it is tried is left behind.
"""
