"""Checker for DeleteRecords: returns the witnesses of its anomaly.

- records trimmed wrongly: DeleteRecords was acknowledged with a lower offset than requested, or
  before every in-sync replica had moved its log start (KIP-107).
"""

from ottla.testing.checkers.records import Witness, name_of
from ottla.testing.history.history import History


def trims_that_are_wrong(history: History) -> list[Witness]:
    """Return the acknowledged DeleteRecords requests that were not fully done."""
    found = []
    for trim in history.trims:
        name = name_of(trim.partition)
        if trim.low_watermark < trim.wanted:
            text = (
                f"DeleteRecords of {name} up to {trim.wanted} was acknowledged with the low "
                f"watermark {trim.low_watermark}"
            )
            found.append(Witness(text, trim.at_ms))
        found += [
            Witness(
                f"DeleteRecords of {name} was acknowledged with the low watermark "
                f"{trim.low_watermark}; the log of node {node}, in sync, starts at {start}",
                trim.at_ms,
            )
            for node, start in trim.starts
            if start < trim.low_watermark
        ]
    return found
