"""A compiled callable: its options, the entry points of its programs, its limits and reports, and what it learns from call to call.

In: the user's function with its options, and calls. Out: results, programs, and events. `Region` has a part for each subject; other
code asks the part. All other packages are below it, except for the public functions and the command line.
"""
