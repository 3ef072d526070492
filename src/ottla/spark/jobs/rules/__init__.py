"""What must hold in the store, and what a job finds where it does not. Pure.

Start at `partition_view.py`, a value of which the rules are functions.
"""
