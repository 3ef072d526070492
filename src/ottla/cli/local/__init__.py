"""The commands that run nodes on this machine: server, storage, up, sim.

They start what `host` and `testing` assemble. Start at `server.py`, then `local_up.py`.
"""
