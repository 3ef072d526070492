"""What a kind of store implements: its operations as coroutines, tried once, without a deadline."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from ottla.base.object_store import Failure, FileSource, ObjectInfo, Page, Source, StoreError
from ottla.base.ports import Buffer


class OperationFailed(Exception):
    """An operation failed as `error` says."""

    def __init__(self, failure: Failure, message: str) -> None:
        super().__init__(message)
        self.error = StoreError(failure, message)


def check_size(source: FileSource, size_bytes: int) -> None:
    """Raise OperationFailed unless the file to upload is the one that was meant."""
    if size_bytes != source.size_bytes:
        raise OperationFailed(
            Failure.SOURCE, f"{source.path} has {size_bytes} bytes, not {source.size_bytes}"
        )


class Backend(Protocol):
    """A kind of store. Every method raises OperationFailed.

    To cancel a coroutine gives its operation up: from then on nothing is sent and no object
    appears, but for a call that was begun. The coroutine ends once the operation has ended, since
    its place in the pool is taken as long. Cancelled again, it no longer waits for that.
    """

    async def put(self, name: str, source: Source) -> None: ...

    async def put_if_absent(self, name: str, data: Buffer) -> None: ...

    async def get_range(self, name: str, start: int, length: int) -> Buffer: ...

    async def head(self, name: str) -> ObjectInfo: ...

    async def list_page(self, prefix: str, after: str, limit: int) -> Page: ...

    async def delete_many(self, names: Sequence[str]) -> Mapping[str, StoreError]: ...

    async def remove_unfinished(self, prefix: str) -> None: ...
