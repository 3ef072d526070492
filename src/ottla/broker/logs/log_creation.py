"""Creates the logs of new partitions before the broker applies the metadata change.

Creating its log is most of the cost of a new partition, and a topic may have thousands: created in
steps they block no request. The broker finds the logs when it applies the change. Where a name is
still taken, by a topic that the same change deletes, `apply` creates the log.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.base.ids import NO_UUID
from ottla.base.turns import Steps
from ottla.log.epoch_cache import EpochEntry
from ottla.log.file_cache import OutOfDescriptors
from ottla.log.remote_prefix import RemotePrefix
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.topics import UNKNOWN_DIRECTORIES, TopicImage

if TYPE_CHECKING:
    from ottla.log.config import LogConfig
    from ottla.log.dirs.log_dirs import LogDirs
    from ottla.log.partition_log import PartitionLog
    from ottla.metadata.tiering import RestoredPartition

LOGS_AT_ONCE_MAX = 4
"""How many logs are created in one turn of the loop, some 0.5 ms each, without a wait."""

NewPartition = tuple[TopicImage, int]


def new_partitions(delta: ClusterDelta, node_id: int) -> Iterator[NewPartition]:
    """Yield the partitions that a change assigns to a broker which did not host them before."""
    for topic in delta.created_topics.values():
        for partition_id, state in topic.in_order():
            if node_id in state.replicas:
                yield topic, partition_id
    for change in delta.changed_topics.values():
        for partition_id in change.partitions:
            before = change.old.partitions.get(partition_id)
            was_here = before is not None and node_id in before.replicas
            if not was_here and node_id in change.new.partitions[partition_id].replicas:
                yield change.new, partition_id


def get_or_create_log(
    log_dirs: "LogDirs",
    topic: TopicImage,
    partition_id: int,
    config: "LogConfig",
    *,
    node_id: int,
    is_new: bool = True,
) -> "PartitionLog":
    """Return the log of a partition, created where it does not exist.

    See `LogDirs.get_or_create`, also for what it raises.
    """
    directory_id = topic.partitions[partition_id].directory(node_id)
    return log_dirs.get_or_create(
        topic.name,
        topic.id,
        partition_id,
        config,
        directory_id=NO_UUID if directory_id in UNKNOWN_DIRECTORIES else directory_id,
        is_new=is_new,
    )


def begin_restored(log: "PartitionLog", restored: "RestoredPartition | None") -> bool:
    """Begin a restored partition's new log where its remote segments end; return whether it was.

    A log that has begun so already stays: it has what is left of its remote prefix, which a crash
    does not cost it (`ottla.log.remote_prefix`). Raises: OSError, ApiError.
    """
    if restored is None or log.log_end_offset >= restored.end_offset:
        return False
    prefix = None
    # Where all remote segments had expired, there is none that would have to become durable.
    if restored.log_start_offset < restored.end_offset:
        prefix = RemotePrefix(
            log_start_offset=restored.log_start_offset,
            epochs=tuple(EpochEntry(*each) for each in restored.epochs),
        )
    log.truncate_fully_and_start_at(restored.end_offset, prefix)
    return True


def create_logs(
    log_dirs: "LogDirs",
    partitions: Iterable[NewPartition],
    config: Callable[[str], "LogConfig"],
    *,
    node_id: int,
) -> Steps[None]:
    """Create the logs of these partitions, one in each step. `config`: of the topic of a name."""
    for topic, partition_id in partitions:
        if log_dirs.get(topic.name, partition_id) is None:
            with suppress(OSError, OutOfDescriptors):  # `apply` fails the same way, and logs it.
                get_or_create_log(
                    log_dirs, topic, partition_id, config(topic.name), node_id=node_id
                )
        yield
