"""Tiered storage on a broker: the topic of remote segment metadata, copying, remote reads.

Pure, as all of `broker`: clock, timers, workers, connections and the object store come in as ports.
What a remote segment is, and what follows from its records, is decided by `ottla.tiered`.
Start at `metadata_topic.py`.
"""
