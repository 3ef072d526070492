"""`ottla dump-log`: prints a log's files. Needs no cluster.

Knows the file formats of `log`, `raft` and `records`. Start at `dump_log.py`.
"""
