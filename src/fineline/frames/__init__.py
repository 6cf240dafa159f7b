"""Interpreted frames, the stand-ins for suspended generators, and the exceptions by which a handler ends a graph.

In: code objects. Out: `Frame`, and the exceptions that mean graph breaks. It does not know what the code computes.
"""
