"""A controller's context for tests: images made from records, dice that are counted."""

from collections.abc import Iterable
from dataclasses import replace

from ottla.base.ids import Uuid
from ottla.controller.brokers.liveness import BrokerLiveness
from ottla.controller.context import DecisionContext, next_offset
from ottla.controller.step import Decision, Step
from ottla.metadata.brokers import BrokerImage, Endpoint, record_of
from ottla.metadata.delta import replay
from ottla.metadata.features import METADATA_VERSION, SUPPORTED
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.records import FeatureLevelRecord, Record

CLUSTER = "a-cluster"
SESSION_MS = 9_000

PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:9093",
}


class CountingDice:
    """Dice whose throws are known: bytes count up, numbers are `number` or below the bound."""

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.drawn = 0

    def random_bytes(self, count: int) -> bytes:
        """Return bytes that differ each time."""
        self.drawn += 1
        return self.drawn.to_bytes(count, "big")

    def below(self, bound: int) -> int:
        """Return the number that was set, brought below the bound."""
        return self.number % bound


def context(
    given: dict[str, str] | None = None, dice: CountingDice | None = None
) -> DecisionContext:
    """Return a context with `given` properties over the usual ones."""
    return DecisionContext(
        config=NodeConfig.parse({**PROPERTIES, **(given or {})}),
        cluster_id=CLUSTER,
        dice=dice or CountingDice(),
        liveness=BrokerLiveness(SESSION_MS),
    )


def uuid(text: str) -> Uuid:
    """Return an id that reads as `text`."""
    return Uuid(text.encode().ljust(16, b"."))


def broker(broker_id: int, **changes: object) -> BrokerImage:
    """Return an unfenced broker of epoch 100 + its id, with one log directory."""
    usual = BrokerImage(
        id=broker_id,
        epoch=100 + broker_id,
        incarnation_id=uuid(f"process-{broker_id}"),
        endpoints=(Endpoint("PLAINTEXT", "localhost", 9091 + broker_id),),
        features=SUPPORTED,
        fenced=False,
        log_dirs=(uuid(f"dir-{broker_id}"),),
    )
    return replace(usual, **changes)  # type: ignore[arg-type]


def advance(image: ClusterImage, records: Iterable[Record]) -> ClusterImage:
    """Return the image after records that follow its last one."""
    listed = list(records)
    offset = next_offset(image) + len(listed) - 1
    return replay(image, listed, offset=offset, epoch=1).image


def after(image: ClusterImage, decided: Decision[object] | Step) -> ClusterImage:
    """Return the image after a decision."""
    step = decided.step if isinstance(decided, Decision) else decided
    return advance(image, step.records)


def cluster(*brokers: BrokerImage) -> ClusterImage:
    """Return an image of feature level 4.0-IV3 with these brokers, at offset 1000."""
    level = FeatureLevelRecord(name=METADATA_VERSION, feature_level=SUPPORTED[0].max_version)
    image = advance(EMPTY, [level, *map(record_of, brokers)])
    return replace(image, position=(1_000, 1))


THREE = cluster(broker(1), broker(2), broker(3))
