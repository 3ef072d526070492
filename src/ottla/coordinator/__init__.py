"""Consumer groups and committed offsets: the group coordinator's decisions.

Pure: requests and time come in, records and responses go out; `broker/groups` stores the records.
Start at `groups.py`, then `group.py`.
"""
