"""Remote storage of topics that are configured through znodes.

A tool writes the configuration alone. The controller checks it as it checks a request, and adds the
topic's tiering state (`ottla.controller.zookeeper.observed_tiering`); what it would refuse has no
effect, and its log says why.
"""

from collections.abc import Mapping
from contextlib import suppress

from ottla.cli.errors import CommandError
from ottla.metadata.config_def import ConfigError
from ottla.metadata.topic_config import REMOTE_STORAGE, wants_remote_storage


def check_stays(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Refuse to turn remote storage off: only a broker can say whether that is possible."""
    if _wants(before) and not _wants(after):
        raise CommandError(
            f"{REMOTE_STORAGE} can be turned off through a broker only: use --bootstrap-server"
        )


def note_remote_storage(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Print who enables remote storage, where it was off."""
    if _wants(after) and not _wants(before):
        print(
            f"Note: {REMOTE_STORAGE} takes effect once the controller has checked it;"
            " 'ottla tier describe' shows the result."
        )


def _wants(values: Mapping[str, str]) -> bool:
    """Tell whether values ask for remote storage; what another tool wrote may be invalid."""
    with suppress(ConfigError):
        return wants_remote_storage(values)
    return False
