"""The interpreter: it runs the user's bytecode frame by frame, and lets its host decide at graph breaks.

In: code objects with their arguments (`frames.Frame`). Out: the result of the call, or a graph break. `opcodes` has a handler for each
instruction. It does not know regions, guard programs or backends.
"""
