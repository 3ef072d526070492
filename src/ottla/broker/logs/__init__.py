"""A broker's upkeep of its logs: creation, directory assignments, retention and flushes.

Knows log directories and hosted partitions. Start at `maintenance.py`.
"""
