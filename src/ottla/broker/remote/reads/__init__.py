"""Reads of remote segments for Fetch and ListOffsets: whole batches, through bounded caches.

Knows the object store and the segments' metadata, never the local files. Start at `reads.py`.
"""
