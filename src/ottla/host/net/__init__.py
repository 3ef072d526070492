"""Connections: the server's, and the channels to other nodes.

Knows frames and requests in flight, not what they mean. Start at `connection.py`; responses leave
through `outgoing.py`.
"""
