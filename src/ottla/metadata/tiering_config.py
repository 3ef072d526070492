"""What a topic's configuration asks for its remote storage: three families of names, one target.

- KIP-405: `remote.storage.enable`.
- The draft of KIP-950: `remote.log.disable.policy`, retain or delete, for the time when remote
  storage is turned off.
- KIP-950 as Kafka 3.9 has it: `remote.log.copy.disable` stops copies while `remote.storage.enable`
  stays true, `remote.log.delete.on.disable` is the policy delete.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from ottla.base.errors import ApiError, Error
from ottla.metadata.config_def import ConfigError, parse_value
from ottla.metadata.topic_config import (
    COPY_DISABLE,
    DEFINITIONS,
    DELETE_ON_DISABLE,
    DELETE_POLICY,
    DISABLE_POLICY,
    REMOTE_STORAGE,
    RETAIN_POLICY,
)

TIERING_NAMES: Final = (REMOTE_STORAGE, COPY_DISABLE, DELETE_ON_DISABLE, DISABLE_POLICY)


class Target(Enum):
    """What a topic's configuration asks for."""

    TIERED = "tiered"
    """Segments are copied."""
    RETAIN = "retain"
    """None are copied; remote ones are read until they expire."""
    DELETE = "delete"
    """None are copied, and remote ones are deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TieringConfig:
    """The effective values; of two that mean the same, it does not matter which is set.

    Fields: `policy`: RETAIN_POLICY or DELETE_POLICY; `names_policy`: it is set, by its own name.
    """

    enable: bool
    copy_disable: bool
    policy: str
    names_policy: bool

    @property
    def target(self) -> Target:
        """Return what is asked for. The policy matters only where remote storage is off."""
        if self.enable:
            return Target.RETAIN if self.copy_disable else Target.TIERED
        return Target.DELETE if self.policy == DELETE_POLICY else Target.RETAIN

    def means(self, other: "TieringConfig") -> bool:
        """Tell whether another configuration has the same meaning."""
        own = self.enable, self.copy_disable, self.policy
        return own == (other.enable, other.copy_disable, other.policy)


def tiering_config(overrides: Mapping[str, str]) -> TieringConfig:
    """Return what a topic's overrides say.

    Raises: ConfigError for a value that cannot be parsed; ApiError(INVALID_REQUEST) for two names
    that contradict each other.
    """
    policy = _value(overrides, DISABLE_POLICY)
    deletes = _value(overrides, DELETE_ON_DISABLE)
    if policy is not None and deletes is not None and (policy == DELETE_POLICY) != deletes:
        raise ApiError(
            Error.INVALID_REQUEST,
            f"{DISABLE_POLICY}={policy} and {DELETE_ON_DISABLE}={str(deletes).lower()} contradict"
            " each other: set one of them, and remove the other one.",
        )
    return TieringConfig(
        enable=bool(_value(overrides, REMOTE_STORAGE)),
        copy_disable=bool(_value(overrides, COPY_DISABLE)),
        policy=policy or (DELETE_POLICY if deletes else RETAIN_POLICY),
        names_policy=policy is not None,
    )


def tiering_config_if_valid(overrides: Mapping[str, str]) -> TieringConfig | None:
    """Return what overrides say, None for those that only a tool can have written."""
    try:
        return tiering_config(overrides)
    except (ConfigError, ApiError):
        return None


def _value(overrides: Mapping[str, str], name: str) -> Any:
    text = overrides.get(name)
    return None if text is None else parse_value(DEFINITIONS.keys[name], text)
