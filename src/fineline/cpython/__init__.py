"""Facts about CPython's builtins, and Python code that replaces builtins written in C.

In: nothing. Out: tables of what calling a C function does, and functions that the interpreter runs instead of a C function that would
call user code. It knows nothing of capture.
"""
