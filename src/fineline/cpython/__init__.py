"""Facts about CPython's builtins, and Python code that stands for builtins written in C.

In: nothing. Out: tables of what calling a C function does, and functions that the interpreter runs in its place, where it would call code
of the user's. It knows nothing of capture.
"""
