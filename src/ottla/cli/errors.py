"""The two ways in which a command ends badly, besides a bug.

Both messages are one line that names the thing and what was expected.
"""


class CommandError(Exception):
    """Refused or failed: exit code 1."""


class UsageError(Exception):
    """Asked wrongly: exit code 2."""
