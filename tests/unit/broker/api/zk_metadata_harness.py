"""A broker in ZooKeeper mode, with logs on a disk in memory: for tests of keys 4 to 6."""

from collections.abc import Iterable
from typing import Any

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.base.pending import Pending, completed
from ottla.broker.zookeeper.zk_metadata import ZkMetadata
from ottla.metadata.delta import replay
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import Record
from ottla.wire.messages import leader_and_isr as lai
from ottla.wire.messages import stop_replica as stop
from ottla.wire.messages import update_metadata as meta

from ..harness import TOPIC_ID, BrokerHarness

BROKER_EPOCH = 40
CONTROLLER_EPOCH = 7
DYING = -2


class ZkMetadataHarness(BrokerHarness):
    """Broker 1; its controller is broker 3. See `ZkMetadataPort`."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self.facts = ZkMetadata(1, broker_epoch=BROKER_EPOCH)
        self.configs_read: list[list[str]] = []
        self.config_read: Pending[None] = completed(None)
        self.missing_checks: list[frozenset[Uuid]] = []
        self.log_dirs.acquire(node_id=1, cluster_id=None)
        self.load(self.broker.image)
        self.broker.epoch = BROKER_EPOCH
        self.broker.zk_metadata = self

    @property
    def image(self) -> ClusterImage:
        return self.broker.image

    def apply(self, records: Iterable[Record]) -> None:
        listed = tuple(records)
        if listed:
            self.offset += 1
            self.broker.apply(
                replay(self.image, listed, offset=self.offset, epoch=self.facts.controller_epoch)
            )

    def read_configs(self, topics: Iterable[str]) -> Pending[None]:
        self.configs_read.append(list(topics))
        return self.config_read

    def check_missing_topics(self) -> None:
        self.missing_checks.append(self.facts.missing_topics)

    # -- the three requests --

    def begin_lead(
        self,
        *states: lai.LeaderAndIsrPartitionState,
        topic: str = "t",
        topic_id: Uuid = TOPIC_ID,
        controller_epoch: int = CONTROLLER_EPOCH,
        broker_epoch: int = BROKER_EPOCH,
    ) -> Pending[lai.LeaderAndIsrResponse]:
        request = lai.LeaderAndIsrRequest(
            controller_id=3,
            controller_epoch=controller_epoch,
            broker_epoch=broker_epoch,
            topic_states=(
                lai.LeaderAndIsrTopicState(
                    topic_name=topic, topic_id=topic_id, partition_states=states
                ),
            ),
            live_leaders=(),
        )
        return self.begin(request, 7)

    def lead(self, *states: lai.LeaderAndIsrPartitionState, **how: Any) -> dict[int, Error]:
        """Send LeaderAndIsr; return the error of each partition."""
        pending = self.begin_lead(*states, **how)
        assert pending.done
        assert pending.value.error_code == Error.NONE
        [topic] = pending.value.topics
        return {each.partition_index: Error(each.error_code) for each in topic.partition_errors}

    def update_metadata(
        self,
        *states: meta.UpdateMetadataPartitionState,
        brokers: tuple[int, ...] = (1, 2, 3),
        topic: str = "t",
        topic_id: Uuid = TOPIC_ID,
        controller_epoch: int = CONTROLLER_EPOCH,
        broker_epoch: int = BROKER_EPOCH,
        type: int = meta.UNKNOWN,
    ) -> Error:
        """Send UpdateMetadata; return its error."""
        request = meta.UpdateMetadataRequest(
            type=type,
            controller_id=3,
            controller_epoch=controller_epoch,
            broker_epoch=broker_epoch,
            topic_states=(
                meta.UpdateMetadataTopicState(
                    topic_name=topic, topic_id=topic_id, partition_states=states
                ),
            )
            if states
            else (),
            live_brokers=tuple(
                meta.UpdateMetadataBroker(
                    id=each,
                    endpoints=(
                        meta.UpdateMetadataEndpoint(
                            port=9092, host=f"h{each}", listener="PLAINTEXT", security_protocol=0
                        ),
                    ),
                    rack=f"r{each}",
                )
                for each in brokers
            ),
        )
        return Error(self.ask(request, 8).error_code)

    def begin_stop(
        self,
        *numbers: int,
        delete: bool = True,
        epoch: int = -2,
        topic: str = "t",
        topic_id: Uuid = NO_UUID,
        controller_epoch: int = CONTROLLER_EPOCH,
        broker_epoch: int = BROKER_EPOCH,
    ) -> Pending[stop.StopReplicaResponse]:
        request = stop.StopReplicaRequest(
            controller_id=3,
            controller_epoch=controller_epoch,
            broker_epoch=broker_epoch,
            topic_states=(
                stop.StopReplicaTopicState(
                    topic_name=topic,
                    topic_id=topic_id,
                    partition_states=tuple(
                        stop.StopReplicaPartitionState(
                            partition_index=number, leader_epoch=epoch, delete_partition=delete
                        )
                        for number in numbers
                    ),
                ),
            ),
        )
        return self.begin(request, 4)

    def stop(self, *numbers: int, **how: Any) -> dict[int, Error]:
        """Send StopReplica; return the error of each partition."""
        pending = self.begin_stop(*numbers, **how)
        self.clock.advance(1)  # A deletion is answered once the checkpoints are written.
        assert pending.done
        assert pending.value.error_code == Error.NONE
        return {
            each.partition_index: Error(each.error_code) for each in pending.value.partition_errors
        }

    def partition_dirs(self) -> list[str]:
        """Return the names of the partition directories that a start would load."""
        names = self.disk.listdir("/logs")
        return [name for name in names if name[0] == "t" and not name.endswith("-delete")]


def partition_state(number: int = 0, **how: Any) -> lai.LeaderAndIsrPartitionState:
    """Return a first state: broker 1 leads, 2 is in sync."""
    usual: dict[str, Any] = {
        "partition_index": number,
        "controller_epoch": CONTROLLER_EPOCH,
        "leader": 1,
        "leader_epoch": 0,
        "isr": (1, 2),
        "partition_epoch": 0,
        "replicas": (1, 2),
        "is_new": True,
    }
    return lai.LeaderAndIsrPartitionState(**{**usual, **how})


def known(number: int = 0, **how: Any) -> meta.UpdateMetadataPartitionState:
    """Return the same state for UpdateMetadata."""
    usual: dict[str, Any] = {
        "partition_index": number,
        "controller_epoch": CONTROLLER_EPOCH,
        "leader": 1,
        "leader_epoch": 0,
        "isr": (1, 2),
        "zk_version": 0,
        "replicas": (1, 2),
    }
    return meta.UpdateMetadataPartitionState(**{**usual, **how})
