"""The interpreter: it runs the user's bytecode, one frame after the other, and asks its host what to do at a graph break.

In: code objects with their arguments (`frames.Frame`). Out: the result of the call, or a graph break. `opcodes` has a handler for each
instruction. It does not know regions, guard programs or backends.
"""
