"""User objects: attributes, items of iterators, texts, and calls into C, with guards on all that they read.

In: an object and an operation on it. Out: the result that Python would return, and guards on it. It does not know tensor operators or
instructions.
"""
