"""Programs that the regions of equal callables share: instances of one class, or functions of one ``def`` statement.

In: the programs that a region has captured. Out: one of them, bound to another region's instance, for a call that fits no program there.
Guards decide whether it fits: they read the instance and all that belongs to it anew, so that nothing here compares instances.
"""
