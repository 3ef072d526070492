"""Scenarios of simulated clusters, and the code that plays and judges them.

Start with `Scenario` and `Story` (docs/simulator.md); `ottla sim` plays a file's `SCENARIO`.
"""

from ottla.testing.scenarios.scenario import Scenario, ScenarioFailed, Story
from ottla.testing.sim_clients import Dialogue, TopicSpec

__all__ = ["Dialogue", "Scenario", "ScenarioFailed", "Story", "TopicSpec"]
