"""A store that notes what succeeded, a line of JSON an object, for tests to assert on.

    {"time_ms": 1764154920123, "node": 2, "event": "put", "object": "t-…/0/…-….log", "bytes": 512}

`event`: put, get or delete. `bytes`: written or read; 0 of a deletion. A line is written after the
operation succeeded and before its caller learns of it, so a test that has seen the effect finds the
line. What failed, or was cancelled before its answer came, is not noted.

Source: the listeners of Kafka's LocalTieredStorage, which have the same use.
"""

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ottla.base.object_store import FileSource, ObjectInfo, Page, Source, StoreError
from ottla.base.ports import Buffer
from ottla.stores.backend import Backend


class EventLog:
    """The file of one node. Raises: OSError where it cannot be opened."""

    def __init__(self, directory: str, node_id: int) -> None:
        os.makedirs(directory, exist_ok=True)
        self._node = node_id
        self._path = Path(directory) / f"{node_id}.jsonl"
        self._append(b"")

    def note(self, event: str, name: str, size_bytes: int = 0) -> None:
        """Append a line."""
        line = {
            "time_ms": time.time_ns() // 1_000_000,
            "node": self._node,
            "event": event,
            "object": name,
            "bytes": size_bytes,
        }
        self._append(json.dumps(line).encode() + b"\n")

    def _append(self, data: bytes) -> None:
        # One write a line, in append mode: a process that is killed leaves whole lines.
        with self._path.open("ab", buffering=0) as file:
            file.write(data)


class RecordedBackend:
    """Another backend, whose puts, reads and deletions are noted."""

    def __init__(self, backend: Backend, log: EventLog) -> None:
        self._backend = backend
        self._log = log

    async def put(self, name: str, source: Source) -> None:
        await self._backend.put(name, source)
        size = source.size_bytes if isinstance(source, FileSource) else len(source)
        self._log.note("put", name, size)

    async def put_if_absent(self, name: str, data: Buffer) -> None:
        await self._backend.put_if_absent(name, data)
        self._log.note("put", name, len(data))

    async def get_range(self, name: str, start: int, length: int) -> Buffer:
        data = await self._backend.get_range(name, start, length)
        self._log.note("get", name, len(data))
        return data

    async def head(self, name: str) -> ObjectInfo:
        return await self._backend.head(name)

    async def list_page(self, prefix: str, after: str, limit: int) -> Page:
        return await self._backend.list_page(prefix, after, limit)

    async def delete_many(self, names: Sequence[str]) -> Mapping[str, StoreError]:
        failed = await self._backend.delete_many(names)
        for name in names:
            if name not in failed:
                self._log.note("delete", name)
        return failed

    async def remove_unfinished(self, prefix: str) -> None:
        await self._backend.remove_unfinished(prefix)
