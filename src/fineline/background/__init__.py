"""Compiles graphs in the background: the queue of graphs, the thread and the process that compile them, and what runs in their place meanwhile.

In comes a captured graph with fakes of its inputs and the state of PyTorch in which it begins; out comes the backend's callable, or its error.
It must not know of regions, programs and captures.
"""
