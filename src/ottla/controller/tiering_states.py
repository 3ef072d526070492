"""The lifecycle of a topic's remote storage, as a table.

All transitions are here, and only here. A standing is the state and the policy of the metadata
(`metadata.tiering.TopicTiering`). Each transition into ENABLED and DISABLING raises the tiered
epoch, so that what belongs to an earlier one is recognized.

Deleting the topic ends it from any standing (`controller.deletion`).
Source: the states of KIP-950's draft. It leaves open what a second change of the policy does.
"""

from enum import Enum
from typing import Final

from ottla.metadata.tiering import DisablePolicy, TieringState, TopicTiering
from ottla.metadata.tiering_config import Target


class Standing(Enum):
    """What became of a topic's remote storage so far."""

    NEVER_TIERED = "NEVER_TIERED"
    ENABLED = "ENABLED"
    DISABLING_RETAIN = "DISABLING_RETAIN"
    DISABLING_DELETE = "DISABLING_DELETE"
    DISABLED_RETAIN = "DISABLED_RETAIN"
    DISABLED_DELETE = "DISABLED_DELETE"

    @property
    def state(self) -> TieringState | None:
        """Return the state in the metadata, None = there is none."""
        return _PARTS[self][0]

    @property
    def policy(self) -> DisablePolicy:
        """Return the policy in the metadata."""
        return _PARTS[self][1]

    @property
    def is_disabling(self) -> bool:
        """Tell whether brokers have to acknowledge."""
        return self.state is TieringState.DISABLING


class Refusal(Enum):
    """Why a configuration cannot be followed now."""

    IN_PROGRESS = "IN_PROGRESS"
    """Brokers have not acknowledged the last change yet."""
    DELETED = "DELETED"
    """What is to be retained was deleted."""


_PARTS: Final = {
    Standing.NEVER_TIERED: (None, DisablePolicy.NONE),
    Standing.ENABLED: (TieringState.ENABLED, DisablePolicy.NONE),
    Standing.DISABLING_RETAIN: (TieringState.DISABLING, DisablePolicy.RETAIN),
    Standing.DISABLING_DELETE: (TieringState.DISABLING, DisablePolicy.DELETE),
    Standing.DISABLED_RETAIN: (TieringState.DISABLED, DisablePolicy.RETAIN),
    Standing.DISABLED_DELETE: (TieringState.DISABLED, DisablePolicy.DELETE),
}
_STANDINGS: Final = {parts: standing for standing, parts in _PARTS.items()}

_S, _R, _T = Standing, Refusal, Target

BY_CONFIGURATION: Final[dict[Standing, dict[Target, Standing | Refusal]]] = {
    _S.NEVER_TIERED: {
        _T.TIERED: _S.ENABLED,
        _T.RETAIN: _S.NEVER_TIERED,
        _T.DELETE: _S.NEVER_TIERED,
    },
    _S.ENABLED: {
        _T.TIERED: _S.ENABLED,
        _T.RETAIN: _S.DISABLING_RETAIN,
        _T.DELETE: _S.DISABLING_DELETE,
    },
    _S.DISABLING_RETAIN: {
        _T.TIERED: _R.IN_PROGRESS,
        _T.RETAIN: _S.DISABLING_RETAIN,
        _T.DELETE: _R.IN_PROGRESS,
    },
    _S.DISABLING_DELETE: {
        _T.TIERED: _R.IN_PROGRESS,
        _T.RETAIN: _R.IN_PROGRESS,
        _T.DELETE: _S.DISABLING_DELETE,
    },
    _S.DISABLED_RETAIN: {
        _T.TIERED: _S.ENABLED,
        _T.RETAIN: _S.DISABLED_RETAIN,
        _T.DELETE: _S.DISABLING_DELETE,
    },
    _S.DISABLED_DELETE: {
        _T.TIERED: _S.ENABLED,
        _T.RETAIN: _R.DELETED,
        _T.DELETE: _S.DISABLED_DELETE,
    },
}
"""Where a configuration leads, by what it asks for."""

BY_ACKNOWLEDGEMENT: Final[dict[Standing, Standing]] = {
    _S.DISABLING_RETAIN: _S.DISABLED_RETAIN,
    _S.DISABLING_DELETE: _S.DISABLED_DELETE,
}
"""Where the last acknowledgement of brokers leads."""

assert set(BY_CONFIGURATION) == set(_PARTS) == set(Standing)  # No standing without its row,
assert all(set(row) == set(Target) for row in BY_CONFIGURATION.values())  # none with a gap,
assert set(BY_ACKNOWLEDGEMENT) == {each for each in Standing if each.is_disabling}
assert len(_STANDINGS) == len(Standing)


def standing_of(tiering: TopicTiering | None) -> Standing:
    """Return the standing of a topic's tiering state; None = it has none."""
    if tiering is None:
        return Standing.NEVER_TIERED
    return _STANDINGS[tiering.state, tiering.policy]
