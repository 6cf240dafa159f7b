"""The graphs of a region: those that its backend has compiled, and those that it compiles in the background.

It must not know of capture sessions.
"""
