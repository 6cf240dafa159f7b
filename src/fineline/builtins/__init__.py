"""Handlers of calls that the interpreter answers itself: functions of Python, of libraries and of fineline, and operators.

In: a callable with its arguments. Out: a value, a frame that runs user code for it, or a graph break. `objects` guards what a call into
C reads. It does not know instructions.
"""
