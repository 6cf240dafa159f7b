"""Training in several processes: graphs in parts, at the buckets of DistributedDataParallel, and a comparison of what the ranks capture.

In: graphs with their example inputs, and events. Out: callables that run graphs in parts, and errors. It does not know frames or regions.
"""
