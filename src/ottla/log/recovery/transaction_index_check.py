"""The transaction indexes that a start finds: an impossible one is rebuilt from the batches.

A segment without an aborted transaction has no such file, so a missing one is not damage.

Source: TransactionIndex.sanityCheck, LogSegment.{sanityCheck, recover}.
"""

import logging
from collections.abc import Sequence
from contextlib import closing

from ottla.base.ports import Disk
from ottla.log import names
from ottla.log.indexes.transaction_index import (
    AbortedTransaction,
    decode_entries,
    encode_entry,
)
from ottla.log.recovery.producer_replay import (
    Extent,
    list_snapshots,
    rebuild_producers,
    replay_batch,
)
from ottla.log.recovery.scan import scan_batches
from ottla.records.errors import CorruptBatch, RecordsError

logger = logging.getLogger(__name__)


def check_transaction_index(
    disk: Disk, directory: str, log_name: str, segment: Extent, earlier: Sequence[Extent]
) -> list[AbortedTransaction] | None:
    """Return what a segment's transaction index has, and rebuild it if it is impossible.

    None = the batches do not allow that. Then it is left as it is, and fetches that need it fail:
    with one that lacks a transaction they would return its records as committed. `earlier`: the
    segments before. Raises: OSError.
    """
    base = segment.base_offset
    name = names.segment_name(base, names.TRANSACTION_INDEX)
    try:
        return decode_entries(disk.read_bytes(f"{directory}/{name}"), base)
    except FileNotFoundError:
        return []
    except ValueError as error:
        damage = error
    try:
        aborted = _aborted_in(disk, directory, log_name, segment, earlier)
    except RecordsError as error:
        logger.warning(
            "%s: %s is damaged (%s) and cannot be rebuilt from the batches: %s",
            *(log_name, name, damage, error),
        )
        return None
    write_transaction_index(disk, directory, base, aborted)
    logger.warning("%s: %s is damaged (%s); rebuilt it from the batches", log_name, name, damage)
    return aborted


def write_transaction_index(
    disk: Disk, directory: str, base: int, aborted: Sequence[AbortedTransaction]
) -> None:
    """Replace a segment's transaction index. Raises: OSError."""
    path = f"{directory}/{names.segment_name(base, names.TRANSACTION_INDEX)}"
    if aborted:
        # At once: what a power loss leaves of a file could look like fewer transactions.
        disk.write_atomic(path, b"".join(map(encode_entry, aborted)))
    else:
        disk.remove(path)


def _aborted_in(
    disk: Disk, directory: str, log_name: str, segment: Extent, earlier: Sequence[Extent]
) -> list[AbortedTransaction]:
    """Find a segment's aborted transactions in its batches. Raises: OSError, RecordsError."""
    base = segment.base_offset
    producers = rebuild_producers(disk, directory, log_name, earlier, base)
    if base > 0 and base not in list_snapshots(disk, directory):
        # The replay ends at a damaged batch, and begins where the local log does.
        raise CorruptBatch(f"the transactions that were open at offset {base} are not known")
    found: list[AbortedTransaction] = []
    with closing(disk.open(f"{directory}/{names.segment_name(base, names.LOG)}")) as file:
        for _, header, buffer, start in scan_batches(file, 0, segment.size):
            aborted = None
            if header.producer_id >= 0:
                aborted = replay_batch(producers, header, buffer, start)
            if aborted is not None:
                found.append(aborted)
    return found
