"""Bisection: which graph, function and operators make the result of a backend differ, or make it fail, found by keeping parts eager.

In: runs of a call or of a program, each with a part of its graphs compiled, and a verdict on each. Out: the culprits, and a policy that
keeps them eager. It does not know how a graph is captured; the command line runs programs for it.
"""
