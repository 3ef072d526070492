"""A controller's history for tests: decisions one after another, their log, brokers' lives."""

from typing import Any

from ottla.base.errors import ApiError
from ottla.controller.brokers.brokers import (
    NO_BROKER_EPOCH,
    Heartbeat,
    HeartbeatReply,
    heartbeat,
    register_broker,
)
from ottla.controller.context import next_offset
from ottla.controller.step import Decision, Step
from ottla.metadata.delta import delta_between, replay
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.records import Record, decode_record, encode_record

from .builders import CLUSTER, CountingDice, broker, context, uuid


class History:
    """An image, the log that made it, and time that passes on request."""

    def __init__(self, number: int = 0) -> None:
        self.image: ClusterImage = EMPTY
        self.log: list[bytes] = []
        self.context = context(dice=CountingDice(number))
        self.now_ms = 0
        self.processes = 0

    def take(self, decided: Decision[Any] | Step) -> Any:
        """Append a decision's records; return its reply."""
        step = decided.step if isinstance(decided, Decision) else decided
        self.append(*step.records)
        return decided.reply if isinstance(decided, Decision) else None

    def append(self, *records: Record) -> None:
        """Append records."""
        if records:
            offset = next_offset(self.image) + len(records) - 1
            self.image = replay(self.image, records, offset=offset, epoch=1).image
            self.log += map(encode_record, records)

    def register_process(self, broker_id: int, previous_epoch: int = NO_BROKER_EPOCH) -> bool:
        """Register a new process of a broker; return whether it was accepted."""
        self.processes += 1
        process = uuid(f"process-{self.processes}")
        try:
            epoch = self.take(
                register_broker(
                    self.image,
                    broker(broker_id, incarnation_id=process, rack="xy"[broker_id % 2]),
                    cluster_id=CLUSTER,
                    next_offset=next_offset(self.image),
                    context=self.context,
                    now_ms=self.now_ms,
                    previous_epoch=previous_epoch,
                )
            )
        except ApiError:
            return False
        assert self.image.brokers[broker_id].epoch == epoch == self.image.position[0]
        return True

    def beat_once(
        self, broker_id: int, *, fence: bool = False, stop: bool = False
    ) -> HeartbeatReply | None:
        """Send a registered broker's heartbeat."""
        found = self.image.brokers.get(broker_id)
        if found is None:
            return None
        report = Heartbeat(
            broker_id=broker_id,
            broker_epoch=found.epoch,
            metadata_offset=self.image.position[0],
            want_fence=fence,
            want_shut_down=stop,
        )
        reply: HeartbeatReply = self.take(
            heartbeat(
                self.image,
                report,
                next_offset=next_offset(self.image),
                context=self.context,
                now_ms=self.now_ms,
            )
        )
        return reply

    def check_log(self) -> None:
        """Replay the log, load a snapshot: both must give the same image."""
        offset, epoch = self.image.position
        records: list[Record] = [decode_record(each) for each in self.log]
        follower = replay(EMPTY, records, offset=offset, epoch=epoch).image
        assert follower == self.image
        snapshot = replay(EMPTY, self.image.to_records(), offset=offset, epoch=epoch).image
        assert snapshot == self.image
        delta = delta_between(follower, snapshot)
        assert not delta.created_topics
        assert not delta.changed_topics
        assert not delta.deleted_topics
