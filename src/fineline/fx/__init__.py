"""Graphs of torch.fx: recording them, comparing them, what a compiler may rely on, and the modules that hold them.

In: operators with nodes and constants for arguments. Out: `fx.Graph` and modules for backends. It does not know frames, sources or guards.
"""
