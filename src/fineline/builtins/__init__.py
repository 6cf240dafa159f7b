"""What the interpreter answers itself where code calls a function of Python's, a library's or fineline's, or uses an operator.

In: a callable with its arguments. Out: a value, a frame that runs code of the user's for it, or a graph break. What a call of C reads is
guarded by `objects`. It does not know instructions.
"""
