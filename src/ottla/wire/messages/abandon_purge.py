"""AbandonPurge (key 1010): give up the purge of a deleted topic's objects in remote storage.

Ottla's own, for its clients: where the object store is gone for good, or no broker uses it any
more, the deletion would stay pending for ever.
"""

from ottla.base.ids import NO_UUID, Uuid
from ottla.wire.schema import BOOL, INT16, INT32, INT64, STRING, UUID, field, message


@message(key=1010, versions="0", flexible="0+")
class AbandonPurgeRequest:
    topic_id: Uuid = field(UUID)
    """Of the deleted topic. Not its name: others may have had it, or have it now."""
    validate_only: bool = field(BOOL, default=False)
    """Only answer what would be abandoned."""


@message(key=1010, versions="0", flexible="0+")
class AbandonPurgeResponse:
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    name: str = field(STRING, default="")
    topic_id: Uuid = field(UUID, default=NO_UUID)
    was_abandoned: bool = field(BOOL, default=False)
    """It had been abandoned before; what follows was known then."""
    segments_left: int = field(INT32, default=-1)
    """Remote segments that may be left in the store, as far as reported; -1 = none was."""
    bytes_left: int = field(INT64, default=-1)
