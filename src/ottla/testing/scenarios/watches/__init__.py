"""Watches of a scenario: they compare, at every moment, what nodes do with what it rests on.

They see every request, disk and image of a simulated cluster, draw no random numbers and change
nothing. Start at `durability_watch.py` and `request_watch.py`.
"""
