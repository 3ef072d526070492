"""Controllers and followers on one fake disk, joined by a fake channel."""

from typing import Any

from ottla.base.errors import ApiError
from ottla.controller.step import Decision, Step
from ottla.host.controller.controller_runtime import ControllerRuntime
from ottla.host.kraft.metadata_follower import MetadataFollower
from ottla.host.kraft.metadata_log import MetadataLog
from ottla.host.kraft.quorum_driver import QuorumLinks
from ottla.host.kraft.quorum_log import open_quorum_storage
from ottla.host.kraft.quorum_snapshots import SnapshotLimits
from ottla.host.log_dirs.storage import bootstrap_records
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.features import ELR_VERSION, OTTLA_VERSION
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import ConfigRecord, Record, TopicRecord
from ottla.wire.codec import decode, encode
from ottla.wire.messages.fetch import FetchRequest, FetchResponse
from ottla.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse

from .harness import CLUSTER_ID, Harness, Sender, a_connection

CONTROLLER_DIR = "/controller"
BROKER_DIR = "/broker"
NEVER = SnapshotLimits(bytes_between=1 << 60, interval_ms=0)


class Controller:
    """One process of the controller."""

    def __init__(
        self,
        harness: Harness,
        *,
        limits: SnapshotLimits = NEVER,
        idle_interval_ms: int = 0,
        segment_bytes: int = 1 << 30,
        start: bool = True,
        node_id: int = 1,
        voters: tuple[int, ...] = (1,),
        directory: str = CONTROLLER_DIR,
        links: QuorumLinks | None = None,
        failures: list[str] | None = None,
    ) -> None:
        self.harness = harness
        self.node_id = node_id
        self.failures: list[str] = [] if failures is None else failures
        self.activations = 0
        self.effects: list[Any] = []
        harness.disk.mkdir(directory)
        harness.disk.sync_dir("/")
        self.storage = open_quorum_storage(
            harness.disk,
            directory,
            clock=harness.clock,
            timers=harness.timers,
            workers=harness.workers,
            segment_bytes=segment_bytes,
        )
        self.log = MetadataLog(
            node_id=node_id,
            cluster_id=CLUSTER_ID,
            voters=voters,
            storage=self.storage,
            bootstrap=bootstrap_records({ELR_VERSION: 0, OTTLA_VERSION: 0}),
            clock=harness.clock,
            timers=harness.timers,
            workers=harness.workers,
            on_elected=lambda epoch: self.runtime.begin(epoch).then(self._activated),
            on_resigned=lambda: self.runtime.resign(),
            on_failure=self.failures.append,
            idle_interval_ms=idle_interval_ms,
            snapshot_limits=limits,
            links=links,
        )
        self.runtime = ControllerRuntime(
            self.log, clock=harness.clock, on_effect=self.effects.append
        )
        if start:
            self.log.start()

    def _activated(self, failure: ApiError | None) -> None:
        self.activations += failure is None

    def write(self, *records: Record, atomic: bool = True, reply: str = "done") -> Any:
        """Append records; return the promise of `reply`."""
        return self.runtime.run(lambda image: Decision(Step(records, atomic=atomic), reply))

    def serve(self, request: object, version: int, connection: Any = None) -> Any:
        """Answer a follower, through the codec."""
        ctx = self.harness.context(version=version, connection=connection or a_connection())
        if isinstance(request, FetchRequest):
            request = decode(FetchRequest, encode(request, version), version)
            answer = self.log.quorum.fetch(ctx, request)
            return _through_codec(answer, FetchResponse, version)
        assert isinstance(request, FetchSnapshotRequest)
        request = decode(FetchSnapshotRequest, encode(request, version), version)
        answer = self.log.quorum.fetch_snapshot(ctx, request)
        return _through_codec(answer, FetchSnapshotResponse, version)


def _through_codec(answer: Any, cls: type, version: int) -> Any:
    if hasattr(answer, "then"):
        return answer.map(lambda value: decode(cls, encode(value, version), version))
    return decode(cls, encode(answer, version), version)


class Broker:
    """One process of a broker's follower."""

    def __init__(
        self,
        harness: Harness,
        serve: Any,
        *,
        limits: SnapshotLimits = NEVER,
        directory: str = BROKER_DIR,
        node_id: int = 2,
        start: bool = True,
    ) -> None:
        self.deltas: list[ClusterDelta] = []
        self.failures: list[str] = []
        self.sender = Sender(serve)
        harness.disk.mkdir(directory)
        harness.disk.sync_dir("/")
        self.storage = open_quorum_storage(
            harness.disk,
            directory,
            clock=harness.clock,
            timers=harness.timers,
            workers=harness.workers,
        )
        self.follower = MetadataFollower(
            lambda _voter: self.sender,
            node_id=node_id,
            cluster_id=CLUSTER_ID,
            voters=(1,),
            storage=self.storage,
            clock=harness.clock,
            timers=harness.timers,
            workers=harness.workers,
            on_image=self.deltas.append,
            on_failure=self.failures.append,
            snapshot_limits=limits,
        )
        if start:
            self.follower.start()

    @property
    def image(self) -> ClusterImage:
        return self.follower.image


def a_topic(number: int) -> TopicRecord:
    return TopicRecord(name=f"topic-{number}", topic_id=number.to_bytes(16, "big"))


def a_config(name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=2, resource_name="topic-1", name=name, value=value)
