"""Facts about PyTorch: which callables are operators, what they write, how they are spelled, and the state of its threads.

In: a PyTorch callable, or nothing. Out: rows of tables, and states that can be compared and restored. It knows nothing of capture.
"""
