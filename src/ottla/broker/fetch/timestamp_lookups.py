"""Lookup of a record by its timestamp: segment by segment, each in a worker.

What is below the local log start is searched first, in the remote tier. A segment that is in both
is searched in its local copy.
"""

from collections.abc import Callable

from ottla.base.errors import ApiError
from ottla.base.pending import Pending
from ottla.broker.fetch.remote_port import Found
from ottla.broker.produce.batch_work import BatchWork
from ottla.log.partition_log import PartitionLog
from ottla.log.timestamp_search import TimestampSearch


def first_found(
    remote: Pending[Found], begin_local: Callable[[], Pending[Found]]
) -> Pending[Found]:
    """Return the promise of a remote lookup's record or error, else of what is found locally."""
    promise: Pending[Found] = Pending()

    def keep(found: Found) -> None:
        promise.complete(found)

    def ended(found: Found) -> None:
        if found is None:
            begin_local().then(keep)
        else:
            promise.complete(found)

    remote.then(ended)
    return promise


def look_up(work: BatchWork, log: PartitionLog, timestamp: int | None) -> Pending[Found]:
    """Return the promise of the first record from `timestamp` on; None = of the latest record."""
    promise: Pending[Found] = Pending()

    def search_next(after: int) -> None:
        try:
            if timestamp is not None:
                search = log.search_timestamp(timestamp, after)
            else:
                search = log.search_max_timestamp() if after < 0 else None
        except (ApiError, OSError) as error:
            promise.complete(error)
            return
        if search is None:
            promise.complete(None)
            return
        begun = search
        work.submit(begun.run, expands_to=begun.limit).then(lambda found: ended(begun, found))

    def ended(search: TimestampSearch, found: Found) -> None:
        search.release()
        if found is None:
            search_next(search.base_offset)
        else:
            promise.complete(found)

    search_next(-1)
    return promise
