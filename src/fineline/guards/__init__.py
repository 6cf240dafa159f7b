"""Sources and guards: the conditions for a program to run, as steps that read values and check them, and their evaluator in Python.

In: values, each with its access path. Out: steps for `native` or for the reference evaluator. It does not know which code needs a guard.
"""
