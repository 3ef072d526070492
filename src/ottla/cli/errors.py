"""The two errors that end a command.

The message is one line: the value and what was expected. Where that line is Kafka's own text, which
scripts compare, the cause follows on a second line.
"""

INTERRUPTED = 130
"""The exit code after Ctrl-C."""

NAMED_MAX = 100
"""Characters shown of a value that is too long to read."""


class CommandError(Exception):
    """Refused or failed: exit code 1."""


class UsageError(Exception):
    """Wrong usage: exit code 2.

    `command`: the sub-command whose help applies, such as `ottla cluster list`.
    """

    command: str | None = None


def shown(value: str) -> str:
    """Return a value for a message: quoted if it is empty or has invisible characters."""
    return value if value and value.isprintable() and value == value.strip() else repr(value)


def shortened(value: str) -> str:
    """Return a value, truncated if it is too long to read."""
    if len(value) <= 2 * NAMED_MAX:
        return value
    return f"{value[:NAMED_MAX]}... ({len(value)} characters)"


def os_reason(error: OSError) -> str:
    """Return the path and the system's error: `/data: no space left on device`."""
    reason = (error.strerror or str(error)).lower()
    where = error.filename2 or error.filename
    return reason if where is None else f"{where}: {reason}"
