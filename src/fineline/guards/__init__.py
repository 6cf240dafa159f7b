"""Sources and guards: what a program relies on, as steps that read values and check them, and their evaluator in Python.

In: values with the way to each. Out: steps for `native` or for the reference evaluator. It does not know who asks for a guard.
"""
