"""Export: the graph of one call that stands alone, with parameters and results of the user's function and checks of arguments.

In: a function and the arguments of one call. Out: a module for `torch.export` or for use by itself, with its guards, or the reason why there
is none. It makes a region for each call, and writes no residual program.
"""

from fineline.export.call import Exported, export, exported_program

# `fineline.export` is the function to users; the names are also imported from here.
__all__ = ["Exported", "export", "exported_program"]
