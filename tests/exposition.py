"""A strict reader of Prometheus' text format 0.0.4, for tests, and of what the docs list.

It refuses what Prometheus would take with a shrug: a family without help or type, samples outside
their family, the same sample twice, counters that are negative or not called `_total`, histograms
whose buckets do not grow, lack +Inf, or disagree with their count.
"""

import math
import re
from dataclasses import dataclass, field
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs" / "metrics.md"

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(,|$)')
ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}

Labels = frozenset[tuple[str, str]]


@dataclass(slots=True)
class Parsed:
    """One family; `samples` by the sample's own name and labels."""

    kind: str
    help: str
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)


class Scrape:
    """A whole text, read and checked."""

    def __init__(self, text: str) -> None:
        assert text.endswith("\n")
        self.families: dict[str, Parsed] = {}
        self._open = ""
        self._help: tuple[str, str] | None = None
        for line in text.split("\n")[:-1]:
            self._line(line)
        assert self._help is None, f"a help without its type: {self._help}"
        for name, family in self.families.items():
            if family.kind == "histogram":
                check_histogram(name, family)

    def value(self, name: str, /, **labels: str) -> float:
        """Return one sample; 0 where its family has none with these labels."""
        base = name.removesuffix("_count").removesuffix("_sum")
        family = self.families[name] if name in self.families else self.families[base]
        return family.samples.get((name, frozenset(labels.items())), 0)

    def labels(self, name: str) -> set[Labels]:
        """Return the labels of a family's samples."""
        return {labels for _, labels in self.families[name].samples}

    def _line(self, line: str) -> None:
        if line.startswith("# HELP "):
            assert self._help is None
            name, _, text = line.removeprefix("# HELP ").partition(" ")
            assert text, f"no help: {line}"
            self._help = (name, text)
        elif line.startswith("# TYPE "):
            name, kind = line.removeprefix("# TYPE ").split(" ")
            assert self._help is not None
            assert self._help[0] == name
            assert NAME.fullmatch(name)
            assert kind in ("counter", "gauge", "histogram"), line
            assert name not in self.families, f"{name} is there twice"
            assert (kind == "counter") == name.endswith("_total"), line
            self.families[name] = Parsed(kind, self._help[1])
            self._open, self._help = name, None
        else:
            self._sample(line)

    def _sample(self, line: str) -> None:
        match = SAMPLE.fullmatch(line)
        assert match, f"not a sample: {line!r}"
        assert self._help is None
        name, labels, number = match[1], parse_labels(match[2] or ""), float(match[3])
        family = self.families[self._open]
        suffixes = ("_bucket", "_sum", "_count") if family.kind == "histogram" else ("",)
        assert name in [self._open + suffix for suffix in suffixes], f"{line} in {self._open}"
        assert (name, labels) not in family.samples, f"{line} is there twice"
        assert not math.isnan(number)
        assert family.kind == "gauge" or number >= 0, line
        family.samples[name, labels] = number


def parse_labels(text: str) -> Labels:
    """Return the labels between braces."""
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = LABEL.match(text, at)
        assert match, f"not labels: {text!r}"
        assert match[1] not in found
        found[match[1]] = re.sub(r"\\.", lambda escape: ESCAPES[escape[0]], match[2])
        at = match.end()
    return frozenset(found.items())


def check_histogram(name: str, family: Parsed) -> None:
    """Raise AssertionError unless each of its series is whole."""
    series: dict[Labels, list[tuple[float, float]]] = {}
    for (sample, labels), value in family.samples.items():
        if sample == f"{name}_bucket":
            (bound,) = [text for label, text in labels if label == "le"]
            rest = frozenset(each for each in labels if each[0] != "le")
            series.setdefault(rest, []).append((float(bound), value))
    ends = {labels for sample, labels in family.samples if sample != f"{name}_bucket"}
    assert ends == set(series)
    for labels, buckets in series.items():
        bounds, counts = zip(*buckets, strict=True)
        assert list(bounds) == sorted(set(bounds))
        assert list(counts) == sorted(counts)
        assert bounds[-1] == math.inf
        assert counts[-1] == family.samples[f"{name}_count", labels]
        assert (family.samples[f"{name}_sum", labels] > 0) <= (counts[-1] > 0)


def documented(*, besides: str) -> set[str]:
    """Return the names of all families that the docs list, but for those of one section."""
    sections = DOCS.read_text(encoding="utf-8").split("\n## ")
    kept = [each for each in sections if not each.startswith(f"{besides}\n")]
    assert len(kept) == len(sections) - 1, f"no section {besides}"
    rows = [line for each in kept for line in each.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([a-z_]+)`", row.split("|")[1])}
