"""The commands about partitions: offsets, elections, reassignments, log directories.

Each is a file; `…_zookeeper` files are for clusters without KRaft. Start at `get_offsets.py`.
"""
