"""Topic deletions, from the request until every replica is deleted.

Knows the image and its ledger of deletions; the host sends what is requested of brokers.
Start at `deletion_policy.py`, then `deletion_manager.py`.
"""
