"""Opening one log on the caller's thread: a new one; the metadata log; tools and tests."""

from ottla.base.ids import Uuid
from ottla.log import names
from ottla.log.config import LogConfig
from ottla.log.dirs.partition_metadata import encode_partition_metadata
from ottla.log.partition_log import LogPorts, PartitionLog
from ottla.log.recovery.log_loader import load_log


def open_log(
    ports: LogPorts,
    directory: str,
    *,
    topic: str,
    partition: int,
    topic_id: Uuid,
    config: LogConfig,
    clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    local_log_start_offset: int = 0,
    high_watermark: int = 0,
    keep_below: int = 0,
) -> PartitionLog:
    """Load, recover or create the log in `directory`. Blocks.

    Fields: `clean`: the last shutdown was clean; otherwise everything from `recovery_point` on is
            checked; `keep_below`: a log that is damaged below this offset is left as it is.
    Raises: OSError; LogDamaged, because of `keep_below`.
    """
    disk = ports.disk
    disk.mkdir(directory)
    write_topic_id(ports, directory, topic_id)
    loaded = load_log(
        disk,
        directory,
        names.partition_dir_name(topic, partition),
        config,
        clean=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        local_log_start_offset=local_log_start_offset,
        keep_below=keep_below,
        now_ms=ports.clock.now_ms(),
    )
    log = PartitionLog(
        ports,
        directory,
        topic=topic,
        partition=partition,
        topic_id=topic_id,
        config=config,
        loaded=loaded,
        high_watermark=high_watermark,
    )
    log.local.note_unsynced(f"{directory}/{names.PARTITION_METADATA}")
    return log


def write_topic_id(ports: LogPorts, directory: str, topic_id: Uuid) -> None:
    """Write `partition.metadata` where it is missing, without a sync. Raises: OSError."""
    path = f"{directory}/{names.PARTITION_METADATA}"
    if ports.disk.exists(path):
        return
    temporary = path + names.TEMPORARY
    file = ports.disk.open(temporary, create=True)
    try:
        file.truncate(0)
        file.append([encode_partition_metadata(topic_id)])
    finally:
        file.close()
    ports.disk.rename(temporary, path)
