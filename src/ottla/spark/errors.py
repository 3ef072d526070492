"""The errors that a query reports to its user."""


class OptionError(ValueError):
    """An invalid option, schema or mode: its name, its value, what was expected."""


class DataLossError(Exception):
    """Requested records no longer exist; `failOnDataLoss=false` continues without them."""


class StreamOffsetError(ValueError):
    """An offset in a checkpoint that a stream cannot continue from: what was expected instead."""


class ClusterError(Exception):
    """The cluster did not respond (`code` 0), or responded with the error `code`."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class WriteError(Exception):
    """Rows could not be written."""


class RemoteStorageError(Exception):
    """The object store could not be read: it does not answer, refuses, or lacks an object."""
