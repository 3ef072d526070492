"""The persistent znodes of a cluster, which the first broker creates.

A tool or an operator may remove one with all below it, as `/admin/delete_topics` to get rid of all
markers. The controller creates it again: its writes below it would fail for ever, and without the
node there is no watch on its children.

Source: KafkaZkClient.createTopLevelPaths, ZkData.PersistentZkPaths, Kafka 3.9.
"""

import logging
from collections.abc import Iterable

from ottla.base.zookeeper import Create, Session, ZkCode, ZkError
from ottla.host.steps import Steps, wait
from ottla.host.zookeeper.store.store_reading import (
    Watched,
    read_each,
    reading,
    reading_or_none,
)
from ottla.metadata.znodes.paths import PERSISTENT

log = logging.getLogger(__name__)


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


def make_again(session: Session, path: str) -> Steps[None]:
    """Create a persistent znode that was removed. Raises: ZkError."""
    log.warning("%s was removed; creating it again", path)
    yield from make_persistent(session, (path,))


def persistent_children(watched: Watched, path: str) -> Steps[tuple[str, ...]]:
    """Return the names below a persistent znode, and watch them. Raises: ZkError."""
    while (names := (yield from reading_or_none(watched.children(path)))) is None:
        yield from make_again(watched.session, path)
    return names


def _with_parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(2, len(parts) + 1)]
