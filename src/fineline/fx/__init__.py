"""Graphs of torch.fx: recording, comparison, properties that a compiler may rely on, and the modules that hold the graphs.

In: operators with nodes and constants for arguments. Out: `fx.Graph` and modules for backends. It does not know frames, sources or guards.
"""
