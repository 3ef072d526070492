"""The object store of a node with tiered storage (`remote.log.storage.system.enable`).

A node checks its URI before it opens anything.
"""

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ottla.base.object_store import Pool
from ottla.base.ports import Clock
from ottla.host.log_dirs.node_dirs import StartError
from ottla.host.node_ports import NodePorts, OpenedStore
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.remote_definitions import EVENT_DIR, STORAGE_URI, SYSTEM_ENABLE
from ottla.stores.uri import StoreUri, StoreUriError, parse_store_uri

if TYPE_CHECKING:
    from ottla.stores.event_log import EventLog

OPERATIONS_PER_TASK = 6
"""Operations of one copy at once: a segment has up to six objects."""

DELETIONS_RUNNING_MAX = 4

OPERATIONS_QUEUED_MAX = 100


def storage_uri(config: NodeConfig) -> StoreUri | None:
    """Return where remote storage is; None where the node has none. Raises: StartError."""
    if not config[SYSTEM_ENABLE]:
        return None
    try:
        return parse_store_uri(config["ottla.remote.storage.uri"])
    except StoreUriError as error:
        raise StartError(f"{STORAGE_URI}={error}") from None


def pool_sizes(config: NodeConfig) -> dict[Pool, tuple[int, int]]:
    """Return how many operations of each pool run at once, and how many wait."""
    copiers = config["remote.log.manager.copier.thread.pool.size"]
    return {
        Pool.COPIER: (copiers, copiers * OPERATIONS_PER_TASK),
        Pool.EXPIRATION: (
            config["remote.log.manager.expiration.thread.pool.size"],
            OPERATIONS_QUEUED_MAX,
        ),
        Pool.FETCHER: (
            config["remote.log.reader.threads"],
            config["remote.log.reader.max.pending.tasks"],
        ),
        Pool.PURGE: (DELETIONS_RUNNING_MAX, OPERATIONS_QUEUED_MAX),
    }


def resize_pools(store: OpenedStore | None, config: NodeConfig) -> None:
    """Apply the sizes of a changed configuration."""
    if store is not None:
        for pool, (running_max, queued_max) in pool_sizes(config).items():
            store.resize(pool, running_max, queued_max)


def opened_store(config: NodeConfig, ports: NodePorts) -> OpenedStore | None:
    """Return a broker's store; None where it has no remote storage. Raises: StartError."""
    if not config[SYSTEM_ENABLE]:
        return None
    assert ports.open_store is not None
    return ports.open_store(config)


def open_remote_store(
    config: NodeConfig, clock: Clock, loop: asyncio.AbstractEventLoop
) -> OpenedStore:
    """Return the store of `ottla.remote.storage.uri`. Raises: StartError for a bad URI.

    The libraries are imported here: a node without tiered storage starts without them.
    """
    from ottla.stores.opening import open_store
    from ottla.stores.store import PoolLimits

    limits = {pool: PoolLimits(*sizes) for pool, sizes in pool_sizes(config).items()}
    uri = storage_uri(config)
    assert uri is not None
    try:
        return open_store(
            uri, clock=clock, post=partial(_post, loop), limits=limits, events=_event_log(config)
        )
    except StoreUriError as error:
        raise StartError(f"{STORAGE_URI}={error}") from None


def _event_log(config: NodeConfig) -> "EventLog | None":
    from ottla.stores.event_log import EventLog

    directory = config[EVENT_DIR]
    if directory is None:
        return None
    try:
        return EventLog(directory, config.node_id)
    except OSError as error:
        raise StartError(f"{EVENT_DIR}={directory}: {error}") from None


def _post(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # The loop has closed.
        loop.call_soon_threadsafe(call)
