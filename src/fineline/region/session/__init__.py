"""Capture sessions: one attempt to capture a call, its end at a return or a graph break, and how it is undone or made again.

In: a region, an entry point, and the arguments of a call or the values that are alive after a graph break. Out: the result of the call,
and programs at entry points of the region. Files here do not decide whether a call is captured: the region does.
"""
