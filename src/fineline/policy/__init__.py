"""Rules: which functions, files, modules, operators and namespaces are traced, kept eager, opaque or forbidden, and which rule decides.

In: selectors, marks, policies and scopes. Out: a decision on an object, with the rule and where it was declared. It does not know the
interpreter.
"""
