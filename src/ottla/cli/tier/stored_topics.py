"""What an object store has of tiered topics, read from its listing and the manifests alone."""

from dataclasses import dataclass, field

from ottla.base.ids import Uuid
from ottla.broker.remote.tasks.manifest_reader import list_objects, read_state
from ottla.cli.tier.store_session import StoreSession
from ottla.tiered.object_names import (
    behind_partition,
    manifest_name,
    parse_directory_name,
    partition_prefix,
)
from ottla.tiered.restore_plan import StoredPartition


@dataclass(slots=True)
class StoredTopic:
    """A topic of which the store has objects. `partitions`: those that have any."""

    name: str
    topic_id: Uuid
    partitions: set[int] = field(default_factory=set)


def stored_topics(session: StoreSession) -> list[StoredTopic]:
    """Return the topics in a store, by name and id."""
    found: dict[tuple[str, Uuid], StoredTopic] = {}
    after = ""
    while True:
        page = session.run(session.calls.list_page("", after, until_ms=session.until_ms))
        for each in page.objects:
            parsed = parse_directory_name(each.name)
            if parsed is not None:
                name, topic_id, partition = parsed
                topic = found.setdefault((name, topic_id), StoredTopic(name, topic_id))
                topic.partitions.add(partition)
        if page.is_last or not page.objects:
            return [found[key] for key in sorted(found)]
        last = page.objects[-1].name
        after = behind_partition(last) if last.count("/") > 1 else last


def read_partition(
    session: StoreSession, topic: StoredTopic, partition: int, *, check_objects: bool
) -> StoredPartition:
    """Return what the store has of a partition."""
    name, topic_id, calls = topic.name, topic.topic_id, session.calls
    until_ms = session.until_ms
    state = session.run(read_state(calls, name, topic_id, partition, until_ms=until_ms))
    if state is None or isinstance(state, str):
        return StoredPartition(partition=partition, fault=state)
    prefix = partition_prefix(name, topic_id, partition)
    objects = (
        session.run(list_objects(calls, prefix, until_ms=session.until_ms)) if check_objects else []
    )
    base = manifest_name(name, topic_id, partition, state.base_sequence)
    return StoredPartition(
        partition=partition,
        state=state,
        sizes={each.name: each.size_bytes for each in objects} if check_objects else None,
        modified_ms=max((each.modified_ms for each in objects if each.name == base), default=0),
    )
