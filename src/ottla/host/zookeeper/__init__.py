"""What a node does only in ZooKeeper mode: its session, the controller's election and term.

Knows ZooKeeper by `base/zookeeper.py` only; the client library is in `kazoo`.
Start at `controller_term.py`; `node_mode.py` for a node's start.
"""
