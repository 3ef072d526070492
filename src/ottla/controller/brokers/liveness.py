"""When each broker last sent a heartbeat: soft state of the active controller.

None of it is in the log. A new controller counts every broker as heard from now, so
a failover costs a dead broker one session more, and never fences a live one.
Source: BrokerHeartbeatManager, Kafka 4.0; KIP-631.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ottla.base.ids import NO_OFFSET
from ottla.metadata.image import ClusterImage

NEVER = (1 << 63) - 1


@dataclass(slots=True)
class HeartbeatState:
    """The heartbeat state of one broker."""

    last_ms: int
    """Monotonic."""
    metadata_offset: int = NO_OFFSET
    """How far it had replayed the metadata log."""
    shutdown_offset: int = NEVER
    """The offset of the records with which its controlled shutdown began."""


class BrokerLiveness:
    """The brokers' heartbeats at this controller; times are monotonic milliseconds."""

    def __init__(self, session_timeout_ms: int) -> None:
        assert session_timeout_ms > 0
        self.session_timeout_ms = session_timeout_ms
        self._heartbeats: dict[int, HeartbeatState] = {}

    def activate(self, image: ClusterImage, now_ms: int, dead: Collection[int] = ()) -> None:
        """Reset, as the controller that just became active.

        `dead`: brokers that certainly do not run, whose sessions expire at once. The broker
        of a combined node is one until it has registered: it died with the previous process, and a
        restart after a crash must not wait for a session that no process holds.
        """
        over_ms = now_ms - self.session_timeout_ms
        self._heartbeats = {
            broker_id: HeartbeatState(over_ms if broker_id in dead else now_ms)
            for broker_id in image.broker_ids()
        }

    def touch(self, broker_id: int, now_ms: int, metadata_offset: int = NO_OFFSET) -> None:
        """Record a heartbeat; an offset never goes back within a registration."""
        heartbeat = self._heartbeats.setdefault(broker_id, HeartbeatState(now_ms))
        heartbeat.last_ms = now_ms
        heartbeat.metadata_offset = max(heartbeat.metadata_offset, metadata_offset)

    def register(self, broker_id: int, now_ms: int) -> None:
        """Reset the state of a broker that registered as a new process."""
        self._heartbeats[broker_id] = HeartbeatState(now_ms)

    def extend_sessions(self, late_ms: int, now_ms: int) -> None:
        """Extend all sessions by a time in which this controller could not take heartbeats."""
        for heartbeat in self._heartbeats.values():
            heartbeat.last_ms = min(heartbeat.last_ms + late_ms, now_ms)

    def forget(self, broker_id: int) -> None:
        """Forget a broker; harmless for an unknown one."""
        self._heartbeats.pop(broker_id, None)

    def begin_controlled_shutdown(self, broker_id: int, offset: int) -> None:
        """Record the offset with which a broker's controlled shutdown began."""
        self._heartbeats[broker_id].shutdown_offset = offset

    def shutdown_offset(self, broker_id: int) -> int:
        """Return that offset; after a failover it is unknown and counts as passed."""
        heartbeat = self._heartbeats.get(broker_id)
        if heartbeat is None or heartbeat.shutdown_offset == NEVER:
            return NO_OFFSET
        return heartbeat.shutdown_offset

    def lowest_metadata_offset(self, broker_ids: Iterable[int]) -> int:
        """Return how far the slowest of some brokers has replayed; NEVER for none."""
        found = (self._heartbeats.get(each) for each in broker_ids)
        return min(
            (NO_OFFSET if each is None else each.metadata_offset for each in found), default=NEVER
        )

    def is_alive(self, broker_id: int, now_ms: int) -> bool:
        """Tell whether a broker sent a heartbeat within the session timeout."""
        heartbeat = self._heartbeats.get(broker_id)
        return heartbeat is not None and now_ms - heartbeat.last_ms < self.session_timeout_ms

    def stalest(self, image: ClusterImage) -> tuple[int, int] | None:
        """Return (session end, broker) of the unfenced broker with the oldest heartbeat."""
        silent = (
            (heartbeat.last_ms + self.session_timeout_ms, broker_id)
            for broker_id, heartbeat in self._heartbeats.items()
            if (broker := image.brokers.get(broker_id)) is not None and not broker.fenced
        )
        return min(silent, default=None)

    def next_check_ms(self, image: ClusterImage) -> int | None:
        """Return when the next session can expire, or None where no broker is unfenced."""
        stalest = self.stalest(image)
        return None if stalest is None else stalest[0]
