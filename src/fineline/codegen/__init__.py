"""Residual programs: the Python code that runs instead of a captured segment, and the state of the frames at a graph break.

In: a segment's trace, and the frames where it ends. Out: a function that runs the graph, repeats the writes of the code, rebuilds results
and frames, and continues. It does not know how a segment was captured, or which program a call takes.
"""
