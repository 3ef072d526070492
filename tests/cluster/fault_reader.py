"""The consumer of `fault_load`: it reads all partitions along, and says where it stands still.

While nodes fail it may wait as long as it likes. In the end it has to get on; where it does not,
the client is to blame if it cannot even be closed (`closing`), and another one goes on where it
stood. One that can be closed was at work and got nothing: that is a failure, and what the client
had to say about it is told with it.
"""

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from ottla.cli.console.closing import CLOSE_SECONDS, is_closed

STILL_SECONDS = 30.0
"""How long a partition may bring nothing while it has acknowledged records to be read. A client
that reconnects waits up to 10 s between two attempts."""

RENEWALS_MAX = 1
"""How many clients may lock themselves up at the end of one test. One is rare."""

DRAIN_SECONDS = (RENEWALS_MAX + 1) * (STILL_SECONDS + CLOSE_SECONDS)
"""How long an end may take, of one kind or the other, besides what reading itself takes."""

STATISTICS_MS = 1_000
"""How often a client says what it is at. Its debug log would say more, but writing it keeps the
locks busy over which clients lock themselves up."""


class Reader:
    """Reads the numbers that `fault_load` writes, each partition from offset 0 on.

    Nothing else is in the log, so that a number is an offset, and the next one follows at once.

    Fields: `seen`: the numbers, by partition. `errors`: what went wrong, in a list of the
            caller's. `locked_up`: how many clients had to be left alone.
            `library`: makes a consumer of librdkafka's, or one that does as if.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        errors: list[str],
        on_error: Callable[[Any], None],
        library: Callable[[dict[str, Any]], Any] = Consumer,
    ) -> None:
        self.topic = topic
        self._library = library
        self.seen: list[list[int]] = [[] for _ in range(partitions)]
        self.locked_up = 0
        self.errors = errors
        self._next = [0] * partitions
        self._moved = [time.monotonic()] * partitions
        self._config = {
            "bootstrap.servers": bootstrap,
            "group.id": f"{topic}-reader",
            "enable.auto.commit": False,
            # All that is committed stays: who is told otherwise has found a fault, and must not
            # begin again somewhere else in silence.
            "auto.offset.reset": "error",
            "log_level": 0,
            "error_cb": on_error,
            "statistics.interval.ms": STATISTICS_MS,
            "stats_cb": self._hear,
        }
        self._open()

    def _open(self) -> None:
        self._statistics = "{}"
        self._heard = time.monotonic()
        self._consumer = self._library(self._config)
        self._consumer.assign(
            [TopicPartition(self.topic, each, offset) for each, offset in enumerate(self._next)]
        )

    def poll(self) -> None:
        """Take what is there, waiting a moment for it."""
        for message in self._consumer.consume(500, 0.1):
            if message.error() is not None:
                self._tell(f"partition {message.partition()}: {message.error()}")
                continue
            partition, offset, number = message.partition(), message.offset(), int(message.value())
            if not self._next[partition] == offset == number:
                self._tell(
                    f"partition {partition}: offset {self._next[partition]} comes next, and offset"
                    f" {offset} came with the number {number}"
                )
            self.seen[partition].append(number)
            self._next[partition] = offset + 1
            self._moved[partition] = time.monotonic()

    def _hear(self, statistics: str) -> None:
        self._statistics = statistics
        self._heard = time.monotonic()

    def _tell(self, *facts: str) -> None:
        """Note an error, with what the client has said last; others follow from the first."""
        if not self.errors:
            self.errors.append("\n".join([*facts, *self._said()]))

    def _said(self) -> list[str]:
        """Return what the client said last of its brokers and partitions."""
        age = time.monotonic() - self._heard
        return [f"what the client said {age:.1f} s ago:", *said_by(self._statistics, self.topic)]

    def drain(
        self, acknowledged: Sequence[Sequence[float]], is_written: Callable[[], bool]
    ) -> None:
        """Read until all is seen that was acknowledged once everything is written; close.

        `acknowledged`: the times of the acknowledgements, by partition. Where anything is wrong it
        ends early, and where nothing comes any more, that is what is wrong.
        """
        began = time.monotonic()
        while not self.errors:
            done = is_written()  # Before all is counted.
            if done and not any(map(self._is_behind, range(len(self.seen)), acknowledged)):
                break
            self.poll()
            still = self._standing_still(acknowledged, began)
            if still and not self.errors:
                self._go_on(still, acknowledged)
                began = time.monotonic()
        self._close()

    def _is_behind(self, partition: int, acknowledged: Sequence[float]) -> bool:
        return len(self.seen[partition]) < len(acknowledged)

    def _standing_still(self, acknowledged: Sequence[Sequence[float]], began: float) -> list[int]:
        """Return the partitions whose next record has been there for long, and does not come."""
        now = time.monotonic()
        return [
            each
            for each, times in enumerate(acknowledged)
            if self._is_behind(each, times)
            and now - max(began, self._moved[each], times[len(self.seen[each])]) > STILL_SECONDS
        ]

    def _go_on(self, still: list[int], acknowledged: Sequence[Sequence[float]]) -> None:
        """Go on with another client where this one is locked up; else that is an error."""
        facts = [
            f"partition {each}: offset {self._next[each]} is not read for {STILL_SECONDS:g} s,"
            f" {len(self.seen[each])} of {len(acknowledged[each])} records are"
            for each in still
        ]
        said = self._said()
        if self._close():
            self._tell("the consumer stands still", *facts)
        elif self.locked_up > RENEWALS_MAX:
            self._tell("another consumer is locked up", *facts)
        else:
            print("another consumer goes on", *facts, *said, sep="\n")
            self._open()

    def _close(self) -> bool:
        """Close the client, if there is one; return whether that came to an end."""
        consumer, self._consumer = self._consumer, None
        if consumer is None or is_closed(consumer):
            return True
        self.locked_up += 1
        print("a consumer is locked up, and left alone")
        return False


BROKER = ("state", "stateage", "outbuf_cnt", "waitresp_cnt", "req_timeouts", "disconnects")
PARTITION = (
    "leader",
    "broker",
    "fetch_state",
    "next_offset",
    "app_offset",
    "hi_offset",
    "leader_epoch",
    "fetchq_cnt",
)


def said_by(statistics: str, topic: str) -> list[str]:
    """Return the part of librdkafka's statistics that says why a consumer gets nothing."""
    known = json.loads(statistics)
    partitions = known.get("topics", {}).get(topic, {}).get("partitions", {})
    return [
        f"  {kind} {name}: "
        + ", ".join(f"{each} {state[each]}" for each in notified if each in state)
        for kind, states, notified in (
            ("broker", known.get("brokers", {}), BROKER),
            ("partition", partitions, PARTITION),
        )
        for name, state in sorted(states.items())
    ]
