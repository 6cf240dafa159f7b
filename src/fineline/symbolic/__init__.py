"""Symbolic numbers, which stand for any value: arithmetic on them, and the places where their value must be known.

In: ints and floats that vary. Out: numbers that compute expressions, and guards on comparisons. It does not know frames or objects.
"""
