"""Variants (see `variants`) that break one rule of topic deletion each."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.base.pending import Pending, completed
from ottla.broker.api import k05_stop_replica, k1002_delete_replicas
from ottla.broker.zookeeper import zk_metadata
from ottla.broker.zookeeper.zk_metadata import ZkMetadata
from ottla.controller.deletion import deletion_policy
from ottla.host.log_dirs import node_dirs
from ottla.log.dirs.async_delete import AsyncDelete
from ottla.log.dirs.dir_loading import Verdict
from ottla.log.dirs.log_dirs import LogDirs
from ottla.log.dirs.replica_deletion import Removed
from ottla.metadata.deletions import SUCCESSFUL, ReplicaStatus
from ottla.metadata.image import ClusterImage

from .replaced import replaced


@contextmanager
def confirms_what_it_has_not_deleted() -> Iterator[None]:
    """A broker confirms a deletion without looking for the partition directories."""

    def confirm_only(
        _: LogDirs, wanted: Collection[tuple[Uuid, int]], _topics: Mapping[Uuid, str]
    ) -> Pending[Removed]:
        return completed(dict.fromkeys(wanted))

    with (
        replaced(k05_stop_replica, "remove_replicas", confirm_only),
        replaced(k1002_delete_replicas, "remove_replicas", confirm_only),
    ):
        yield


@contextmanager
def counts_orders_as_done() -> Iterator[None]:
    """The controller calls a replica deleted before its broker has answered."""
    apply_results = deletion_policy._Evaluation._apply_results

    def at_once(
        self: Any, broker_id: int, standing: ReplicaStatus, partitions: Collection[int]
    ) -> list[int]:
        replicas = [
            deletion_policy.Replica(broker_id, self._deletion.topic_id, each) for each in partitions
        ]
        self._results = {**self._results, **dict.fromkeys(replicas, Error.NONE)}
        return apply_results(self, broker_id, standing, partitions)

    with replaced(deletion_policy._Evaluation, "_apply_results", at_once):
        yield


@contextmanager
def keeps_the_bytes() -> Iterator[None]:
    """A broker renames the directories of deleted replicas, and never removes them."""
    with replaced(AsyncDelete, "_remove_soon", lambda *_: None):
        yield


@contextmanager
def forgets_who_was_down() -> Iterator[None]:
    """A replica whose broker is down counts as deleted before the broker is back."""
    policy = deletion_policy

    with (
        replaced(policy, "BROKER_DOWN", SUCCESSFUL),
        replaced(policy, "_STOPPED", dict.fromkeys(policy._STOPPED, SUCCESSFUL)),
    ):
        yield


@contextmanager
def deletes_by_name() -> Iterator[None]:
    """A broker applies StopReplica for a deleted topic to the next topic of its name."""

    def may_stop(self: ZkMetadata, image: Any, name: Any, leader_epoch: int) -> Error:
        return Error.NONE

    with (
        replaced(ZkMetadata, "may_stop", may_stop),
        replaced(k05_stop_replica, "is_late", lambda image, name, topic_id: False),
    ):
        yield


@contextmanager
def deletes_successors() -> Iterator[None]:
    """A broker identifies the topics of DeleteReplicas by their names."""
    remove = k1002_delete_replicas._delete

    def by_name(broker: Any, request: Any) -> Any:
        image = broker.image
        for topic in request.topics:
            deletion = image.deletions.of(topic.topic_id)
            named = None if deletion is None else image.topics.by_name(deletion.name)
            if named is not None:
                for number in topic.partitions:
                    broker.log_dirs.delete(named.name, number)
        return remove(broker, request)

    with replaced(k1002_delete_replicas, "_delete", by_name):
        yield


@contextmanager
def hears_of_the_dead_again() -> Iterator[None]:
    """A broker accepts late requests about a topic after its deletion."""
    with replaced(zk_metadata, "_remember", lambda *_: None):
        yield


@contextmanager
def deletes_what_lags() -> Iterator[None]:
    """A start takes replicas that are not in sync for replicas that were moved away."""
    verdict_on = node_dirs.verdict_on

    def only_in_sync(image: ClusterImage, node_id: int, topic_id: Uuid, number: int) -> Verdict:
        verdict = verdict_on(image, node_id, topic_id, number)
        topic = image.topics.by_id(topic_id)
        if topic is not None and verdict is Verdict.KEEP:
            return verdict if node_id in topic.partitions[number].isr else Verdict.DELETE
        return verdict

    with replaced(node_dirs, "verdict_on", only_in_sync):
        yield
