"""Interpreted frames, the generators that hide suspended ones, and how a handler tells the interpreter that it cannot go on.

In: code objects. Out: `Frame`, and the exceptions that mean graph breaks. It does not know what the code computes.
"""
