"""Residual programs: the Python code that runs in the place of a captured segment, and the state of the frames at a graph break.

In: a segment's trace, and the frames where it ends. Out: a function that runs the graph, writes what the code wrote, rebuilds results and
frames, and goes on. It does not know how a segment was captured, or which program a call takes.
"""
