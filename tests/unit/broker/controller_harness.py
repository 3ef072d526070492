"""A controller for handlers' tests: it decides at once on an image in memory.

`Controller.ask` sends a request through the codec in the version given, and brings the response
back the same way. `refusal` stands for a controller that is no longer active.
"""

import importlib
import pkgutil
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

import ottla.broker.api
from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.base.pending import Pending, completed
from ottla.base.timers import Timers
from ottla.broker.api.base import Context
from ottla.broker.forwarding.controller_limits import within_limit
from ottla.broker.ports import Connection, Listener
from ottla.controller.brokers.liveness import BrokerLiveness
from ottla.controller.context import DecisionContext, next_offset
from ottla.controller.mode_policy import KRAFT_MODE, ModePolicy
from ottla.controller.step import Decision
from ottla.metadata.brokers import BrokerImage, Endpoint, record_of
from ottla.metadata.delta import replay
from ottla.metadata.features import METADATA_VERSION, METADATA_VERSION_LEVEL, SUPPORTED
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.records import FeatureLevelRecord, Record
from ottla.wire.codec import decode, encode
from ottla.wire.frames import RequestHeader
from ottla.wire.schema import spec_of

R = TypeVar("R")

CLUSTER_ID = "a-cluster"
SESSION_MS = 9_000
PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:9093",
}
DIRECTORY = Uuid(b"directory-------")
PROCESS = Uuid(b"process---------")
BROKER = BrokerImage(
    id=1,
    epoch=1,
    incarnation_id=PROCESS,
    endpoints=(Endpoint("PLAINTEXT", "localhost", 9092),),
    features=SUPPORTED,
    fenced=False,
    log_dirs=(DIRECTORY,),
)


class CountingDice:
    """Chance that counts."""

    def __init__(self) -> None:
        self.drawn = 0

    def random_bytes(self, count: int) -> bytes:
        self.drawn += 1
        return self.drawn.to_bytes(count, "big")

    def below(self, bound: int) -> int:
        return 0


class Controller:
    """See `ottla.broker.api.base.ControllerPort`. It starts with one unfenced broker."""

    is_active = True

    def __init__(self, given: dict[str, str] | None = None, mode: ModePolicy = KRAFT_MODE) -> None:
        self.context = DecisionContext(
            config=NodeConfig.parse({**PROPERTIES, **(given or {})}),
            cluster_id=CLUSTER_ID,
            dice=CountingDice(),
            liveness=BrokerLiveness(SESSION_MS),
            mode=mode,
        )
        self.image: ClusterImage = EMPTY
        self.refusal: Error | None = None
        self.deadlines: list[int | None] = []
        level = FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_VERSION_LEVEL)
        self.write(level, record_of(BROKER))

    def write(self, *records: Record) -> None:
        """Append records to the log."""
        offset = next_offset(self.image) + len(records) - 1
        self.image = replay(self.image, records, offset=offset, epoch=1).image

    def run(
        self, decide: Callable[[ClusterImage], Decision[R]], *, deadline_ms: int | None = None
    ) -> Pending[R | ApiError]:
        self.deadlines.append(deadline_ms)
        if self.refusal is not None:
            return completed(ApiError(self.refusal))
        try:
            decided = decide(self.image)
        except ApiError as refusal:
            return completed(refusal)
        self.write(*decided.step.records)
        return completed(decided.reply)

    def ask(self, request: Any, version: int, *, now_ms: int = 1_000) -> Any:
        """Handle a request as a client of that version would see it."""
        key = spec_of(type(request)).key
        assert key is not None
        module = _module(key)
        assert version in module.API.versions
        seen = decode(type(request), memoryview(encode(request, version)), version)
        broker = SimpleNamespace(image=self.image, config=self.context.config)
        context = Context(
            header=RequestHeader(key, version, 1, "test"),
            connection=Connection(
                id="1",
                listener=Listener.CLIENT,
                listener_name="PLAINTEXT",
                client_host="localhost",
                client_port=1,
            ),
            now_ms=now_ms,
            monotonic_ms=now_ms,
            node=SimpleNamespace(  # type: ignore[arg-type]
                image=self.image, config=self.context.config
            ),
            broker_or_none=broker,  # type: ignore[arg-type]
            controller_or_none=self,
        )
        # As the dispatcher does.
        answer = module.handle(within_limit(context, seen, Timers()), seen)
        if isinstance(answer, Pending):
            answer = answer.value
        return decode(type(answer), memoryview(encode(answer, version)), version)


def _module(key: int) -> Any:
    for info in pkgutil.iter_modules(ottla.broker.api.__path__):
        if info.name.startswith(f"k{key:02d}_"):
            return importlib.import_module(f"{ottla.broker.api.__name__}.{info.name}")
    raise AssertionError(f"no API of key {key}")


def versions_of(key: int) -> range:
    """Return what an API file serves."""
    found: range = _module(key).API.versions
    return found
