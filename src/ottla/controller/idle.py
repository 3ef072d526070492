"""Topics without any use are deleted automatically: `ottla.topic.ttl.ms`.

A use is a produce, a consumer's fetch or an offset commit. Each reaches a broker that is
assigned to the topic or, for commits, to the offsets topic: the topic's *witnesses*. Every broker
periodically reports how long it has seen no use of each topic that has a limit; a topic has been
idle for the least time that a witness reports. So nothing is concluded without reports: a witness
that is down or silent prevents the deletion, and one that was killed begins to count again.

A broker that loses an assignment loses its observations with it. So a row counts only for the
witnesses that it names, and brokers begin to count again when those change.

The decision is made twice: a topic that is due becomes a candidate, and is deleted once every
witness has checked again since. A check is known to be later because its report names the response
that it follows (`token`), not by a clock; a candidate that waits too long begins again. What
remains is the time from a broker's check to the decision, at most `REPORT_INTERVALS_MAX` intervals.

The reports are soft state of one controller epoch: a new controller has none, and deletes nothing.
`now_ms` is monotonic throughout; the wall clock is in the receipt only.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.base.errors import ApiError, Error
from ottla.base.ids import INTERNAL_TOPICS, METADATA_TOPIC, NO_EPOCH, OFFSETS_TOPIC, Uuid
from ottla.controller.deletion.deletion_policy import is_reachable
from ottla.controller.mode_policy import ModePolicy
from ottla.metadata.features import LEDGER, OTTLA_VERSION
from ottla.metadata.image import ClusterImage, TopicImage
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.topic_config import NO_TTL, TTL, check_may_go, ttl_of

INTERVAL: Final = "ottla.topic.idle.check.interval.ms"
"""The broker property: how often it checks its topics and reports."""
REPORT_INTERVALS_MAX: Final = 4
"""Reports and candidates are valid for so many intervals."""
NO_TOKEN: Final = -1
PARTITIONS_MAX: Final = 1_000
"""Of topics deleted with one report: deleting all at once may be too large a step."""

_EPOCH_SHIFT: Final = 32


class IdleReason(IntEnum):
    """Why a topic is not deleted; the first that holds. Wire values."""

    DUE = 0
    """It is deleted once all witnesses have checked again."""
    INTERNAL = 1
    NO_TTL = 2
    BEING_DELETED = 3
    DISABLED = 4
    """delete.topic.enable is false."""
    TOO_YOUNG = 5
    """A witness has seen a use, or begun to count, within the limit."""
    NO_LEADER = 6
    """A partition of it, or of the offsets topic, has none: clients cannot use it."""
    BROKER_DOWN = 7
    NOT_HEARD = 8
    """A witness that is up has not reported, or not since the witnesses changed."""


class IdleRow(NamedTuple):
    """A broker's report of a topic. `replicas`: sorted, as the broker knows them."""

    topic_id: Uuid
    replicas: tuple[int, ...]
    idle_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleReport:
    """A broker's report. `coordinators`: replicas of the offsets topic, sorted; `token`: of the
    response that its check followed.
    """

    broker_id: int
    broker_epoch: int
    coordinators: tuple[int, ...]
    rows: tuple[IdleRow, ...]
    token: int = NO_TOKEN


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleStatus:
    """The idle status of a topic. `idle_ms`: -1 = no witness reported; else the least that was
    reported, which is too much where some did not. `brokers`: the witnesses that prevent deletion.
    """

    topic_id: Uuid
    name: str
    ttl_ms: int
    idle_ms: int
    reason: IdleReason
    brokers: tuple[int, ...] = ()


@dataclass(slots=True)
class _LastReport:
    """A broker's last report."""

    report: IdleReport
    at_ms: int
    rows: Mapping[Uuid, IdleRow]


@dataclass(slots=True)
class IdleReports:
    """The reports at the active controller, and the candidates; see the module."""

    _epoch: int = NO_EPOCH
    _count: int = 0
    _reports: dict[int, _LastReport] = field(default_factory=dict)
    _candidates: dict[Uuid, tuple[int, int]] = field(default_factory=dict)
    """By topic: token, and when (monotonic)."""

    def add(self, report: IdleReport, *, controller_epoch: int, now_ms: int) -> int:
        """Store a report; return the token of its response. Another epoch clears all others."""
        if controller_epoch != self._epoch:
            self._epoch, self._count = controller_epoch, 0
            self._reports.clear()
            self._candidates.clear()
        self._count += 1
        rows = {row.topic_id: row for row in report.rows}
        self._reports[report.broker_id] = _LastReport(report, now_ms, rows)
        return (max(self._epoch, 0) << _EPOCH_SHIFT) + self._count

    def last_report(
        self, image: ClusterImage, broker_id: int, *, since_ms: int
    ) -> _LastReport | None:
        """Return the report of a broker's present process, if it is not older than that time."""
        last_report, broker = self._reports.get(broker_id), image.brokers.get(broker_id)
        if last_report is None or broker is None or last_report.at_ms < since_ms:
            return None
        return last_report if last_report.report.broker_epoch == broker.epoch else None

    def candidate(self, topic_id: Uuid, token: int, *, now_ms: int, since_ms: int) -> int:
        """Return the token since which a topic is a candidate: `token` where it was none."""
        known = self._candidates.get(topic_id)
        if known is None or known[1] < since_ms:
            known = self._candidates[topic_id] = (token, now_ms)
        return known[0]

    def remove_candidate(self, topic_id: Uuid) -> None:
        self._candidates.pop(topic_id, None)

    def forget_deleted(self, image: ClusterImage) -> None:
        """Remove the candidates that do not exist any more."""
        for each in [each for each in self._candidates if image.topics.by_id(each) is None]:
            self.remove_candidate(each)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Snapshot:
    """The input of the decisions about all topics at one moment.

    Fields: `coordinators`: replicas of the offsets topic; `offsets_led`: whether all its
            partitions have leaders; `last_reports`: recent ones of the registered processes.
    """

    image: ClusterImage
    config: NodeConfig
    coordinators: tuple[int, ...]
    offsets_led: bool
    last_reports: Mapping[int, _LastReport]

    def witnesses(self, topic: TopicImage) -> list[int]:
        """Return the brokers one of which sees every use of a topic, sorted."""
        return sorted({*replicas_of(topic), *self.coordinators})


def _snapshot(
    image: ClusterImage, reports: IdleReports, config: NodeConfig, since_ms: int
) -> _Snapshot:
    offsets = image.topics.by_name(OFFSETS_TOPIC)
    found = {each: reports.last_report(image, each, since_ms=since_ms) for each in image.brokers}
    return _Snapshot(
        image=image,
        config=config,
        coordinators=replicas_of(offsets),
        offsets_led=not _has_no_leader(offsets),
        last_reports={
            each: last_report for each, last_report in found.items() if last_report is not None
        },
    )


def due_topics(
    image: ClusterImage,
    reports: IdleReports,
    report: IdleReport,
    config: NodeConfig,
    *,
    now_ms: int,
) -> tuple[list[IdleStatus], int]:
    """Take a report; return the topics to delete now, and the token for the response.

    A report deletes at most `PARTITIONS_MAX` partitions; the next one continues. A second call for
    one report returns the same or less, as where a decision is made again.
    Raises: ApiError(STALE_BROKER_EPOCH) for a process that is not registered now.
    """
    broker = image.brokers.get(report.broker_id)
    if broker is None or broker.epoch != report.broker_epoch:
        raise ApiError(Error.STALE_BROKER_EPOCH)
    token = reports.add(report, controller_epoch=image.position[1], now_ms=now_ms)
    reports.forget_deleted(image)
    since_ms = now_ms - REPORT_INTERVALS_MAX * config[INTERVAL]
    snapshot = _snapshot(image, reports, config, since_ms)
    due: list[IdleStatus] = []
    partitions = 0
    for row in report.rows:
        topic = image.topics.by_id(row.topic_id)
        if topic is None:
            continue
        status = _status_of(snapshot, topic) if _may_be_due(snapshot, topic, row) else None
        if status is None or status.reason is not IdleReason.DUE:
            reports.remove_candidate(topic.id)
            continue
        since_token = reports.candidate(topic.id, token, now_ms=now_ms, since_ms=since_ms)
        if all(
            snapshot.last_reports[each].report.token >= since_token
            for each in snapshot.witnesses(topic)
        ):
            partitions += len(topic.partitions)
            if due and partitions > PARTITIONS_MAX:
                break
            due.append(status)
    return sorted(due, key=lambda each: each.name), token


def _may_be_due(snapshot: _Snapshot, topic: TopicImage, row: IdleRow) -> bool:
    """Tell whether a topic needs `_status_of`: most are in use, and reports have thousands."""
    ttl_ms = ttl_of(snapshot.image, topic.name)
    if ttl_ms < 0:
        return False
    for each in (*row.replicas, *snapshot.coordinators):
        last_report = snapshot.last_reports.get(each)
        reported = None if last_report is None else last_report.rows.get(row.topic_id)
        if reported is None or reported.idle_ms < ttl_ms:
            return False
    return True


def _status_of(snapshot: _Snapshot, topic: TopicImage) -> IdleStatus:
    """Return how long a topic has been idle, and why it is not deleted."""
    ttl_ms, witnesses = ttl_of(snapshot.image, topic.name), snapshot.witnesses(topic)
    reported = _reported_idle_ms(snapshot, topic, witnesses)
    why, brokers = _hold_reason(snapshot, topic, ttl_ms, witnesses, reported)
    return IdleStatus(
        topic_id=topic.id,
        name=topic.name,
        ttl_ms=ttl_ms,
        idle_ms=min(reported.values(), default=-1),
        reason=why,
        brokers=brokers,
    )


def _reported_idle_ms(
    snapshot: _Snapshot, topic: TopicImage, witnesses: Sequence[int]
) -> dict[int, int]:
    """Return the idle times that witnesses report for the present witnesses."""
    replicas = replicas_of(topic)
    reported: dict[int, int] = {}
    for each in witnesses:
        last_report = snapshot.last_reports.get(each)
        row = None if last_report is None else last_report.rows.get(topic.id)
        if last_report is None or row is None:
            continue
        if row.replicas == replicas and last_report.report.coordinators == snapshot.coordinators:
            reported[each] = row.idle_ms
    return reported


def _hold_reason(
    snapshot: _Snapshot,
    topic: TopicImage,
    ttl_ms: int,
    witnesses: Sequence[int],
    reported: Mapping[int, int],
) -> tuple[IdleReason, tuple[int, ...]]:
    """Return why a topic is not deleted, and the brokers because of which it is not."""
    if topic.name in INTERNAL_TOPICS or topic.name == METADATA_TOPIC:
        return IdleReason.INTERNAL, ()
    if ttl_ms < 0:
        return IdleReason.NO_TTL, ()
    if snapshot.image.deletions.is_queued(topic.id):
        return IdleReason.BEING_DELETED, ()
    if not snapshot.config["delete.topic.enable"]:
        return IdleReason.DISABLED, ()
    if too_young := tuple(each for each, idle_ms in reported.items() if idle_ms < ttl_ms):
        return IdleReason.TOO_YOUNG, too_young
    if _has_no_leader(topic) or not snapshot.offsets_led:
        return IdleReason.NO_LEADER, ()
    if down := tuple(each for each in witnesses if not is_reachable(snapshot.image, each)):
        return IdleReason.BROKER_DOWN, down
    if silent := tuple(each for each in witnesses if each not in reported):
        return IdleReason.NOT_HEARD, silent
    return IdleReason.DUE, ()


def describe_idle(
    image: ClusterImage,
    reports: IdleReports,
    config: NodeConfig,
    names: Collection[str] | None,
    *,
    now_ms: int,
) -> tuple[IdleStatus, ...]:
    """Return the idle status of topics, by name: of those with a limit where none are named."""
    if names is None:
        names = topics_with_ttl(image)
    snapshot = _snapshot(image, reports, config, now_ms - REPORT_INTERVALS_MAX * config[INTERVAL])
    topics = [image.topics.by_name(each) for each in sorted(set(names))]
    return tuple(_status_of(snapshot, topic) for topic in topics if topic is not None)


def topics_with_ttl(image: ClusterImage) -> list[str]:
    """Return the names of topics with a limit, sorted."""
    return [each for each in image.topics.names() if ttl_of(image, each) >= 0]


def replicas_of(topic: TopicImage | None) -> tuple[int, ...]:
    """Return the brokers that any partition of a topic is assigned to, sorted."""
    if topic is None:
        return ()
    return tuple(
        sorted({each for partition in topic.partitions.values() for each in partition.replicas})
    )


def _has_no_leader(topic: TopicImage | None) -> bool:
    return topic is not None and any(each.leader < 0 for each in topic.partitions.values())


def check_ttl(
    image: ClusterImage, mode: ModePolicy, topic: str, overrides: Mapping[str, str]
) -> None:
    """Refuse a limit that would have no effect. Raises: ApiError(INVALID_CONFIG)."""
    check_may_go(topic, overrides)
    text = overrides.get(TTL, str(NO_TTL)).strip()
    if text != str(NO_TTL) and not mode.has_ledger(image.features):
        raise ApiError(
            Error.INVALID_CONFIG,
            f"{TTL}={text} needs the feature {OTTLA_VERSION} at level {LEDGER}.",
        )
