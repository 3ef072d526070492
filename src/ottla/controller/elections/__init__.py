"""Leader elections, and every change of a partition's leader, ISR and replicas.

Knows the image and which brokers are alive. Start at `partition_change.py`, which alone makes the
record of a change; `elections.py` selects partitions.
"""
