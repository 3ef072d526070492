"""The two ways in which a command ends badly, besides a bug.

Both messages are one line that names the thing and what was expected.
"""


class CommandError(Exception):
    """Refused or failed: exit code 1."""


class UsageError(Exception):
    """Asked wrongly: exit code 2."""


def os_reason(error: OSError) -> str:
    """Return what the operating system refused, and where: `/data: no space left on device`."""
    reason = (error.strerror or str(error)).lower()
    where = error.filename2 or error.filename
    return reason if where is None else f"{where}: {reason}"
