"""The persistent znodes of a cluster, which the first broker creates.

Source: KafkaZkClient.createTopLevelPaths, ZkData.PersistentZkPaths, Kafka 3.9.
"""

from collections.abc import Iterable

from ottla.base.zookeeper import Create, Session, ZkCode, ZkError
from ottla.host.steps import Steps, wait
from ottla.host.zookeeper.store.store_reading import read_each, reading
from ottla.metadata.znodes.paths import PERSISTENT


def make_persistent(session: Session, paths: Iterable[str] = PERSISTENT) -> Steps[None]:
    """Create the missing ones of `paths`, with their parents. Raises: ZkError."""
    wanted = sorted({each for path in paths for each in _with_parents(path)})
    found = yield from reading(read_each(wanted, session.exists))
    for path in wanted:
        answer: object = found.get(path)
        while answer is None:
            # Other brokers may create it, and a lost response may have been a success.
            answer = yield from wait(session.multi((Create(path),)))
            if isinstance(answer, ZkError):
                if answer.code is ZkCode.CONNECTION_LOSS:
                    answer = None
                elif answer.code is not ZkCode.NODE_EXISTS:
                    raise answer


def _with_parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(2, len(parts) + 1)]
