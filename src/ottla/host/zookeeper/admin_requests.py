"""Requests to a ZooKeeper cluster's controller that operators' tools write as znodes.

Each request is decided by the same deciders as the corresponding API:

- `/admin/reassign_partitions`: begins reassignments. The znode lists those under way: an entry is
  removed when its reassignment has ended, was rejected, cancelled or replaced by another one; the
  znode is deleted with the last. A new controller that finds it begins those that the previous one
  did not. It may name brokers that are down: the reassignment ends once they are back and in sync.
- `/admin/preferred_replica_election`: elections are held, then the znode is deleted.
- `/admin/delete_topics/T`: see `ottla.host.zookeeper.marker_requests`.
- `/log_dir_event_notification`: LeaderAndIsr is sent to the broker again; its response names the
  replicas that are offline.

Source: KafkaController.{processZkPartitionReassignment, maybeRemoveFromZkReassignment,
processReplicaLeaderElection, processLogDirEventNotification}, Kafka 3.9.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending, gather
from ottla.base.zookeeper import Delete, Operation, SetData, ZkError
from ottla.controller.context import DecisionContext
from ottla.controller.elections.leader_rebalance import Elected, elect_leaders
from ottla.controller.elections.partition_change import Election
from ottla.controller.partitions.reassignment import (
    Reassigned,
    Target,
    alter_reassignments,
    target_of,
)
from ottla.controller.step import Decision, Step
from ottla.controller.topics.assignment import RegistrationCheck
from ottla.host.controller.controller_runtime import ControllerRuntime
from ottla.host.zookeeper.store.store_requests import StoreHooks
from ottla.host.zookeeper.store.store_writing import Written
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import ClusterImage
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.admin import Partition, encode_reassignment

log = logging.getLogger(__name__)

T = TypeVar("T")

TARGETS_PER_DECISION_MAX = 1_000

Change = Callable[[Sequence[Operation]], Pending[Written | ZkError]]


class AdminRequests:
    """The requests by znode of one term.

    `change` writes znodes that are not part of the image, fenced; `resend` sends a broker the
    state of all its partitions; `on_pending_requests` is called with the topics whose elections,
    and whose reassignments, are requested and not decided yet.
    """

    def __init__(
        self,
        runtime: ControllerRuntime,
        context: DecisionContext,
        *,
        change: Change,
        resend: Callable[[int], None],
        on_pending_requests: Callable[[frozenset[str], frozenset[str]], None],
    ) -> None:
        self._runtime = runtime
        self._context = context
        self._change = change
        self._resend = resend
        self._on_pending_requests = on_pending_requests
        self._listed: dict[Partition, tuple[int, ...]] = {}
        """The entries of `/admin/reassign_partitions` that were read."""
        self._undecided_reassignments: frozenset[Partition] = frozenset()
        self._to_check: set[Partition] = set()
        """Entries that may have ended."""
        self._pending_elections: frozenset[str] = frozenset()
        self._is_writing = False

    def serve(self, hooks: StoreHooks) -> None:
        """Register for the store's requests."""
        hooks.on_reassign_request = self.reassign
        hooks.on_preferred_election = self.elect
        hooks.on_log_dir_event = self._resend

    def changed(self, delta: ClusterDelta) -> None:
        """Process a change of the image, by which a reassignment may have ended."""
        changed = ((each.new.name, each.partitions) for each in delta.changed_topics.values())
        deleted = ((each.name, each.partitions) for each in delta.deleted_topics.values())
        touched = {
            (name, partition_id)
            for name, partition_ids in (*changed, *deleted)
            for partition_id in (partition_ids if self._listed else ())
        }
        self._to_check |= touched & self._listed.keys()
        self._remove_ended()

    # -- reassignments -------------------------------------------------------------------------

    def reassign(self, requested: Mapping[Partition, tuple[int, ...]]) -> None:
        """Begin the reassignments of the znode."""
        log.info("%s requests %d partitions", paths.REASSIGN_PARTITIONS, len(requested))
        self._listed = dict(requested)
        self._undecided_reassignments = frozenset(requested)
        self._to_check = set()
        self._report_pending()
        parts = _parts(requested.items(), TARGETS_PER_DECISION_MAX)
        gather([self._begin(part) for part in parts]).then(self._begun)

    def _begin(
        self, part: Sequence[tuple[Partition, tuple[int, ...]]]
    ) -> Pending[tuple[Reassigned, ...] | ApiError]:
        return self._runtime.run(lambda image: self._reassigned(image, part))

    def _reassigned(
        self, image: ClusterImage, part: Sequence[tuple[Partition, tuple[int, ...]]]
    ) -> Decision[tuple[Reassigned, ...]]:
        targets = [Target(topic, index, replicas) for (topic, index), replicas in part]
        decision = alter_reassignments(
            image,
            targets,
            may_change_factor=True,
            context=self._context,
            check=RegistrationCheck.NONE,
        )
        # Partitions are independent, and the znode lists what is left.
        return Decision(Step(decision.step.records, atomic=False), decision.reply)

    def _begun(self, replies: list[tuple[Reassigned, ...] | ApiError]) -> None:
        for reply in replies:
            if isinstance(reply, ApiError):
                if reply.error is Error.NOT_CONTROLLER:
                    return  # The next controller finds the znode.
                log.error("partition reassignment failed: %s", reply)
                continue
            for each in reply:
                if each.error is not Error.NONE:
                    log.warning(
                        "reassignment of %s-%d failed: %s",
                        each.topic,
                        each.partition_id,
                        each.message or each.error.name,
                    )
        self._undecided_reassignments = frozenset()
        self._report_pending()
        self._to_check = set(self._listed)
        self._remove_ended(is_first=True)

    def _remove_ended(self, *, is_first: bool = False) -> None:
        """Remove ended reassignments from the znode; one write at a time.

        `is_first`: an empty znode is deleted, too.
        """
        if self._undecided_reassignments or self._is_writing:
            return
        image, checked = self._runtime.image, self._to_check
        self._to_check = set()
        ended = {key for key in checked if not _moves_to(image, key, self._listed[key])}
        if not ended and (self._listed or not is_first):
            return
        remaining = {key: target for key, target in self._listed.items() if key not in ended}
        path = paths.REASSIGN_PARTITIONS
        operation = SetData(path, encode_reassignment(remaining)) if remaining else Delete(path)
        self._listed = remaining
        self._is_writing = True
        self._change((operation,)).then(self._on_ended_removed)

    def _on_ended_removed(self, outcome: Written | ZkError) -> None:
        self._is_writing = False
        if isinstance(outcome, ZkError):
            log.error("updating %s failed: %s", paths.REASSIGN_PARTITIONS, outcome)
        self._remove_ended()

    # -- elections -----------------------------------------------------------------------------

    def elect(self, requested: tuple[Partition, ...]) -> None:
        """Hold preferred elections, then delete the znode."""
        log.info("%s requests %d partitions", paths.PREFERRED_ELECTION, len(requested))
        self._pending_elections = frozenset(topic for topic, _ in requested)
        self._report_pending()
        self._runtime.run(
            lambda image: elect_leaders(
                image, requested, election_type=Election.PREFERRED.value, context=self._context
            )
        ).then(self._elected)

    def _elected(self, reply: tuple[Elected, ...] | ApiError) -> None:
        if isinstance(reply, ApiError):
            if reply.error is Error.NOT_CONTROLLER:
                return
            log.error("preferred leader election failed: %s", reply)
            reply = ()
        for each in reply:
            if each.error not in (Error.NONE, Error.ELECTION_NOT_NEEDED):
                log.warning(
                    "preferred leader election for %s-%d failed: %s",
                    each.topic,
                    each.partition_id,
                    each.message or each.error.name,
                )
        self._pending_elections = frozenset()
        self._report_pending()
        self._delete_znode(paths.PREFERRED_ELECTION)

    def _report_pending(self) -> None:
        self._on_pending_requests(
            self._pending_elections, frozenset(topic for topic, _ in self._undecided_reassignments)
        )

    def _delete_znode(self, path: str) -> None:
        self._change([Delete(path)]).then(_note_failure)


def _note_failure(outcome: Written | ZkError) -> None:
    if isinstance(outcome, ZkError):
        log.error("deleting a processed request znode failed: %s", outcome)


def _moves_to(image: ClusterImage, key: Partition, target: tuple[int, ...]) -> bool:
    """Tell whether a partition is being reassigned to a target."""
    name, partition_id = key
    topic = image.topics.by_name(name)
    partition = None if topic is None else topic.partitions.get(partition_id)
    return partition is not None and partition.is_reassigning and target_of(partition) == target


def _parts(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while part := list(islice(iterator, size)):
        yield part
