"""What must hold of a history: one checker for each promise.

A checker knows a `History` and nothing of the simulator. Start at `verdict.py`.
"""
