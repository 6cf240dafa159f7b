"""Numbers that stand for any value: arithmetic on them, and when their value has to be known.

In: ints and floats that vary. Out: numbers that compute expressions, and guards on comparisons. It does not know frames or objects.
"""
