"""Tiered storage on a broker: remote segment metadata, copying and expiration, remote reads.

Pure, as all of `broker`: clock, timers, workers, connections and the object store come in as ports.
What a remote segment is, and what follows from its records, is decided by `ottla.tiered`. Start at
`metadata_topic.py` (what is known of segments) and `reads.py` (fetches below the local log start).
"""
