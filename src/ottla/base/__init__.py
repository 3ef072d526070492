"""What every package needs: ids, error codes, limits, deadlines, promises, turns of the loop.

Imports nothing of Ottla. `ports.py` is how pure code reaches clocks, disks and threads: start
there, then `limits.py`.
"""
