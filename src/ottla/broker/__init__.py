"""What a broker does with requests and metadata: dispatch, partitions, purgatory, replication.

Pure: clock, threads and connections come in as ports (`ports.py`); does not know `raft`.
Start at `dispatch.py` and `api/`, then `core.py` and `partition.py`.
"""
