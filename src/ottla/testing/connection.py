"""The blocking connection, where it was before it had a package of its own."""

from ottla.client.connection import Connection, NoSuchVersionError

__all__ = ["Connection", "NoSuchVersionError"]
