"""Scenarios by name of a file: a Python module that defines `SCENARIO`."""

import runpy
from pathlib import Path

from ottla.testing.scenarios.scenario import Scenario


class ScenarioError(Exception):
    """The file does not define a scenario."""


def load_scenario(file: str | None) -> Scenario | None:
    """Return what the file defines; None = no file, so each seed draws its own scenario."""
    if file is None:
        return None
    if not Path(file).is_file():
        raise ScenarioError(f"{file}: no such file")
    try:
        names = runpy.run_path(file)
    except Exception as error:
        raise ScenarioError(f"{file}: {type(error).__name__}: {error}") from error
    scenario = names.get("SCENARIO")
    if not isinstance(scenario, Scenario):
        what = "is missing" if scenario is None else f"is a {type(scenario).__name__}"
        raise ScenarioError(f"{file}: SCENARIO {what}, expected a Scenario")
    return scenario
