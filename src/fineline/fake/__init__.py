"""Tensors without numbers: the fake ones that stand for those of the user's, and what operators on them tell.

In: real tensors, and operators. Out: fake results, or the reason why an operator has none. It does not know what is captured.
"""
