"""The remote tier of the partitions that this broker hosts: segments in an object store.

It may know the logs, their metadata and the object store's port; it owns no socket, thread or
clock. Start at `reads`: how a fetch below the local log start is answered.
"""
