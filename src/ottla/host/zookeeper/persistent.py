"""The persistent znodes of a cluster, which the first broker creates.

A tool or an operator may remove one with all below it, as `/admin/delete_topics` to get rid of all
markers. Who watches its children or writes below it creates it again: the writes would fail for
ever, and without the node there is no watch on its children.

Source: KafkaZkClient.createTopLevelPaths, ZkData.PersistentZkPaths, Kafka 3.9.
"""

import logging
from collections.abc import Iterable
from typing import NamedTuple

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


class NumberedChild(NamedTuple):
    """A sequential znode; those of one prefix compare in the order in which they were created.

    `parent_czxid`: the zxid that created the znode above, below which the numbers begin at 0.
    """

    parent_czxid: int
    name: str


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


def numbered_children(watched: Watched, path: str) -> Steps[list[NumberedChild]]:
    """Return the sequential znodes below a persistent znode, and watch both. Raises: ZkError."""
    while True:
        # Sent first: where the node is another one when its children are listed, its watch fires.
        parent = watched.exists(path)
        names = yield from reading_or_none(watched.children(path))
        stat = yield from reading(parent)
        if names is not None and stat is not None:
            return [NumberedChild(stat.czxid, name) for name in names]
        yield from make_again(watched.session, path)


def _with_parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(2, len(parts) + 1)]
