"""`ottla sim`: simulates clusters in virtual time; one seed determines everything."""

import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.errors import INTERRUPTED, CommandError, UsageError, shown
from ottla.cli.typing_app import examples, new_app

if TYPE_CHECKING:
    from ottla.testing.scenarios.runner import PlayOptions

app = new_app()

EPILOG = examples(
    "ottla sim --seed 7                        run seed 7, the same every time",
    "ottla sim --seeds 1..200                  run two hundred seeds",
    "ottla sim --seed 7 --scenario mine.py     run a scenario of your own",
)

SEED_MAX = 2**63 - 1
COUNT_MAX = 1_000_000
SECONDS_MAX = 24 * 3_600
PROGRESS_EVERY = 100


@app.command(epilog=EPILOG)
def sim(
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="Run one seed.", show_default=False)
    ] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="A..B", help="Run all seeds from A to B.")
    ] = None,
    count: Annotated[
        int | None,
        typer.Option("--count", metavar="K", help="Run seeds 1 to K.", show_default=False),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option("--minutes", help="Virtual time of each run.", show_default=False),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", help="The same, in seconds.", show_default=False)
    ] = None,
    scenario: Annotated[
        Path | None,
        typer.Option("--scenario", metavar="FILE", help="A Python file that defines SCENARIO."),
    ] = None,
    zookeeper: Annotated[
        bool, typer.Option("--zookeeper", help="Simulate ZooKeeper mode.")
    ] = False,
    workers: Annotated[
        int, typer.Option("--workers", metavar="N", help="Number of parallel processes.")
    ] = 1,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print only violations and the summary.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line a seed.")] = False,
) -> int:
    """Simulate clusters with faults, and check the histories of their clients.

    Without a seed one is drawn and printed. Ctrl-C ends a run of many seeds with the summary of
    those that were simulated. Exit code: 0 all guarantees held, 1 some did not, 130 interrupted.
    """
    chosen = chosen_seeds(seed, seeds, count)
    length = chosen_seconds(minutes, seconds)
    if workers < 1:
        raise UsageError(f"--workers {workers}: expected 1 at least")
    from ottla.testing.scenarios.runner import PlayOptions

    file = None if scenario is None else str(scenario)
    options = PlayOptions(file=file, seconds=length, zookeeper=zookeeper)
    check_scenario(options.file)
    return _simulate(chosen, options, workers, quiet=quiet, as_json=as_json)


def _simulate(
    chosen: range, options: "PlayOptions", workers: int, *, quiet: bool, as_json: bool
) -> int:
    from ottla.testing.scenarios.runner import play_all
    from ottla.testing.scenarios.scenario import ScenarioFailed
    from ottla.testing.scenarios.summary import Summary

    summary = Summary()
    try:
        for report in play_all(chosen, options, workers=workers):
            summary.add(report)
            if as_json:
                print(json.dumps(report.as_json()), flush=True)
            elif not quiet or not report.is_kept:
                print("\n".join(report.lines(full=len(chosen) == 1)), flush=True)
            elif summary.seeds % PROGRESS_EVERY == 0:
                print(f"{summary.seeds} of {len(chosen)} seeds", file=sys.stderr, flush=True)
        code = 1 if summary.broken else 0
    except ScenarioFailed as error:
        raise CommandError(f"the scenario is invalid: {error}") from None
    except KeyboardInterrupt:
        # The seeds before may have taken hours.
        print(f"interrupted after {summary.seeds} of {len(chosen)} seeds", file=sys.stderr)
        code = INTERRUPTED
    if len(chosen) > 1 and not as_json:
        print("\n".join(summary.lines()))
    return code


def chosen_seeds(seed: int | None, seeds: str | None, count: int | None) -> range:
    """Return the seeds that the options name; raise UsageError for a contradiction."""
    if sum(each is not None for each in (seed, seeds, count)) > 1:
        raise UsageError("only one of --seed, --seeds and --count can be given")
    if seeds is not None:
        found = re.fullmatch(r"(\d{1,18})\.\.(\d{1,18})", seeds)
        if found is None or int(found[1]) > int(found[2]):
            raise UsageError(f"--seeds {shown(seeds)}: expected A..B with A at most B, like 1..200")
        chosen = range(int(found[1]), int(found[2]) + 1)
    elif count is not None:
        chosen = range(1, count + 1)
    else:
        drawn = int.from_bytes(os.urandom(4), "big") if seed is None else seed
        if not 0 <= drawn <= SEED_MAX:
            raise UsageError(f"--seed {drawn}: expected 0 to {SEED_MAX}")
        chosen = range(drawn, drawn + 1)
    if not 0 < len(chosen) <= COUNT_MAX:
        raise UsageError(f"{len(chosen)} seeds: expected 1 to {COUNT_MAX}")
    return chosen


def chosen_seconds(minutes: float | None, seconds: float | None) -> float | None:
    """Return the virtual time that the options name; None = the scenario's own."""
    if minutes is not None and seconds is not None:
        raise UsageError("only one of --minutes and --seconds can be given")
    length = minutes * 60 if minutes is not None else seconds
    if length is not None and not 1 <= length <= SECONDS_MAX:
        raise UsageError(f"{length:g} seconds: expected 1 to {SECONDS_MAX}")
    return length


def check_scenario(file: str | None) -> None:
    """Raise CommandError where the file does not define a scenario, before any run."""
    from ottla.testing.scenarios.loading import ScenarioError, load_scenario

    try:
        load_scenario(file)
    except ScenarioError as error:
        raise CommandError(str(error)) from None
