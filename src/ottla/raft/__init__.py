"""The metadata quorum (KIP-595): one event in, ordered effects out.

Knows offsets, epochs and voters; not what the records mean, and no clock, disk or network.
Start at `node.py`; `roles.py` is the table of transitions, `effects.py` the contract with the host.
"""
