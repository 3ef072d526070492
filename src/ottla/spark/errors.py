"""What goes wrong between Spark and a cluster, in words for the user of a query."""


class OptionError(ValueError):
    """An option, a schema or a mode that makes no sense: its name, its value, what was expected."""


class DataLossError(Exception):
    """Records that the query asked for are gone; `failOnDataLoss=false` goes on without them."""


class ClusterError(Exception):
    """The cluster did not answer, or refused what a query needs: then `code` says why."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class WriteError(Exception):
    """Rows could not be written."""
