"""Reports of what fineline did: events, logs, explanations, pages, the tree of calls, the count of operators.

In: events. Out: texts and records. It decides nothing.
"""
