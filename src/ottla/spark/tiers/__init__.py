"""Tiered topics: remote segments are planned and read straight from the object store.

Start at `tiered_planner.py`; `stored_logs.py` reads without brokers.
"""
