"""Checker for leaks: resources that nodes still hold once a history is calm.

- left over after calm: more delayed operations, fetch sessions, timers, forwarded requests,
  controller requests or open files than live clients and replicas account for.
"""

from ottla.testing.checkers.records import Witness
from ottla.testing.history.history import History


def left_over_after_calm(history: History) -> list[Witness]:
    """Return the resources that nodes hold more of than they may."""
    return [
        Witness(f"node {left.node} keeps {left.kept} {left.what}, {left.most} at most", left.at_ms)
        for left in history.left_over
        if left.kept > left.most
    ]
