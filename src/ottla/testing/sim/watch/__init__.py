"""What is observed of a simulated cluster, for checkers, scenarios and faults.

Looks at nodes from outside and changes nothing, but for `deletion_steps.py`, which crashes a node
at a step of a deletion. Start at `observations.py`.
"""
