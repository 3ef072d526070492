"""Creates the logs of new partitions in several turns of the loop, before a change is applied."""

import logging
from collections.abc import Callable

from ottla.base.pending import Pending, completed
from ottla.base.turns import Turns
from ottla.broker.core import Broker
from ottla.metadata.delta import ClusterDelta

log = logging.getLogger(__name__)


class LogCreation:
    """See `ottla.broker.logs.log_creation`. `broker`: None until its logs are loaded."""

    def __init__(self, turns: Turns, broker: Callable[[], Broker | None]) -> None:
        self._turns = turns
        self._broker = broker
        self._stopped: Pending[None] = Pending()

    def prepare(self, delta: ClusterDelta) -> Pending[None]:
        """Create the logs of a change; the promise is kept once it can be applied."""
        broker = self._broker()
        steps = None if broker is None else broker.replicas.prepare(delta)
        if steps is None:
            return completed(None)
        return self._turns.run_own(steps, gone=self._stopped).map(_log_failure)

    def stop(self) -> None:
        """Stop: logs are closed next."""
        self._stopped.complete(None)


def _log_failure(result: Exception | None) -> None:
    if result is not None:
        # Applying the change fails in the same way, and is retried.
        log.error(
            "creating the logs of new partitions failed; retrying when the metadata change "
            "is applied",
            exc_info=result,
        )
