"""The commands about consumer groups: list, describe, reset offsets, delete.

Knows groups by Kafka's requests only. Start at `consumer_groups.py`.
"""
