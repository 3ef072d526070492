"""The table of an export: its files, its formats and its journal.

Start at `export_journal.py`, which is pure; `export_state.py` keeps it in the target.
"""
