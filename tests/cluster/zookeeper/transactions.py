"""Every write to a ZooKeeper ensemble, in order, and by which session: from its servers' logs.

Znodes show the last write only; the logs show all, also those that were refused. What is on the
disks of most servers was done; a server that was killed may have one more, which nobody saw.

Source: FileTxnLog, SerializeUtils, and zookeeper.jute (TxnHeader, CreateTxn, DeleteTxn, SetDataTxn,
CheckVersionTxn, MultiTxn, Txn) of ZooKeeper 3.9.
"""

import json
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

CREATES = frozenset({1, 15, 19, 21})
"""create, create2, createContainer, createTTL: their records begin alike."""
DELETE, SET_DATA, CHECK, MULTI = 2, 5, 13, 14
ERROR = -1
CLOSE_SESSION = -11

_FILE_HEADER = struct.Struct(">4siq")
_ENTRY_HEADER = struct.Struct(">qi")
_TRANSACTION_HEADER = struct.Struct(">qiqqi")
_INT = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Write:
    """One changed znode. `data`: None = deleted."""

    path: str
    data: bytes | None


@dataclass(frozen=True, slots=True)
class Transaction:
    """What one session did at once.

    Fields: `writes`: empty where it was refused, or changed nothing. `is_refused`: some check
            of a multi failed. `is_end`: the session's end, with all its ephemeral znodes.
    """

    zxid: int
    session: int
    writes: tuple[Write, ...] = ()
    is_refused: bool = False
    is_end: bool = False


def transactions(directories: Sequence[Path]) -> list[Transaction]:
    """Return all that most of the servers with these data directories have in their logs."""
    found = [frozenset(_of_server(directory)) for directory in directories]
    counts = Counter(each for one in found for each in one)
    done = [each for each, count in counts.items() if 2 * count > len(directories)]
    return sorted(done, key=lambda each: each.zxid)


def _of_server(directory: Path) -> Iterator[Transaction]:
    for path in (directory / "version-2").glob("log.*"):
        yield from _of_file(path.read_bytes())


def _of_file(data: bytes) -> Iterator[Transaction]:
    position = _FILE_HEADER.size
    while len(data) - position >= _ENTRY_HEADER.size:
        _checksum, size = _ENTRY_HEADER.unpack_from(data, position)
        position += _ENTRY_HEADER.size
        # The rest is room that was made in advance, or is being written just now.
        if size == 0 or data[position + size : position + size + 1] != b"B":
            return
        yield _decoded(data[position : position + size])
        position += size + 1


def _decoded(entry: bytes) -> Transaction:
    session, _cxid, zxid, _time, kind = _TRANSACTION_HEADER.unpack_from(entry)
    body = entry[_TRANSACTION_HEADER.size :]
    parts = list(_parts(body)) if kind == MULTI else [(kind, body)]
    is_refused = any(each == ERROR for each, _ in parts)
    return Transaction(
        zxid=zxid,
        session=session,
        writes=() if is_refused else tuple(_writes(parts)),
        is_refused=is_refused,
        is_end=kind == CLOSE_SESSION,
    )


def _parts(body: bytes) -> Iterator[tuple[int, bytes]]:
    (count,) = _INT.unpack_from(body)
    position = _INT.size
    for _ in range(count):
        (kind,) = _INT.unpack_from(body, position)
        data, position = _buffer(body, position + _INT.size)
        yield kind, data


def _writes(parts: Iterable[tuple[int, bytes]]) -> Iterator[Write]:
    for kind, record in parts:
        if kind in CREATES or kind == SET_DATA:
            path, position = _buffer(record, 0)
            yield Write(path.decode(), _buffer(record, position)[0])
        elif kind == DELETE:
            yield Write(_buffer(record, 0)[0].decode(), None)


def _buffer(data: bytes, position: int) -> tuple[bytes, int]:
    """Return the bytes that are there, behind their length, and where they end."""
    (size,) = _INT.unpack_from(data, position)
    end = position + _INT.size + max(size, 0)
    return data[position + _INT.size : end], end


def replayed(done: Iterable[Transaction]) -> dict[str, bytes]:
    """Return what the znodes hold that somebody wrote, by path."""
    held: dict[str, bytes] = {}
    for each in done:
        for write in each.writes:
            if write.data is None:
                held.pop(write.path, None)
            else:
                held[write.path] = write.data
    return held


# -- who rules --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reign:
    """One controller: its epoch, the session by which it rules, and its election."""

    epoch: int
    session: int
    zxid: int
    broker_id: int


RULERS_OWN = (
    "/brokers/topics/",
    "/config/topics/",
    "/config/brokers/",
    "/config/changes/",
    "/latest_producer_id_block",
    "/ottla/deletions/",
)
"""What nobody but the controller writes, where no tool acts through znodes."""


ALWAYS_THERE = frozenset({"/latest_producer_id_block"})


def reigns(done: Iterable[Transaction], chroot: str = "") -> list[Reign]:
    """Return the elections, in order."""
    return [reign for each in done if (reign := _election(each, chroot)) is not None]


def check_only_rulers_write(done: Iterable[Transaction], chroot: str = "") -> int:
    """Check that all was written by whoever ruled at that moment, under its epoch.

    Returns how many writes were checked.
    """
    reign: Reign | None = None
    count = 0
    for each in done:
        elected = _election(each, chroot)
        if elected is not None:
            assert elected.epoch == (reign.epoch + 1 if reign else 1), (reign, elected)
            reign = elected
        for write in each.writes:
            path = write.path.removeprefix(chroot)
            # Some parents are always there: any broker makes them, empty.
            if not path.startswith(RULERS_OWN) or (path in ALWAYS_THERE and not write.data):
                continue
            assert reign is not None, f"{write} before the first election"
            assert each.session == reign.session, f"{write} by a zombie: {each}, under {reign}"
            if path.endswith("/state") and write.data:
                state = json.loads(write.data)
                assert state["controller_epoch"] == reign.epoch, f"{write} under {reign}"
            count += 1
    return count


def _election(transaction: Transaction, chroot: str) -> Reign | None:
    by_path = {write.path.removeprefix(chroot): write.data for write in transaction.writes}
    controller, epoch = by_path.get("/controller"), by_path.get("/controller_epoch")
    if not controller or not epoch:
        return None
    broker_id = json.loads(controller)["brokerid"]
    return Reign(int(epoch), transaction.session, transaction.zxid, broker_id)
