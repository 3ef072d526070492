"""What a node does only in KRaft mode: the quorum, following its log, a broker's registration.

Runs the effects of `raft` and the deciders of `controller`.
Start at `quorum_driver.py`, then `metadata_log.py` and `metadata_follower.py`; `node_mode.py` for a
node's start.
"""
