"""Closing librdkafka's consumers, which can lock themselves up for ever.

Seen with librdkafka 2.16.0 in a debugger, and there in its source:

1. The leader epoch of a partition moves on. The client asks the leader where the epoch before
   ended (OffsetForLeaderEpoch), and the leader dies before it answers.
2. The next metadata does not name that broker. Its thread ends the request, and lets go of its
   partitions: `rd_kafka_toppar_undelegate` and `rd_kafka_toppar_forget_leader` (rdkafka_topic.c)
   take the client's lock for reading, then the partition's.
3. The main thread hears of that end at the same moment. It holds the partition's lock
   (`rd_kafka_toppar_handle_OffsetForLeaderEpoch`, rdkafka_offset.c) while it asks for metadata
   anew, and takes the client's lock for writing (`rd_kafka_metadata_refresh_topics`).
4. Both wait for ever. The client hears of no leader any more, so that its consumer stands still
   sooner or later, and `close` waits for the main thread.

No setting avoids it: consumers that assign, and group members, check each new epoch. Producers do
not, and are safe. Nothing ends such a client but the end of its process.
"""

import sys
import threading
from typing import Any

CLOSE_SECONDS = 15.0
"""For what takes milliseconds where only partitions are assigned, and for members of a group as
long as their coordinator takes to answer a commit and a LeaveGroup."""


def is_closed(consumer: Any, within: float = CLOSE_SECONDS) -> bool:
    """Close a consumer; return whether that came to an end. One that is locked up is left alone."""
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
    """Close a consumer at a command's end; tell people where it is left alone."""
    if not is_closed(consumer, within):
        print(
            f"WARN: the client library did not close within {within:g} s, and is left as it is; a"
            " group may read again what came since its last commit",
            file=sys.stderr,
            flush=True,
        )
