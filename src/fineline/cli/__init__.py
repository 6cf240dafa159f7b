"""The command line: its words, what they do, runs of programs with their workers, and the audit.

In: arguments. Out: exit statuses and reports. `startup` is what runs first in each Python that a program starts.
"""
