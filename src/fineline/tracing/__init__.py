"""The record of one captured segment: sources of values, guards, writes to objects, symbols, origins of nodes.

In: values that code reads and writes. Out: guards, and the writes that a program repeats. It does not know which code reads them.
"""
