"""Handlers of instructions: one function for each, with the instruction's name, and the tables that link code to them.

In: the interpreter, a frame and the instruction's argument. Out: None, or the frame that runs next. A handler does not know Python
versions: `bytecode` decodes the code.
"""
