"""Saved captures: the programs of a region in a file, from which another process makes them again without a capture.

In: a region with its programs, or a file and a callable. Out: the file, or a region that has the programs. Objects are saved by their
names and by what their code is, values as data; what has neither name nor data keeps its program out of the file, and nothing else.
It must not know how a capture made a program.
"""
