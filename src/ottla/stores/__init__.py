"""Object stores behind the port of `ottla.base.object_store`: a directory, S3, memory.

It knows nothing of topics and segments. Start at `store.py`; `uri.py` has the URIs of stores.
"""
