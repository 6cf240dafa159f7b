"""Reports of what fineline did: events, logs, explanations, the page, the tree of calls with its times, the count of operators, costs.

In: events, and measurements of watched captures. Out: texts, records and one HTML page (its style and script are in `assets/`). It decides nothing.
"""
