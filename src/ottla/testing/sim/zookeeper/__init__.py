"""ZooKeeper in the simulator: its znodes, sessions and connections in virtual time.

Passes the same checks as the real client. Start at `zookeeper.py`, then `zookeeper_session.py`;
`zookeeper_mode.py` has the ensemble of a simulated cluster, and its faults.
"""
