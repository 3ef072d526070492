"""The commands about the cluster itself: its id, features, quorum, and the brokers' API versions.

Each command is a file; a `…_text` file beside it prints. Start at `cluster.py`.
"""
