"""The file in which a broker saves its idle times over a clean shutdown.

The file holds the broker epoch in which it was written, as the clean shutdown files do. It is used
only where every log directory has a clean shutdown file of that epoch: then this broker has served
no client since. After a crash there is no such file, and a directory that was away has an old one.
So a stale file is never used, and need not be removed.
"""

import json
import logging
from collections.abc import Mapping
from typing import Any, Final

from ottla.base.ids import NO_EPOCH, Uuid, parse_uuid, uuid_text
from ottla.base.pending import Pending
from ottla.broker.idle import SavedIdleTime
from ottla.log.dirs.log_dirs import LogDirs

log = logging.getLogger(__name__)

NAME: Final = ".ottla_idle_topics"
"""In the first log directory; Kafka ignores it."""
VERSION: Final = 1


def encode_idle_times(saved: Mapping[Uuid, SavedIdleTime], broker_epoch: int) -> bytes:
    """Return the file's content."""
    content = {
        "version": VERSION,
        "broker_epoch": broker_epoch,
        "topics": {
            uuid_text(topic_id): {
                "replicas": each.replicas,
                "coordinators": each.coordinators,
                "idle_ms": each.idle_ms,
            }
            for topic_id, each in saved.items()
        },
    }
    return json.dumps(content).encode("utf-8")


def decode_idle_times(data: bytes, broker_epoch: int) -> dict[Uuid, SavedIdleTime]:
    """Return a file's idle times; none where it is of another broker epoch, or damaged."""
    try:
        content = json.loads(data)
        if (content["version"], content["broker_epoch"]) != (VERSION, broker_epoch):
            return {}
        return {parse_uuid(text): _saved(each) for text, each in content["topics"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        log.warning("%s is malformed; idle times of all topics restart from zero", NAME)
        return {}


def _saved(content: Any) -> SavedIdleTime:
    return SavedIdleTime(
        tuple(content["replicas"]), tuple(content["coordinators"]), int(content["idle_ms"])
    )


def read_idle_times(log_dirs: LogDirs) -> dict[Uuid, SavedIdleTime]:
    """Return the saved idle times; the log directories must have been loaded. Blocks."""
    epochs = {each.previous_epoch for each in log_dirs.dirs}
    if len(epochs) > 1 or NO_EPOCH in epochs:
        return {}
    try:
        data = log_dirs.ports.disk.read_bytes(_path(log_dirs))
    except OSError:
        return {}
    return decode_idle_times(data, epochs.pop())


def write_idle_times(
    log_dirs: LogDirs, saved: Mapping[Uuid, SavedIdleTime], broker_epoch: int
) -> Pending[None]:
    """Write the file in a worker. A failure is logged; the idle times are lost then."""
    done: Pending[None] = Pending()
    disk, path, data = log_dirs.ports.disk, _path(log_dirs), encode_idle_times(saved, broker_epoch)

    def written(result: BaseException | None) -> None:
        if result is not None:
            log.warning(
                "writing %s failed: %s; idle times of all topics restart from zero", path, result
            )
        done.complete(None)

    log_dirs.ports.workers.submit(lambda: disk.write_atomic(path, data), written)
    return done


def _path(log_dirs: LogDirs) -> str:
    return f"{log_dirs.dirs[0].path}/{NAME}"
