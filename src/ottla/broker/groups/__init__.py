"""The consumer groups of this broker: a shard of `coordinator` for each offsets partition it leads.

Knows hosted partitions, as the journal of a shard. Start at `group_service.py`.
"""
