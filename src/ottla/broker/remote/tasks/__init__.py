"""What a partition's leader does with its remote tier: copies, expiration, manifests, restores; and
the purge of what deleted topics have left.

Each task is a dialogue over the ports of `environment.py`. Start at `leader_term.py`.
"""
