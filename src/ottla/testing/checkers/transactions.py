"""Checkers for transactions. Each takes a history and returns the witnesses of one anomaly.

- uncommitted record read: a read_committed consumer got a record of a transaction that was aborted,
  or whose marker had not been sent yet.
- committed record left out: a read_committed consumer passed over a record of the log that is of no
  aborted transaction.
"""

from ottla.testing.checkers.promises import Promises
from ottla.testing.checkers.records import ANSWER_MS, Witness, name_of
from ottla.testing.history.history import History, LogSeen
from ottla.testing.history.topics import TopicPartition
from ottla.testing.history.transactions import NOT_DECIDED_MS, TransactionSeen


def uncommitted_records_read(history: History) -> list[Witness]:
    """Return the records that a read_committed consumer must not have got."""
    known = _by_value(history)
    found = []
    for read in history.transactions.reads:
        for offset, value in read.values:
            transaction = known.get(value)
            if transaction is None or _is_committed(transaction, read.at_ms):
                continue
            what = "an open" if transaction.committed else "an aborted"
            text = (
                f"{read.client} read {value!r} of {what} transaction at "
                f"{name_of(read.partition)}:{offset} from node {read.node}"
            )
            found.append(Witness(text, read.at_ms))
    return found


def committed_records_left_out(history: History) -> list[Witness]:
    """Return the records that a read_committed consumer passed over."""
    known = _by_value(history)
    logs: dict[TopicPartition, LogSeen] = {}
    for log in history.logs:
        logs.setdefault(log.partition, log)
    promises = Promises(history)
    found = []
    for read in history.transactions.reads:
        in_end = logs.get(read.partition)
        if in_end is None or not promises.stands(read.partition, read.at_ms - ANSWER_MS):
            continue
        got = dict(read.values)
        for offset in range(max(read.first, in_end.start), read.next):
            value = in_end.values.get(offset)
            if value is None or offset in got:
                continue
            transaction = known.get(value)
            if transaction is None or transaction.committed:
                text = (
                    f"{read.client} passed over {value!r} at {name_of(read.partition)}:{offset}, "
                    f"with offsets {read.first} to {read.next} from node {read.node}"
                )
                found.append(Witness(text, read.at_ms))
    return found


def _by_value(history: History) -> dict[bytes, TransactionSeen]:
    return {value: each for each in history.transactions.ended for value in each.values}


def _is_committed(transaction: TransactionSeen, at_ms: int) -> bool:
    decided_ms = transaction.decided_ms
    return transaction.committed and decided_ms != NOT_DECIDED_MS and decided_ms <= at_ms
