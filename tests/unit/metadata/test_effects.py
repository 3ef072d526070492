"""Every property that is taken has an effect, or says that it has none; the docs list those.

Method: the source is searched for each name outside of the definitions. A property of a node
that is a topic's default counts by the topic's name.
"""

import re
from pathlib import Path

import pytest

from ottla.metadata.config_def import ConfigDef, Update
from ottla.metadata.node_definitions import NODE_DEFINITIONS
from ottla.metadata.topic_config import DEFINITIONS, SYNONYMS

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src" / "ottla"
DOCS = ROOT / "docs" / "properties.md"

DECLARING = {
    "group_definitions.py",
    "log_definitions.py",
    "node_definitions.py",
    "remote_definitions.py",
    "share_definitions.py",
    "topic_config.py",
    "unsupported.py",
}
ELSEWHERE = {
    "internal.segment.bytes": "topic_config.topic_values takes it for segment.bytes",
    "ottla.topic.ttl.ms": "topic_config.ttl_of returns it",
    "remote.log.copy.disable": "tiering_config.tiering_config returns it",
    "remote.log.delete.on.disable": "tiering_config.tiering_config returns it",
    "remote.log.disable.policy": "tiering_config.tiering_config returns it",
    "remote.storage.enable": "topic_config.wants_remote_storage returns it",
}
"""Properties of topics that their own module acts upon."""
BY_CONSTANT = {
    "ottla.remote.storage.event.dir": "remote_definitions.EVENT_DIR",
    "ottla.remote.storage.uri": "remote_definitions.STORAGE_URI",
    "remote.log.storage.system.enable": "remote_definitions.SYSTEM_ENABLE",
}
"""Properties of nodes that are used by the constant of their name."""


def used_names() -> set[str]:
    """Return the texts in double quotes that look like a property, of all other modules."""
    found: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        # What a test cluster or a command writes into a file is no effect of it.
        if path.name in DECLARING or path.relative_to(SOURCE).parts[0] in ("cli", "testing"):
            continue
        text = re.sub(r'"""(?:.|\n)*?"""', "", path.read_text())
        found.update(re.findall(r'"([a-z][a-z0-9]*(?:\.[a-z0-9]+)*)"', text))
    return found


def without_effect(definitions: ConfigDef) -> set[str]:
    return {key.name for key in definitions.keys.values() if "without an effect" in key.doc.lower()}


USED = used_names()
IDLE_ON_NODES = without_effect(NODE_DEFINITIONS)
IDLE_ON_TOPICS = without_effect(DEFINITIONS)
DEFAULT_OF = {name: topic for topic, names in SYNONYMS.items() for name, _ in names}


@pytest.mark.parametrize(
    "name",
    sorted(set(NODE_DEFINITIONS.keys) - IDLE_ON_NODES - set(BY_CONSTANT)),
)
def test_a_node_uses_it(name: str) -> None:
    topic = DEFAULT_OF.get(name)
    if topic is not None and topic not in IDLE_ON_TOPICS:
        assert topic in USED
    else:
        assert name in USED


@pytest.mark.parametrize("name", sorted(set(DEFINITIONS.keys) - IDLE_ON_TOPICS - set(ELSEWHERE)))
def test_a_topic_uses_it(name: str) -> None:
    assert name in USED


def test_what_has_no_effect_cannot_be_changed_while_a_node_runs() -> None:
    assert [
        name
        for name in sorted(IDLE_ON_NODES)
        if NODE_DEFINITIONS.keys[name].update is not Update.READ_ONLY
    ] == []


def test_the_docs_list_all_that_has_no_effect_and_nothing_else() -> None:
    _, nodes, topics = re.split(r"\| Properties of a (?:node|topic) \|", DOCS.read_text())
    for text, expected in ((nodes, IDLE_ON_NODES), (topics, IDLE_ON_TOPICS)):
        rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
        listed = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
        assert len(set(listed)) == len(listed)
        assert set(listed) == expected
