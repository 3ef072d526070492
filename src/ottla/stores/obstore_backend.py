"""Stores behind the library obstore: S3 and what speaks its protocol, and memory.

The library's own retries are off: they would repeat a conditional write whose response was lost and
report that an object exists which it wrote itself, and a caller could not bound them.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import obstore
from obstore import exceptions
from obstore.store import MemoryStore, S3Store

from ottla.base.object_store import Failure, FileSource, ObjectInfo, Page, Source, StoreError
from ottla.base.ports import Buffer
from ottla.stores.backend import OperationFailed, check_size
from ottla.stores.uri import S3Uri, profile_settings

T = TypeVar("T")

CONNECT_SECONDS_MAX: Final = 5
REQUEST_SECONDS_MAX: Final = 60
"""One HTTP request, of which an upload has many: a part is at most `PART_BYTES`."""

PART_BYTES: Final = 8 << 20
PARTS_UNDER_WAY_MAX: Final = 3
"""With `PART_BYTES` the memory of one upload: 24 MiB."""

SINGLE_DELETES_UNDER_WAY_MAX: Final = 16

_FAILURES: Final[tuple[tuple[type[BaseException], Failure], ...]] = (
    (FileNotFoundError, Failure.NOT_FOUND),
    (exceptions.AlreadyExistsError, Failure.EXISTS),
    (exceptions.PermissionDeniedError, Failure.DENIED),
    (exceptions.UnauthenticatedError, Failure.DENIED),
    (exceptions.InvalidPathError, Failure.INVALID),
    (exceptions.NotSupportedError, Failure.INVALID),
    (exceptions.PreconditionError, Failure.EXISTS),
)


def s3_store(uri: S3Uri) -> S3Store:
    """Return the library's store. Raises: StoreUriError for a profile that is not there."""
    settings: dict[str, Any] = {} if uri.profile is None else dict(profile_settings(uri.profile))
    if uri.region is not None:
        settings["region"] = uri.region
    if uri.endpoint is not None:
        settings["endpoint"] = uri.endpoint
    return S3Store(
        uri.bucket,
        prefix=uri.prefix or None,
        virtual_hosted_style_request=uri.virtual_hosted_style,
        client_options={
            "allow_http": uri.endpoint is not None and uri.endpoint.startswith("http://"),
            "connect_timeout": timedelta(seconds=CONNECT_SECONDS_MAX),
            "timeout": timedelta(seconds=REQUEST_SECONDS_MAX),
        },
        retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=REQUEST_SECONDS_MAX)},
        **settings,
    )


class ObstoreBackend:
    """Operations of one of the library's stores."""

    def __init__(self, store: S3Store | MemoryStore) -> None:
        self._store: Final[Any] = store

    async def put(self, name: str, source: Source) -> None:
        """Write or replace an object; a large file in parts."""
        if isinstance(source, FileSource):
            await asyncio.to_thread(_check, source)
            content: Any = Path(source.path)
        else:
            content = bytes(source) if isinstance(source, bytearray) else source
        await _tried(
            name,
            obstore.put_async(
                self._store,
                name,
                content,
                chunk_size=PART_BYTES,
                max_concurrency=PARTS_UNDER_WAY_MAX,
            ),
        )

    async def put_if_absent(self, name: str, data: Buffer) -> None:
        """Write an object unless it exists (If-None-Match)."""
        await _tried(name, obstore.put_async(self._store, name, bytes(data), mode="create"))

    async def get_range(self, name: str, start: int, length: int) -> Buffer:
        """Read a range."""
        try:
            data = await obstore.get_range_async(self._store, name, start=start, length=length)
        except Exception as error:
            failed = _failure(name, error)
            if failed.error.failure is Failure.NOT_FOUND:
                raise failed from None
            # Stores report a range that begins behind the end in different ways.
            size = (await self.head(name)).size_bytes
            if start >= size:
                raise OperationFailed(
                    Failure.INVALID, f"{name} has {size} bytes, not {start}"
                ) from None
            raise failed from None
        return memoryview(data)

    async def head(self, name: str) -> ObjectInfo:
        """Return size and time."""
        return _info(await _tried(name, obstore.head_async(self._store, name)))

    async def list_page(self, prefix: str, after: str, limit: int) -> Page:
        """List objects; S3 and the library's memory both list in the order of names."""
        stream = obstore.list(
            self._store, prefix or None, offset=after or None, chunk_size=limit + 1
        )
        chunk: Sequence[Any] = ()
        try:
            chunk = await anext(aiter(stream))
        except StopAsyncIteration:
            pass
        except Exception as error:
            raise _failure(prefix, error) from None
        found = sorted((_info(each) for each in chunk), key=lambda info: info.name)
        return Page(tuple(found[:limit]), is_last=len(found) <= limit)

    async def delete_many(self, names: Sequence[str]) -> Mapping[str, StoreError]:
        """Delete objects in one request; one by one where that failed, to find out which."""
        try:
            await obstore.delete_async(self._store, list(names))
        except Exception:
            failed: dict[str, StoreError] = {}
            places = asyncio.Semaphore(SINGLE_DELETES_UNDER_WAY_MAX)
            await asyncio.gather(*(self._delete(name, places, failed) for name in names))
            return {name: failed[name] for name in names if name in failed}
        return {}

    async def remove_unfinished(self, prefix: str) -> None:
        """Do nothing: the parts of a large file whose upload broke off are the bucket's to remove.

        The library does not list them; a lifecycle rule of the bucket deletes them.
        """

    async def _delete(
        self, name: str, places: asyncio.Semaphore, failed: dict[str, StoreError]
    ) -> None:
        async with places:
            try:
                await obstore.delete_async(self._store, name)
            except Exception as error:
                found = _failure(name, error).error
                if found.failure is not Failure.NOT_FOUND:
                    failed[name] = found


def _check(source: FileSource) -> None:
    """Raise OperationFailed unless the file is there, and is the one that was meant."""
    try:
        check_size(source, Path(source.path).stat().st_size)
    except OSError as error:
        raise OperationFailed(Failure.SOURCE, f"{source.path}: {error.strerror}") from None


def _info(meta: Any) -> ObjectInfo:
    modified_ms = int(meta["last_modified"].timestamp() * 1000)
    return ObjectInfo(meta["path"], meta["size"], modified_ms)


def _failure(name: str, error: Exception) -> OperationFailed:
    for kind, failure in _FAILURES:
        if isinstance(error, kind):
            return OperationFailed(failure, f"{name}: {_first_line(error)}")
    return OperationFailed(Failure.UNAVAILABLE, f"{name}: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    """Return the error in one line; the library appends the request and its debug form."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


async def _tried(name: str, operation: Awaitable[T]) -> T:
    try:
        return await operation
    except Exception as error:
        raise _failure(name, error) from None
