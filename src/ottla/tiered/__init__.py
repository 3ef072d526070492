"""Tiered storage (KIP-405): what is in the remote tier, what to copy, expire and read.

Pure: knows records, epochs and offsets, but no broker, object store or clock. Start at
`segment_metadata.py` and `remote_log.py`; then `copy_plan.py`, `expiration.py`, `read_plan.py` and
`manifest.py`.
"""
