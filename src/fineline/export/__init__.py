"""Export: a standalone graph of one call, with the parameters and results of the user's function, and checks of arguments.

In: a function and the arguments of one call. Out: a module for `torch.export` or for direct use, with its guards, or an error with the
reason. It makes a region for each call, and writes no residual program.
"""

from fineline.export.call import Exported, export, exported_program

# To users, `fineline.export` is the function; the names are also imported from here.
__all__ = ["Exported", "export", "exported_program"]
