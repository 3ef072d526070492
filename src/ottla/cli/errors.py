"""The two ways in which a command ends badly, besides a bug.

Both messages are one line that names the thing and what was expected; where that line is one of
Kafka's, which scripts compare, the reason has a second one.
"""

NAMED_MAX = 100
"""So much of a value that is too long to be read is told."""


class CommandError(Exception):
    """Refused or failed: exit code 1."""


class UsageError(Exception):
    """Asked wrongly: exit code 2.

    `command`: whose help tells more, where that is a part of a command, as `ottla cluster list`.
    """

    command: str | None = None


def shown(value: str) -> str:
    """Return a value as messages name it: in quotes where it could not be seen otherwise."""
    return value if value and value.isprintable() and value == value.strip() else repr(value)


def shortened(value: str) -> str:
    """Return a value, cut where it is too long to be read."""
    if len(value) <= 2 * NAMED_MAX:
        return value
    return f"{value[:NAMED_MAX]}... ({len(value)} characters)"


def os_reason(error: OSError) -> str:
    """Return what the operating system refused, and where: `/data: no space left on device`."""
    reason = (error.strerror or str(error)).lower()
    where = error.filename2 or error.filename
    return reason if where is None else f"{where}: {reason}"
