"""Fake tensors, which stand for the user's real ones, and the information that operators on them give.

In: real tensors, and operators. Out: fake results, or the reason why an operator has none. It does not know what is captured.
"""
