"""Handlers of instructions: a function for each, named as the instruction is, and the tables that link code to them.

In: the interpreter, a frame and the instruction's argument. Out: None, or the frame that runs next. A handler knows nothing of Python
versions: code is decoded in `bytecode`.
"""
