"""A node's log directories: their partition directories, checkpoints and asynchronous deletion.

Knows logs by directory, topic and partition; not who leads or replicates them.
Start at `log_dirs.py`, then `log_dir.py` and `dir_loading.py`.
"""
