"""Loading a log at start: cleanup of unfinished work, index checks, the scan after a crash.

Knows files and batches only, and returns values, from which `PartitionLog` is made.
Start at `log_loader.py`.
"""
