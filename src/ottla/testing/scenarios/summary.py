"""Adds up the results of many seeds: how many count, their medians, and the marks.

A seed counts if it kept its promises through at least 120 virtual seconds of faults and at least
500 acknowledged writes. Seeds without faults are counted apart: they show what fails by itself.
"""

from collections import Counter
from dataclasses import dataclass, field
from statistics import median

from ottla.testing.scenarios.report import Report

ROUGH_MS_MIN = 120_000
ACKNOWLEDGED_MIN = 500


def counts(report: Report) -> bool:
    """Tell whether a seed counts; see the module."""
    long_enough = report.rough_ms >= ROUGH_MS_MIN and report.acknowledged >= ACKNOWLEDGED_MIN
    return report.is_proof and long_enough


@dataclass(slots=True)
class Summary:
    """Reports, added up."""

    counted: list[Report] = field(default_factory=list)
    faultless: list[Report] = field(default_factory=list)
    broken: list[int] = field(default_factory=list)
    inconclusive: list[int] = field(default_factory=list)
    """Seeds that broke no promise and do not count: too little happened in them."""
    groups: Counter[str] = field(default_factory=Counter)
    """What consumer groups and readers did in all seeds, by name."""
    seeds_with_groups: int = 0
    marks: Counter[str] = field(default_factory=Counter)
    seeds_with: Counter[str] = field(default_factory=Counter)

    def add(self, report: Report) -> None:
        """Take one report in."""
        self.groups.update(report.groups)
        self.seeds_with_groups += bool(report.groups)
        self.marks.update(report.marks)
        self.seeds_with.update({name for name, times in report.marks.items() if times})
        if not report.is_kept:
            self.broken.append(report.seed)
        elif not counts(report):
            self.inconclusive.append(report.seed)
        elif report.faultless:
            self.faultless.append(report)
        else:
            self.counted.append(report)

    @property
    def seeds(self) -> int:
        """How many were played."""
        kinds = (self.counted, self.faultless, self.broken, self.inconclusive)
        return sum(len(kind) for kind in kinds)

    def median(self, name: str) -> float:
        """Return the median of a field over the seeds that count; 0 without any."""
        return median(getattr(each, name) for each in self.counted) if self.counted else 0

    def lines(self) -> list[str]:
        """Return what is printed at the end."""
        inconclusive = f" ({_some(self.inconclusive)})" if self.inconclusive else ""
        lines = [
            f"{self.seeds} seeds: {len(self.counted)} count, {len(self.faultless)} without faults, "
            f"{len(self.inconclusive)} prove nothing{inconclusive}, "
            f"{len(self.broken)} broke a promise",
            f"  medians   {self.median('acknowledged'):g} acknowledged writes, "
            f"{self.median('leader_changes'):g} leader changes, "
            f"{self.median('controller_changes'):g} of the quorum's, "
            f"{self.median('wall_seconds'):.1f} s a seed",
            f"  virtual   {sum(each.virtual_ms for each in self.counted) / 3_600_000:.1f} hours",
            f"  groups    in {self.seeds_with_groups} seeds: "
            + (", ".join(f"{times} {name}" for name, times in self.groups.items()) or "none"),
            "  marks     (times, in seeds)",
        ]
        lines += [
            f"    {name:<28} {times:>8} {self.seeds_with[name]:>6}"
            for name, times in sorted(self.marks.items())
        ]
        if self.broken:
            lines.append(f"  broken    {_some(self.broken)}")
        return lines


def _some(seeds: list[int], most: int = 20) -> str:
    text = ", ".join(map(str, seeds[:most]))
    return text if len(seeds) <= most else f"{text}, …"
