"""Facts about CPython's builtins, and Python code that replaces builtins written in C.

In: nothing. Out: tables of the effects of calls of C functions, and functions that the interpreter runs instead of a C function that
would call user code. It does not know about capture.
"""
