"""The faults of a simulated cluster: their rates, random ones, and those that an event triggers.

Knows the cluster and its nodes by `sim/ports.py` only. Start at `faults.py`, then
`fault_injector.py` and `directed_faults.py`; `directed.py` puts the latter together.
"""
