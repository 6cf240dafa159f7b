"""Fake tensors, which stand for the user's real tensors, and the information from operators that run on them.

In: real tensors, and operators. Out: fake results, or the reason why an operator has none. It does not know what is captured.
"""
