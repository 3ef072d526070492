"""Lookup of a record by its timestamp: segment by segment, each in a worker.

What is below the local log start is searched first, in the remote tier. A segment that is in both
is searched in its local copy. The local log start may move while a lookup waits:

1. Nothing is found in the remote tier, up to offset 100, where the local log starts.
2. Other partitions are looked up. Meanwhile local retention deletes the files up to offset 200.
3. The local log is searched from there on.

So both tiers are searched again after that, or a consumer would skip what is between.
"""

from collections.abc import Callable

from ottla.base.errors import ApiError
from ottla.base.pending import Pending
from ottla.broker.fetch.remote_port import Found
from ottla.broker.produce.batch_work import BatchWork
from ottla.log.indexes.timestamp_search import TimestampSearch
from ottla.log.partition_log import PartitionLog


def look_up_in_tiers(
    log: PartitionLog,
    begin_remote: Callable[[], Pending[Found] | None],
    begin_local: Callable[[], Pending[Found]],
) -> Callable[[], Pending[Found]]:
    """Begin a lookup below the local log start; return what goes on with it, in the local log.

    `begin_remote`: returns None where nothing is below.
    """
    start, remote = log.local_log_start_offset, begin_remote()

    def go_on() -> Pending[Found]:
        found = begin_local() if remote is None else _first_found(remote, begin_local)
        checked: Pending[Found] = Pending()

        def keep(late: Found) -> None:
            checked.complete(late)

        def check(late: Found) -> None:
            is_error = isinstance(late, ApiError | OSError)
            # Where the log start has moved as well, the records are not the partition's any more.
            if is_error or log.local_log_start_offset <= max(start, log.log_start_offset):
                checked.complete(late)
            else:
                look_up_in_tiers(log, begin_remote, begin_local)().then(keep)

        found.then(check)
        return checked

    return go_on


def _first_found(
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

    def search_from(start_offset: int) -> None:
        try:
            if timestamp is not None:
                search = log.search_timestamp(timestamp, start_offset)
            else:
                search = log.search_max_timestamp()
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
        if found is None and search.end_offset is not None:
            search_from(search.end_offset)
        else:
            promise.complete(found)

    search_from(0)
    return promise
