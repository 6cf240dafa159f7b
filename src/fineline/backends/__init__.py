"""Compilers of graphs: their registry, those that are built in, and the lock around PyTorch's tracers.

In: a graph module with example inputs. Out: a callable. It does not know where a graph comes from.
"""
