"""What fetches and ListOffsets need of the remote tier.

`ottla.broker.remote.reads.reads` implements it.

A broker without tiered storage has none.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending
from ottla.base.ports import Buffer
from ottla.broker.produce.batch_work import BatchWork
from ottla.log.indexes.timestamp_search import TimestampMatch
from ottla.log.partition_log import PartitionLog

REMOTE_BYTES_PER_FETCH_MAX = 16 * 1024 * 1024
"""Remote bytes in one response. They are in memory, unlike slices of files, and responses that
wait in memory may take UNREAD_BYTES_MAX (`ottla.base.limits`) of all connections together."""

Found = TimestampMatch | ApiError | OSError | None
"""None = no record has that timestamp or a later one."""


class RemoteFetch(NamedTuple):
    """What a fetch wants of one partition. `upper_bound`: the consumer sees nothing from it on."""

    log: PartitionLog
    offset: int
    max_bytes: int
    at_least_one: bool
    committed_only: bool
    upper_bound: int


class RemoteData(NamedTuple):
    """What a remote read brought.

    Fields: `data`: whole batches; empty where the first one is larger than the fetch may return.
            `aborted`: (producer id, first offset) of transactions to skip; None unless
            read_committed asks. `local_offset`: no remote record follows the offset, and the fetch
            must read the local log from here on; -1 = it need not.
    """

    data: Buffer
    aborted: tuple[tuple[int, int], ...] | None = None
    local_offset: int = -1


class RemoteReads(Protocol):
    """The remote reads of a broker."""

    @property
    def max_wait_ms(self) -> int:
        """Return how long a fetch waits for its remote reads: remote.fetch.max.wait.ms."""
        ...

    @property
    def list_offsets_timeout_ms(self) -> int:
        """Return how long ListOffsets waits where the request does not say (before v10)."""
        ...

    def is_reading(self, owner: Pending[None]) -> bool:
        """Tell whether any read of a connection is under way."""
        ...

    def read(
        self, wanted: RemoteFetch, owner: Pending[None], on_ended: Callable[[], object]
    ) -> RemoteData | Error | None:
        """Return what a read of `wanted` brought; None = later, as it is under way or must wait.

        The read is begun where there is none, and what it brought is returned once. `owner`
        completes when the connection closes, which cancels it; `on_ended` is called when a read
        that was under way has ended.
        """
        ...

    def find_timestamp(
        self,
        log: PartitionLog,
        timestamp: int,
        *,
        work: BatchWork,
        deadline_ms: int,
        closed: Pending[None],
    ) -> Pending[Found]:
        """Return the promise of the first record below the local log start from `timestamp` on.

        At `deadline_ms` (monotonic) it is REQUEST_TIMED_OUT; it stays open when `closed` completes.
        """
        ...
