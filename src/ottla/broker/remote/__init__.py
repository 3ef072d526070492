"""Tiered storage on a broker: remote segment metadata, copying and expiration, remote reads.

Pure, as all of `broker`: clock, timers, workers, connections and the object store come in as ports.
What a remote segment is, and what follows from its records, is decided by `ottla.tiered`. Start at
`remote_storage.py`, which puts `metadata/`, `tasks/` and `reads/` together.
"""
