"""Rows are written to topics as batches: the sink, its options, and producers in tasks.

Start at `sink.py`.
"""
