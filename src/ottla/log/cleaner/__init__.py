"""Log compaction: keeps the newest record of each key.

Knows `PartitionLog` and its segments; the work runs in a process or thread that the host gives.
Start at `log_cleaner.py`; `cleaner_swap.py` has the order of the renames.
"""
