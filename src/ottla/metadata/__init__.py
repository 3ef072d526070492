"""The cluster's metadata as values: records, the image that they build, deltas, configuration.

May import `wire` and `base` only; decides nothing. Start at `image.py`, then `delta.py`;
`records` is KRaft's encoding of the facts, `znodes` is ZooKeeper's.
"""
