"""Sends ISR changes that a broker's partitions propose to the controller (AlterPartition).

One request is in flight at a time, with all pending proposals. It is retried until it is answered;
a proposal that newer metadata has overtaken is dropped. The rules for the responses are in `isr`.

With a metadata log (KRaft) a successful response is not applied: the changed ISR takes effect once
the image has it. Applied at once, it would overtake the metadata before it:

1. min.insync.replicas is raised from 1 to 2; then the controller commits that broker 2 leaves the
   ISR {1, 2}. By the new minimum broker 2 is an eligible leader replica (KIP-966).
2. Leader 1 has the response, and not yet the new minimum: it acknowledges alone, and dies.
3. The controller elects broker 2, which lacks what was acknowledged.

Over ZooKeeper, configuration and leadership come in no common order, and only an in-sync replica
is elected: there the response takes effect at once, as in Kafka.

Source: Kafka's AlterPartitionManager.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.base import limits
from ottla.base.errors import ApiError, Error, error_name, error_of
from ottla.base.ids import Uuid
from ottla.base.ports import Clock
from ottla.base.timers import Timer, Timers, aligned
from ottla.broker.partition import Partition
from ottla.broker.replication.isr import NOT_APPLIED, OVERTAKEN, IsrChange
from ottla.broker.summary import Summary
from ottla.wire.messages import alter_partition as wire

if TYPE_CHECKING:
    from ottla.broker.ports import Forwarder

logger = logging.getLogger(__name__)

RETRY_MS = 50
"""The backoff after a failed request."""

TIMEOUT_MS = 5_000
"""How long one request may take before a new one is sent with what is pending by then."""


class Proposal(NamedTuple):
    """One partition's pending ISR change."""

    partition: Partition
    change: IsrChange

    @property
    def waits(self) -> bool:
        """Tell whether the change is still the partition's pending one."""
        return self.partition.pending is self.change


class IsrManager:
    """The proposals of one broker.

    Fields: `shrinks`, `expands`: proposals that succeeded; `failures`: error responses.
            `on_changed` is called with partitions whose ISR has changed.
            `follows_log`: whether this broker follows a metadata log: see the module.
    """

    def __init__(
        self,
        *,
        node_id: int,
        broker_epoch: Callable[[], int],
        forwarder: "Forwarder",
        clock: Clock,
        timers: Timers,
        on_changed: Callable[[Partition], None],
        follows_log: Callable[[], bool],
    ) -> None:
        self._node_id = node_id
        self._follows_log = follows_log
        self._broker_epoch = broker_epoch
        self._forwarder = forwarder
        self._clock = clock
        self._timers = timers
        self._on_changed = on_changed
        self._waiting: dict[tuple[Uuid, int], Proposal] = {}
        self._timer: Timer | None = None
        self._recheck_timer: Timer | None = None
        self._in_flight = False
        self._failure = Error.NONE
        self._summary = Summary(logger)
        self._closed = False
        self.shrinks = 0
        self.expands = 0
        self.failures = 0

    def propose(self, partition: Partition, change: IsrChange) -> None:
        """Send a proposal to the controller, together with others of this moment."""
        self._waiting[partition.topic_id, partition.partition_id] = Proposal(partition, change)
        self._summary.add(logging.INFO, *_describe(partition, change))
        self._send_after(0)

    def start(self, recheck: Callable[..., None], interval_ms: int) -> None:
        """Call `recheck(shrink=True)`, which finds lagging followers, every `interval_ms`."""

        def arm() -> None:
            due_ms = aligned(self._clock.monotonic_ms(), max(interval_ms, 1))
            self._recheck_timer = self._timers.at(due_ms, run)

        def run() -> None:
            if not self._closed:
                arm()
                recheck(shrink=True)

        arm()

    def close(self) -> None:
        """Send nothing more."""
        self._closed = True
        self._waiting.clear()
        for timer in (self._timer, self._recheck_timer):
            if timer is not None:
                timer.cancel()

    def _send_after(self, ms: int) -> None:
        if self._timer is None and not self._in_flight and not self._closed:
            self._timer = self._timers.at(self._clock.monotonic_ms() + ms, self._send)

    def _send(self) -> None:
        self._timer = None
        self._summary.log()
        taken: dict[tuple[Uuid, int], Proposal] = {}
        for key, proposal in tuple(self._waiting.items()):
            if len(taken) == limits.ISR_CHANGES_PER_REQUEST_MAX:
                break
            del self._waiting[key]
            if proposal.waits:
                taken[key] = proposal
        if not taken:
            return
        self._in_flight = True
        request = alter_partition_request(
            self._node_id, self._broker_epoch(), tuple(taken.values())
        )
        answer = self._forwarder.call(request, timeout_ms=TIMEOUT_MS)
        answer.then(lambda response: self._answered(taken, response))

    def _answered(self, taken: dict[tuple[Uuid, int], Proposal], response: object) -> None:
        self._in_flight = False
        if self._closed:
            return
        failure = _failure(response)
        if failure is not Error.NONE:
            if failure is not self._failure:
                logger.info("AlterPartition failed: %s; retrying in %d ms", failure.name, RETRY_MS)
            self._failure = failure
            self.failures += len(taken)
            self._keep(taken)
            self._send_after(RETRY_MS)
            return
        self._failure = Error.NONE
        assert isinstance(response, wire.AlterPartitionResponse)
        for topic in response.topics:
            for each in topic.partitions:
                proposal = taken.pop((topic.topic_id, each.partition_index), None)
                if proposal is None:
                    continue
                if self._is_done(proposal, each):
                    self._on_changed(proposal.partition)
                else:
                    taken[topic.topic_id, each.partition_index] = proposal
        self._summary.log()
        # Those without a result, and those to be retried.
        self._keep(taken)
        self._send_after(RETRY_MS if taken else 0)

    def _keep(self, taken: dict[tuple[Uuid, int], Proposal]) -> None:
        self._waiting = {**taken, **self._waiting}

    def _is_done(self, proposal: Proposal, answer: wire.ResponsePartitionData) -> bool:
        """Handle a partition's result; return False where the proposal must be retried."""
        partition, change = proposal
        error = error_of(answer.error_code)
        if error is Error.NONE:
            self.expands += change.grows
            self.shrinks += not change.grows
            # The metadata may have the change already, or not yet.
            is_ahead = answer.partition_epoch > partition.partition_epoch
            if proposal.waits and not (is_ahead and self._follows_log()):
                partition.isr_changed(answer.isr, answer.leader_epoch, answer.partition_epoch)
            return True
        self.failures += 1
        if error in NOT_APPLIED:
            partition.isr_refused(change)
        elif not proposal.waits:
            return True
        self._summary.add(
            logging.INFO,
            f"AlterPartition rejected with {error_name(answer.error_code)}, ISR unchanged",
            f"{partition.topic}-{partition.partition_id} {partition.isr}",
        )
        return error in NOT_APPLIED or error in OVERTAKEN


def _failure(response: object) -> Error:
    """Return the error of the request as a whole."""
    if isinstance(response, ApiError):
        return response.error
    assert isinstance(response, wire.AlterPartitionResponse)
    return error_of(response.error_code)


def _describe(partition: Partition, change: IsrChange) -> tuple[str, str]:
    """Return a proposal's headline, and its text for this partition."""
    named = f"{partition.topic}-{partition.partition_id}"
    members = {node for node, _ in change.isr}
    if change.grows:
        return "expanding ISR by", f"{named} {sorted(members.difference(partition.isr))}"
    log, left = partition.log, sorted(members.symmetric_difference(change.maximal))
    assert log is not None
    offsets = f"high watermark {log.high_watermark}, log end {log.log_end_offset}"
    return "shrinking ISR by", f"{named} {left} ({offsets})"


def alter_partition_request(
    node_id: int, broker_epoch: int, proposals: Sequence[Proposal]
) -> wire.AlterPartitionRequest:
    """Return the request for some proposals, grouped by topic."""
    topics: dict[Uuid, list[wire.RequestPartitionData]] = {}
    for partition, change in proposals:
        topics.setdefault(partition.topic_id, []).append(
            wire.RequestPartitionData(
                partition_index=partition.partition_id,
                leader_epoch=change.leader_epoch,
                new_isr_with_epochs=tuple(
                    wire.BrokerState(broker_id=node, broker_epoch=epoch)
                    for node, epoch in change.isr
                ),
                partition_epoch=change.partition_epoch,
            )
        )
    return wire.AlterPartitionRequest(
        broker_id=node_id,
        broker_epoch=broker_epoch,
        topics=tuple(
            wire.RequestTopicData(topic_id=topic_id, partitions=tuple(partitions))
            for topic_id, partitions in topics.items()
        ),
    )
