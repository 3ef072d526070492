"""Which errors of a folder say nothing of the disk that it is on, and what becomes of the folder.

A file in it that is another user's, a mount point, somebody who writes into it while it goes: each
concerns this one folder, and its log directory goes on. A folder that cannot be moved stays where
it is, under a name of which no log is made (`LogDir.unusable`); one that cannot be removed is tried
again. All other errors are the disk's, and take the log directory offline.
"""

import errno
from typing import Final

DIRECTORY_SPECIFIC_ERRNOS: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.EBUSY, errno.ENOTEMPTY, errno.EEXIST}
)


class UndeletableDir(OSError):
    """A folder stays where it is, for a reason of its own: its directory is well."""


def is_directory_specific(error: OSError) -> bool:
    """Tell whether what a folder could not be moved or removed for is its own affair."""
    return error.errno in DIRECTORY_SPECIFIC_ERRNOS
