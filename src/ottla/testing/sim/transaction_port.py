"""Appends on a partition's leader as a transaction coordinator and its producers do.

Brokers refuse transactional batches of clients, as there is no coordinator yet; so they are
appended inside the leader's process, past its listeners.
"""

from typing import TYPE_CHECKING, Any

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_LEADER
from ottla.base.pending import Pending
from ottla.testing.history.topics import TopicPartition
from ottla.testing.sim.net import MS

if TYPE_CHECKING:
    from ottla.testing.sim.sim import Sim

TIMEOUT_MS = 3_000

Appended = int | Error
"""The base offset, or why there is none. REQUEST_TIMED_OUT: it may be appended."""


class TransactionPort:
    """See the module."""

    def __init__(self, sim: "Sim") -> None:
        self._sim = sim

    def append(self, key: TopicPartition, batch: bytes) -> Pending[Appended]:
        """Append a batch on the partition's leader, with acks=all."""
        sim = self._sim
        answer: Pending[Appended] = Pending()
        topic = sim.image.topics.by_id(key[0])
        state = None if topic is None else topic.partitions.get(key[1])
        if state is None or state.leader == NO_LEADER:
            answer.complete(Error.LEADER_NOT_AVAILABLE)
            return answer

        def settle(result: Appended) -> None:
            if not answer.done:
                answer.complete(result)

        timeout = sim.scheduler.after(TIMEOUT_MS * MS, lambda: settle(Error.REQUEST_TIMED_OUT))
        answer.then(lambda _: timeout.cancel())
        node = sim.nodes[state.leader]
        node.act(sim.net.delay_us(), lambda: self._append(node.broker, key, batch, settle))
        return answer

    def _append(self, broker: Any, key: TopicPartition, batch: bytes, settle: Any) -> None:
        if broker is None:
            settle(Error.LEADER_NOT_AVAILABLE)
            return
        try:
            partition = broker.replicas.partition_by_id(*key)
        except ApiError as refusal:
            settle(refusal.error)
            return

        def appended(results: Any) -> None:
            [result] = results
            settle(result.error if result.error is not Error.NONE else result.base_offset)

        results = broker.replicas.append_all(
            [(partition, bytearray(batch))], acks=-1, timeout_ms=TIMEOUT_MS, origin="coordinator"
        )
        if isinstance(results, Pending):
            results.then(appended)
        else:
            appended(results)
