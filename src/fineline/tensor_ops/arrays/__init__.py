"""NumPy arrays in captured code: constants, inputs of the graph, and arrays that share memory with the graph's tensors.

What comes in is a call of NumPy, or an operator, with an array among its operands; what goes out is the result, a node of the graph, or a
graph break. `calls` pushes results on the stack of a frame; nothing else here knows of frames, and nothing of programs.
"""
