"""Records when each leader epoch of a simulated cluster began, and LeaderAndIsr sent too early.

A broker may only get a leadership whose epoch began after its registration: an epoch that began
before was that of its previous process.
"""

from typing import Any

from ottla.base.zookeeper import Create, SetData
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.partition_state import decode_state
from ottla.testing.sim.zookeeper.zookeeper import Written
from ottla.wire.messages import disable_remote_topic as disable
from ottla.wire.messages import stop_replica as stop

Partition = tuple[str, int]


class LeaderEpochs:
    """Fields: `sent_too_early`: leaderships of previous processes, as lines for a message."""

    def __init__(self) -> None:
        self.sent_too_early: list[str] = []
        self._begun: dict[Partition, dict[int, int]] = {}

    def written(self, written: Written) -> None:
        """Note a transaction."""
        for operation in written.operations:
            place = paths.parse_path(operation.path)
            if place.kind is not paths.Kind.STATE or not isinstance(operation, Create | SetData):
                continue
            key = (place.name, place.id)
            if isinstance(operation, Create):
                self._begun[key] = {}
            epoch = decode_state(*key, operation.data).leader_epoch
            self._begun.setdefault(key, {}).setdefault(epoch, written.zxid)

    def received(self, broker_id: int, request: Any) -> None:
        """Check a request to a broker; its epoch is the zxid of its registration."""
        leads_none = (stop.StopReplicaRequest, disable.DisableRemoteTopicRequest)
        for topic in () if isinstance(request, leads_none) else request.topic_states:
            for state in topic.partition_states:
                key = (topic.topic_name, state.partition_index)
                begun = self._begun.get(key, {}).get(state.leader_epoch)
                if state.leader != broker_id or begun is None or begun >= request.broker_epoch:
                    continue
                self.sent_too_early.append(
                    f"{type(request).__name__} to broker {broker_id}, registered by"
                    f" {request.broker_epoch}: leads {key} in epoch {state.leader_epoch},"
                    f" which began by {begun}"
                )
