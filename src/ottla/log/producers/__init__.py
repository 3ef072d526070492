"""What a log knows of its idempotent and transactional producers, and their snapshots.

Start at `producer_state.py`, which checks sequence numbers; `producer_state_manager.py` has the
snapshots of one log, `producer_snapshot.py` their format.
"""
