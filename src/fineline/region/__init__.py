"""A compiled callable: its options, the entry points of its programs, capture sessions, and what it learns from call to call.

In: the user's function with its options, and calls. Out: results, programs, and events. All other packages are below it, except for the
public functions and the command line.
"""
