"""Code objects of CPython: decoding, exception tables, analyses of pure code. The only place that knows Python versions.

In: code objects. Out: instructions of one set, and facts about them.
"""
