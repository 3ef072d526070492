"""Checkers for logs while a history runs. Each returns the witnesses of one anomaly.

- log matching broken: two replicas have different batches at one offset of one leader epoch.
- committed records truncated: a running replica truncated below its own high watermark. With clean
  elections that never happens (KIP-101, KIP-279): every leader has all committed records.
- high watermark wrong: it fell within one leader epoch, or passed the log end of an in-sync
  replica.
- log start moved: without retention, DeleteRecords or a leader's log start.
- expired segment kept: by a retention check, which could have deleted it.
"""

from ottla.testing.checkers.promises import Promises, unclean_elections
from ottla.testing.checkers.records import Witness, name_of
from ottla.testing.history.history import History
from ottla.testing.history.log import (
    BatchTwice,
    ExpiredKept,
    LogCut,
    MemberPassed,
    StartMoved,
    WatermarkFell,
)


def batches_that_do_not_match(history: History) -> list[Witness]:
    """Return the batches that differ although offset and epoch are the same."""
    return [
        Witness(
            f"nodes {each.first_node} and {each.node} have different batches at "
            f"{name_of(each.partition)}:{each.offset} of epoch {each.epoch}",
            each.at_ms,
        )
        for each in history.log_events
        if isinstance(each, BatchTwice)
    ]


def committed_records_truncated(history: History) -> list[Witness]:
    """Return the truncations below a replica's own high watermark."""
    cuts = [each for each in history.log_events if isinstance(each, LogCut)]
    unclean = unclean_elections(history) if cuts else {}
    promises = Promises(history)
    return [
        Witness(
            f"node {cut.node}, incarnation {cut.incarnation}, truncated {name_of(cut.partition)} "
            f"from {cut.before} to {cut.end}, below its high watermark {cut.high_watermark}",
            cut.at_ms,
        )
        for cut in cuts
        if cut.end < cut.high_watermark and not cut.may_be
        if cut.partition[0] not in history.deleted
        if unclean.get(cut.partition, cut.at_ms + 1) > cut.at_ms
        if promises.stood(cut.partition, cut.at_ms)
    ]


def high_watermarks_wrong(history: History) -> list[Witness]:
    """Return where a high watermark fell, or passed a member of the ISR."""
    found = []
    promises = Promises(history)
    for each in history.log_events:
        if isinstance(each, WatermarkFell):
            text = (
                f"node {each.node}, incarnation {each.incarnation}: the high watermark of "
                f"{name_of(each.partition)} fell from {each.before} to {each.high_watermark} in "
                f"epoch {each.epoch}"
            )
            found.append(Witness(text, each.at_ms))
        elif isinstance(each, MemberPassed) and promises.stood(each.partition, each.at_ms):
            text = (
                f"node {each.leader} leads {name_of(each.partition)} in epoch {each.epoch} with "
                f"high watermark {each.high_watermark}; the log of node {each.node}, in sync, "
                f"ends at {each.end}"
            )
            found.append(Witness(text, each.at_ms))
    return found


def log_starts_moved(history: History) -> list[Witness]:
    """Return the log starts that moved without a valid reason.

    A loss of power may take the first segments of a log, too, where it may take records.
    """
    promises = Promises(history)
    return [
        Witness(
            f"node {each.node} moved the log start of {name_of(each.partition)} from "
            f"{each.before} to {each.start}, for {each.reason}",
            each.at_ms,
        )
        for each in history.log_events
        if isinstance(each, StartMoved)
        if not each.may_be_lost or promises.kept_own(each.partition, each.at_ms)
    ]


def expired_segments_kept(history: History) -> list[Witness]:
    """Return the expired segments that retention checks left."""
    return [
        Witness(
            f"node {each.node} keeps segment {each.base_offset} of {name_of(each.partition)}, "
            f"which is beyond {each.limit}",
            each.at_ms,
        )
        for each in history.log_events
        if isinstance(each, ExpiredKept)
    ]
