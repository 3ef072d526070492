"""What a broker of ZooKeeper mode does with LeaderAndIsr, UpdateMetadata and StopReplica.

Turns the requests back into metadata records; knows nothing of ZooKeeper itself.
Start at `zk_metadata.py`.
"""
