"""What must be gone once a history is calm: nothing that a dead client asked for piles up.

- left over after calm: delayed operations, fetch sessions, timers, forwarded requests, orders of a
  controller or open files, more of them than those that live account for.
"""

from ottla.testing.checkers import Witness
from ottla.testing.history import History


def left_over_after_calm(history: History) -> list[Witness]:
    """Return what nodes keep although nobody is there any more that it is kept for."""
    return [
        Witness(f"node {left.node} keeps {left.kept} {left.what}, {left.most} at most", left.at_ms)
        for left in history.left_over
        if left.kept > left.most
    ]
