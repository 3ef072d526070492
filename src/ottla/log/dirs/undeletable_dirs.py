"""Errors that concern one partition directory, not the disk: permissions, mount points, races.

Examples are a file of another user, a mount point, or a process that writes into the directory
while it is removed. The log directory stays online. A partition directory that cannot be renamed
stays where it is, and no log of its name is created (`LogDir.unusable`); a removal that failed is
retried. Any other error takes the log directory offline.
"""

import errno
from typing import Final

DIRECTORY_SPECIFIC_ERRNOS: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.EBUSY, errno.ENOTEMPTY, errno.EEXIST}
)


class UndeletableDir(OSError):
    """A partition directory cannot be renamed or removed; its log directory stays online."""


def is_directory_specific(error: OSError) -> bool:
    """Return whether an error of a rename or removal concerns this directory only."""
    return error.errno in DIRECTORY_SPECIFIC_ERRNOS
