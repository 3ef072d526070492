"""Remote storage of topics that are configured through znodes.

A tool writes the configuration alone. The controller checks it as it checks a request, and changes
the topic's tiering state (`ottla.controller.zookeeper.observed_tiering`); what it would refuse has
no effect, and its log says why.
"""

from collections.abc import Mapping

from ottla.metadata.tiering_config import tiering_config, tiering_config_if_valid


def check_tiering(values: Mapping[str, str]) -> None:
    """Refuse values that contradict each other. Raises: ApiError."""
    tiering_config(values)


def note_remote_storage(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Print who turns remote storage on or off, where that may change."""
    asked, wanted = tiering_config_if_valid(before), tiering_config_if_valid(after)
    if wanted is not None and (asked is None or asked.target is not wanted.target):
        print(
            "Note: remote storage is turned on or off once the controller has checked this;"
            " 'ottla tier describe' shows the result."
        )
