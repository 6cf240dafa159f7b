"""What one segment of a capture has learned: sources of values, guards, writes to objects, symbols, origins of nodes.

In: values as code reads and writes them. Out: guards, and what a program has to write. It does not know who reads.
"""
