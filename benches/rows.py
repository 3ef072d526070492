"""The lines of the tables that `scale.py` prints."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table; `met` None = there is no target."""

    name: str
    measured: str
    target: str = ""
    met: bool | None = None
