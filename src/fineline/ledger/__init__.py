"""The ledger: a checked-in list of graph breaks, eager stretches and recompiles, with which a run is compared.

In: events, and a TOML file that people review. Out: what is new and what is gone, as text, GitHub annotations or SARIF, and the file's new
text. It must not know who asks: the command line, `testing` and the pytest plugin do. It imports no PyTorch.
"""
