"""The command line: its commands and options, their actions, programs that run with their workers, the audit, and bisections.

In: arguments. Out: exit statuses and reports. `startup` runs first in each Python that a program starts.
"""
