"""A segment's indexes, in Kafka's file formats: offsets, timestamps, aborted transactions.

Pure but for the files that they are given. Start at `sparse_index.py`, which two of them are.
"""
