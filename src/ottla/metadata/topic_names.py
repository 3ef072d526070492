"""Which names a topic may have. Source: Topic.validate, Kafka 4.0."""

import re

NAME_LENGTH_MAX = 249
"""So that `<name>-<partition>.<32 hex>-delete` still fits into a file name of 255 bytes."""

DIRECTORY_STORE_NAME_LENGTH_MAX = 232
"""So that `<name>-<22 characters of its id>`, the directory of a topic's objects in a store that is
a directory, fits into a file name of 255 bytes."""

LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def fault_of(name: str) -> str | None:
    """Return what is wrong with a topic's name, or None."""
    if not name:
        return "the topic's name is empty"
    if name in (".", ".."):
        return f"a topic cannot be named {name!r}"
    if len(name) > NAME_LENGTH_MAX:
        return f"the topic's name is longer than {NAME_LENGTH_MAX} characters"
    if not LEGAL.fullmatch(name):
        return f"the topic's name {name!r} has characters other than a-z, A-Z, 0-9, '.', '_', '-'"
    return None
