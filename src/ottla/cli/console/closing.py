"""Closing librdkafka's consumers, which can deadlock.

Seen with librdkafka 2.16.0 in a debugger, and there in its source:

1. The leader epoch of a partition changes. The client sends OffsetForLeaderEpoch for the previous
   epoch to the leader, and the leader dies before it responds.
2. The next metadata does not name that broker. Its thread fails the request and releases its
   partitions: `rd_kafka_toppar_undelegate` and `rd_kafka_toppar_forget_leader` (rdkafka_topic.c)
   take the client's lock for reading, then the partition's.
3. The main thread handles the failed request at the same moment. It holds the partition's lock
   (`rd_kafka_toppar_handle_OffsetForLeaderEpoch`, rdkafka_offset.c) while it requests
   metadata, and takes the client's lock for writing (`rd_kafka_metadata_refresh_topics`).
4. Deadlock. The client processes no more leader changes, so its consumer stops sooner or later,
   and `close` waits for the main thread.

No setting avoids it: consumers that assign, and group members, check each new epoch. Producers do
not, and are safe. Only the end of the process ends such a client.
"""

import sys
import threading
from typing import Any

CLOSE_SECONDS = 15.0
"""Timeout. Closing takes milliseconds where partitions are only assigned. A group member waits for
its coordinator's responses to OffsetCommit and LeaveGroup."""


def is_closed(consumer: Any, within: float = CLOSE_SECONDS) -> bool:
    """Close a consumer; return whether it closed. A deadlocked one is left open."""
    failures: list[BaseException] = []

    def close() -> None:
        try:
            consumer.close()
        except BaseException as error:
            failures.append(error)

    closer = threading.Thread(target=close, daemon=True)
    closer.start()
    closer.join(within)
    if failures:
        raise failures[0]
    return not closer.is_alive()


def close(consumer: Any, within: float = CLOSE_SECONDS) -> None:
    """Close a consumer at a command's end; print a warning where it is left open."""
    if not is_closed(consumer, within):
        print(
            f"WARN: the client library did not close within {within:g} s, and is left as it is; a"
            " group may read again what came since its last commit",
            file=sys.stderr,
            flush=True,
        )
