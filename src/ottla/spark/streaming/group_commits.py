"""Commits a stream's position to a consumer group, so that tools show the stream's lag.

The position itself is in Spark's checkpoint: what is committed is never read back, and a commit
that fails is logged, not more.
"""

import time
from collections.abc import Mapping
from typing import Final

from ottla.client.cluster import ClientConfig, ClusterClient
from ottla.client.errors import ClientError
from ottla.client.group_offsets import commit
from ottla.client.partitions import TopicPartition
from ottla.spark.raw_options import log

TIMEOUT_SECONDS: Final = 5.0
"""A batch waits for its commit, so this is also how late a coordinator's failure makes one."""
RETRY_SECONDS: Final = 10.0


class GroupCommits:
    """Commits to one group. Use from one thread."""

    def __init__(self, config: ClientConfig, group: str) -> None:
        self._client = ClusterClient(config.with_timeout(TIMEOUT_SECONDS))
        self._group = group
        self._done: dict[TopicPartition, int] = {}
        self._paused_until = 0.0

    def close(self) -> None:
        """Close all connections; idempotent."""
        self._client.close()

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the offsets that were not committed yet. Logs what fails."""
        new = {key: each for key, each in offsets.items() if self._done.get(key) != each}
        if not new or time.monotonic() < self._paused_until:
            return
        try:
            commit(self._client, self._group, new)
        except ClientError as error:
            self._paused_until = time.monotonic() + RETRY_SECONDS
            log.warning(
                "the stream's offsets could not be committed to group %s: %s; retrying with a "
                "batch in %d s or later",
                self._group,
                error,
                RETRY_SECONDS,
            )
            return
        self._done |= new
