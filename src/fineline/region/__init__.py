"""A compiled callable: its options, the entry points of its programs, capture sessions, and what is learned from call to call.

In: the user's function with its options, and calls. Out: results, programs, and events. Everything else lies below it, except for the
public functions and the command line.
"""
