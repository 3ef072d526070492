"""Reading for Fetch: sessions, delayed fetches, which replica to read from.

Knows hosted partitions; not connections. Start at `delayed_fetch.py`, then `fetch_sessions.py`.
"""
