"""A node's disk: its log directories at format and start, files, descriptors, log cleaning.

Knows `log` and the metadata by which logs are kept; holds no records itself.
Start at `node_dirs.py`; `storage.py` formats, `disk.py` is the port to the operating system.
"""
