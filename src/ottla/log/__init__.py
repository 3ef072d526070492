"""One partition's log in Kafka's file formats, and a node's log directories.

Knows batches and files, but no leaders, requests or controllers; disk, clock and threads come in as
ports. Start at `partition_log.py`; then `dirs/log_dirs.py`, `recovery/log_loader.py`.
"""
