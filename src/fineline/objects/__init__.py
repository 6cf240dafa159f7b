"""Objects of the user's: attributes, items that iterators give, texts, and calls into C, with all that they read guarded.

In: an object and what is asked of it. Out: what Python would find, and guards on it. It does not know tensor operators or instructions.
"""
