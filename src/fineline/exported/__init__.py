"""The graph of one call that stands alone: parameters and results of the user's function, checks of arguments, no residual program.

In: a captured call. Out: a module for `torch.export` or for use by itself, or the reason why there is none. It does not know regions.
"""
