"""Reports to the controller which log directory each replica is in (AssignReplicasToDirs).

A broker with several log directories chooses one itself. Until the controller knows it, the failure
of a directory moves no leadership away. A broker with one directory reports only corrections.
One request is in flight at a time; what failed is sent again.

A replica without a log, while its directory is online or none is assigned, is reported as in the
LOST directory: another file has its name. Else it would stay in the ISR, or lead, until the broker
ends.
Source: AssignmentsManager, Kafka 4.0; KIP-858.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.base.limits import DIRECTORY_ASSIGNMENTS_PER_REQUEST_MAX
from ottla.base.ports import Clock
from ottla.base.timers import Timer, Timers
from ottla.broker.partition import Partition
from ottla.log.dirs.log_dirs import LogDirs
from ottla.metadata.image import ClusterImage
from ottla.metadata.topics import DIRECTORY_LOST, UNKNOWN_DIRECTORIES
from ottla.wire.messages import assign_replicas_to_dirs as wire

if TYPE_CHECKING:
    from ottla.broker.ports import Forwarder

logger = logging.getLogger(__name__)

RETRY_MS = 500
"""The backoff after a failed request."""

TIMEOUT_MS = 5_000
"""How long one request may take before a new one is sent with what is pending by then."""

NOT_HERE = frozenset(
    (Error.UNKNOWN_TOPIC_ID, Error.UNKNOWN_TOPIC_OR_PARTITION, Error.NOT_LEADER_OR_FOLLOWER)
)
"""The controller's metadata is newer, and the replica is not this broker's there."""

Replica = tuple[Uuid, int]
"""(topic id, partition)."""


class DirectoryAssignments:
    """The assignments that the controller does not have yet."""

    def __init__(
        self,
        *,
        node_id: int,
        broker_epoch: Callable[[], int],
        log_dirs: LogDirs,
        forwarder: "Forwarder",
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._log_dirs = log_dirs
        self._forwarder = forwarder
        self._clock = clock
        self._timers = timers
        self._waiting: dict[Replica, Uuid] = {}
        self._timer: Timer | None = None
        self._in_flight = False
        self._closed = False

    def update(self, image: ClusterImage, partitions: Iterable[Partition]) -> None:
        """Compare the partitions that the metadata touched with their assignments."""
        settled = UNKNOWN_DIRECTORIES if len(self._log_dirs.dirs) == 1 else frozenset[Uuid]()
        for partition in partitions:
            replica = (partition.topic_id, partition.partition_id)
            known = self._known(image, replica)
            directory = self._directory_of(partition, known)
            is_settled = known == directory or (known in settled and directory != DIRECTORY_LOST)
            if partition.deleted or known is None or is_settled:
                self._waiting.pop(replica, None)
            elif directory == DIRECTORY_LOST:
                # A replica that had a log is in the directory to be reported, which has failed.
                self._waiting.setdefault(replica, directory)
            elif directory != NO_UUID:
                self._waiting[replica] = directory
        self._send_after(0)

    def close(self) -> None:
        """Send nothing more."""
        self._closed = True
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _directory_of(self, partition: Partition, known: Uuid | None) -> Uuid:
        if partition.log is None:
            # An offline directory is reported as a whole, by heartbeats.
            is_missed = known in UNKNOWN_DIRECTORIES or known in self._log_dirs.directory_ids
            return DIRECTORY_LOST if is_missed or known == DIRECTORY_LOST else NO_UUID
        directory = self._log_dirs.directory_of(partition.log)
        return NO_UUID if directory is None else directory.directory_id

    def _known(self, image: ClusterImage, replica: Replica) -> Uuid | None:
        topic = image.topics.by_id(replica[0])
        state = None if topic is None else topic.partitions.get(replica[1])
        if state is None or self._node_id not in state.replicas:
            return None
        return state.directory(self._node_id)

    def _send_after(self, ms: int) -> None:
        if self._waiting and self._timer is None and not self._in_flight and not self._closed:
            self._timer = self._timers.at(self._clock.monotonic_ms() + ms, self._send)

    def _send(self) -> None:
        self._timer = None
        taken = dict(list(self._waiting.items())[:DIRECTORY_ASSIGNMENTS_PER_REQUEST_MAX])
        if not taken:
            return
        self._in_flight = True
        request = assignments_request(self._node_id, self._broker_epoch(), taken)
        answer = self._forwarder.call(request, timeout_ms=TIMEOUT_MS)
        answer.then(lambda response: self._answered(taken, response))

    def _answered(self, taken: Mapping[Replica, Uuid], response: object) -> None:
        self._in_flight = False
        if self._closed:
            return
        if isinstance(response, ApiError):
            logger.info(
                "AssignReplicasToDirs for %d replicas failed: %s; retrying in %d ms",
                *(len(taken), response, RETRY_MS),
            )
            self._send_after(RETRY_MS)
            return
        assert isinstance(response, wire.AssignReplicasToDirsResponse)
        done = _done(response)
        for replica, directory in taken.items():
            # It may have moved meanwhile: then the newer directory stays pending.
            if replica in done and self._waiting.get(replica) == directory:
                del self._waiting[replica]
        self._send_after(0 if len(done) == len(taken) else RETRY_MS)


def _done(response: wire.AssignReplicasToDirsResponse) -> set[Replica]:
    """Return the replicas that need no further report."""
    if response.error_code:
        return set()
    return {
        (topic.topic_id, each.partition_index)
        for directory in response.directories
        for topic in directory.topics
        for each in topic.partitions
        if each.error_code == Error.NONE or each.error_code in NOT_HERE
    }


def assignments_request(
    node_id: int, broker_epoch: int, places: Mapping[Replica, Uuid]
) -> wire.AssignReplicasToDirsRequest:
    """Return the request for some replicas, grouped by directory and topic."""
    by_directory: dict[Uuid, dict[Uuid, list[int]]] = {}
    for (topic_id, partition_id), directory in places.items():
        by_directory.setdefault(directory, {}).setdefault(topic_id, []).append(partition_id)
    return wire.AssignReplicasToDirsRequest(
        broker_id=node_id,
        broker_epoch=broker_epoch,
        directories=tuple(
            wire.RequestDirectoryData(
                id=directory,
                topics=tuple(
                    wire.RequestTopicData(
                        topic_id=topic_id,
                        partitions=tuple(
                            wire.RequestPartitionData(partition_index=partition_id)
                            for partition_id in partition_ids
                        ),
                    )
                    for topic_id, partition_ids in topics.items()
                ),
            )
            for directory, topics in by_directory.items()
        ),
    )
