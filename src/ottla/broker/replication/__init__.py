"""Followers: the fetchers of this broker, and the progress of others in the partitions it leads.

Knows partitions and peers, as ports; the controller decides what is proposed here.
Start at `replica_fetcher.py` and `follower_rules.py`; `isr.py` for the leader's side.
"""
