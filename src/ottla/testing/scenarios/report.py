"""The result of one seed, as a value, as lines and as JSON."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.testing.checkers.records import Witness
from ottla.testing.checkers.verdict import Judgement, Verdict

WITNESSES_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One played seed.

    Fields: `cluster`: what was simulated, in words; `mix`: the drawn faults by name; `marks`: how
            often rare paths were reached; `virtual_ms`: of the whole history; `rough_ms`: of its
            part before healing; `wall_seconds`: how long the machine took.
            `digest`: equal where two histories are.
    """

    seed: int
    scenario: str
    cluster: str
    faultless: bool
    mix: Mapping[str, float]
    marks: Mapping[str, int]
    virtual_ms: int
    rough_ms: int
    writes: int
    acknowledged: int
    failed: int
    unknown: int
    reads: int
    leader_changes: int
    controller_changes: int
    judgement: Judgement
    digest: str
    steps: int
    wall_seconds: float
    file: str | None = None
    seconds: float | None = None
    zookeeper: bool = False
    refusals: tuple[str, ...] = field(default=())
    groups: Mapping[str, int] = field(default_factory=dict)
    """Counts of what consumer groups and readers did, by name."""

    @property
    def is_kept(self) -> bool:
        """Tell whether no promise was broken; a run that proves nothing breaks none."""
        return self.judgement.verdict is not Verdict.FALSE

    @property
    def is_proof(self) -> bool:
        """Tell whether the run shows that its promises were kept."""
        return self.judgement.verdict is Verdict.TRUE

    @property
    def replay(self) -> str:
        """The command that plays it again."""
        words = ["ottla", "sim", "--seed", str(self.seed)]
        if self.seconds is not None:
            words += ["--seconds", f"{self.seconds:g}"]
        if self.zookeeper:
            words.append("--zookeeper")
        if self.file is not None:
            words += ["--scenario", self.file]
        return shlex.join(words)

    def lines(self, *, full: bool) -> list[str]:
        """Return the printed lines: one, or all; a broken promise is always shown in full."""
        verdict = self.judgement.verdict.value
        head = (
            f"seed {self.seed}: {verdict}, {self.virtual_ms / 1000:.0f} virtual seconds, "
            f"{self.acknowledged} acknowledged writes, {self.leader_changes} leader changes, "
            f"{self.wall_seconds:.1f} s"
        )
        if not full and self.is_kept:
            return [head]
        lines = [
            head,
            f"  scenario  {self.scenario}: {self.cluster}",
            f"  faults    {_pairs(self.mix) or 'none'}",
            f"  marks     {_pairs(self.marks) or 'none'}",
            f"  writes    {self.writes} in all: {self.acknowledged} acknowledged, {self.failed} "
            f"failed, {self.unknown} unknown; {self.reads} records read",
            f"  leaders   changed {self.leader_changes} times, {self.controller_changes} of these "
            "the quorum's",
            f"  groups    {_pairs(self.groups) or 'none'}",
            f"  digest    {self.digest}, after {self.steps} steps",
        ]
        lines += [f"  refused   {text}" for text in self.refusals]
        lines += [f"  unknown   {reason}" for reason in self.judgement.unknown_reasons]
        for finding in self.judgement.findings:
            kind = "violation" if finding.reason is None else f"tolerated ({finding.reason})"
            lines.append(f"  {kind}: {finding.checker}, {len(finding.witnesses)} times")
            lines += [f"    {_line(each)}" for each in finding.witnesses[:WITNESSES_SHOWN]]
        if not self.is_kept:
            lines.append(f"  replay    {self.replay}")
        return lines

    def as_json(self) -> dict[str, Any]:
        """Return the same for programs."""
        return {
            "seed": self.seed,
            "scenario": self.scenario,
            "cluster": self.cluster,
            "faults": dict(self.mix),
            "marks": dict(self.marks),
            "virtual_ms": self.virtual_ms,
            "writes": self.writes,
            "acknowledged": self.acknowledged,
            "failed": self.failed,
            "unknown": self.unknown,
            "reads": self.reads,
            "leader_changes": self.leader_changes,
            "controller_changes": self.controller_changes,
            "groups": dict(self.groups),
            "verdict": self.judgement.verdict.value,
            "doubts": list(self.judgement.unknown_reasons),
            "findings": [
                {
                    "checker": finding.checker,
                    "tolerated": finding.reason,
                    "witnesses": [
                        {"at_ms": each.at_ms, "text": each.text} for each in finding.witnesses
                    ],
                }
                for finding in self.judgement.findings
            ],
            "digest": self.digest,
            "steps": self.steps,
            "wall_seconds": round(self.wall_seconds, 3),
            "replay": self.replay,
        }


def _pairs(numbers: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {number:g}" for name, number in sorted(numbers.items()) if number)


def _line(witness: Witness) -> str:
    return f"at {witness.at_ms} ms: {witness.text}"
