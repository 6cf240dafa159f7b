"""Compilers of graphs: their registry, the built-in ones, and the lock around PyTorch's tracers.

In: a graph module with example inputs. Out: a callable. It does not know where a graph comes from.
"""
