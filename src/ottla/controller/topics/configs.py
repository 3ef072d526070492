"""Topic and broker configurations are altered.

Each resource of a request succeeds or fails by itself. Incremental requests (KIP-339) name what
changes; legacy ones replace the whole set, so what they do not name is deleted.
A change of a broker's value to the same value is still written, as in Kafka: it makes the broker
read it again.

A change of a topic's remote storage comes with its tiering state (`controller.tiering`).

Two properties have effects in the controller. A change of min.insync.replicas clears the eligible
leader replicas of partitions whose leaders commit without them from then on: those with as many
in-sync replicas as the new value asks for. Kafka clears them in any case; but with fewer in sync
nothing is committed, before and after, and an eligible replica may be the last one with all
acknowledged records. Enabling unclean elections takes effect at once; Kafka's controllers take
up to five minutes.
Source: ConfigurationControlManager, ConfigAdminManager, DynamicBrokerConfig, Kafka 4.0; KIP-966.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from ottla.base.errors import ApiError, Error
from ottla.controller.activation import MIN_ISR
from ottla.controller.context import DecisionContext
from ottla.controller.elections.elections import ElectUncleanly, clear_elr
from ottla.controller.idle import check_ttl
from ottla.controller.step import Decision, Step
from ottla.controller.tiering import tiering_change
from ottla.metadata.config_def import (
    ConfigError,
    ConfigKey,
    Type,
    Update,
    format_value,
    parse_value,
)
from ottla.metadata.configs import ALL_BROKERS, Resource, ResourceType, config_records
from ottla.metadata.delta import replay
from ottla.metadata.features import elr_enabled
from ottla.metadata.image import ClusterImage
from ottla.metadata.node_config import NodeConfig, broken_rules
from ottla.metadata.node_definitions import NODE_DEFINITIONS
from ottla.metadata.records import ConfigRecord, PartitionChangeRecord, TopicTieringRecord
from ottla.metadata.topic_config import DEFINITIONS, validate_topic_configs
from ottla.metadata.topic_names import fault_of
from ottla.metadata.unsupported import refusal

UNCLEAN = "unclean.leader.election.enable"


class Operation(IntEnum):
    """The operation of an incremental request on a value (AlterConfigOp.OpType)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class Alteration:
    """One resource and the changes of its values.

    Incremental: (name, operation's number, value) triples; legacy: every operation is SET.
    """

    resource: Resource
    changes: tuple[tuple[str, int, str | None], ...]


@dataclass(frozen=True, slots=True)
class AlteredResource:
    """The result for one resource."""

    resource: Resource
    error: Error = Error.NONE
    message: str | None = None


def alter_configs(
    image: ClusterImage,
    wanted: Sequence[Alteration],
    *,
    incremental: bool,
    validate_only: bool,
    context: DecisionContext,
) -> Decision[tuple[AlteredResource, ...]]:
    """Alter configurations; one result a resource as often as it is named, in that order."""
    counts = Counter(alteration.resource for alteration in wanted)
    records: list[ConfigRecord | TopicTieringRecord] = []
    results: list[AlteredResource] = []
    for alteration in wanted:
        resource = alteration.resource
        try:
            if counts[resource] > 1:
                raise _invalid("Each resource must appear at most once.")
            _check_form(alteration, incremental)
            before = image.configs.of(*resource)
            after = (_incremental if incremental else _legacy)(before, alteration)
            tiering = _check_values(image, resource, before, after, context)
            _check_min_isr(image, resource, after, alteration)
        except ApiError as refusal:
            results.append(AlteredResource(resource, refusal.error, refusal.message))
            continue
        is_broker = resource[0] == ResourceType.BROKER
        rewritten = {name for name, _, _ in alteration.changes} if is_broker else set()
        records += config_records(resource, before, after, rewritten=rewritten)
        records += () if tiering is None else (tiering,)
        results.append(AlteredResource(resource))
    if validate_only or not records:
        return Decision(Step(), tuple(results))
    return Decision(_step(image, records, context.config), tuple(results))


def _step(
    image: ClusterImage,
    records: Sequence[ConfigRecord | TopicTieringRecord],
    config: NodeConfig,
) -> Step:
    configs = [record for record in records if isinstance(record, ConfigRecord)]
    effects = (ElectUncleanly(),) if any(each.name == UNCLEAN for each in configs) else ()
    forgotten = tuple(_not_eligible_any_more(image, configs, config))
    if forgotten:
        # The eligible replicas go first: then the leaders may commit alone. A tiering state and
        # its configuration are one change.
        is_atomic = any(isinstance(record, TopicTieringRecord) for record in records)
        return Step((*forgotten, *records), effects, atomic=is_atomic)
    return Step(tuple(records), effects)


def _not_eligible_any_more(
    image: ClusterImage, records: Sequence[ConfigRecord], config: NodeConfig
) -> Iterator[PartitionChangeRecord]:
    """Yield the records that clear eligible replicas where min.insync.replicas changes."""
    found = [record for record in records if record.name == MIN_ISR]
    if not found:
        return
    after = _with(image, records)
    is_of_topics = all(record.resource_type == ResourceType.TOPIC for record in found)
    yield from clear_elr(
        after, config, {record.resource_name for record in found} if is_of_topics else None
    )


def _check_min_isr(
    image: ClusterImage, resource: Resource, after: Mapping[str, str], alteration: Alteration
) -> None:
    """Keep min.insync.replicas one value for the cluster while ISRs may be empty (KIP-966)."""
    resource_type, name = resource
    if resource_type != ResourceType.BROKER or not elr_enabled(image.features):
        return
    if name != ALL_BROKERS and any(each == MIN_ISR for each, _, _ in alteration.changes):
        raise ApiError(
            Error.INVALID_CONFIG,
            f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled.",
        )
    if name == ALL_BROKERS and MIN_ISR in image.configs.of(*resource) and MIN_ISR not in after:
        raise ApiError(
            Error.INVALID_CONFIG,
            f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled.",
        )


def _invalid(message: str) -> ApiError:
    return ApiError(Error.INVALID_REQUEST, message)


def _check_form(alteration: Alteration, incremental: bool) -> None:
    """Check what does not depend on the values."""
    resource_type, name = alteration.resource
    _check_resource(resource_type, name)
    names = [each for each, _, _ in alteration.changes]
    if len(set(names)) < len(names):
        raise _invalid("Error due to duplicate config keys.")
    for each, operation, value in alteration.changes:
        if operation not in set(Operation):
            raise _invalid(f"Unknown operation type {operation} for {each}.")
        if value is None and not (incremental and operation == Operation.DELETE):
            raise _invalid(f"Null value not supported for: {each}")


def _check_resource(resource_type: int, name: str) -> None:
    if resource_type == ResourceType.TOPIC:
        if not name:
            raise _invalid("Default topic resources are not allowed.")
        fault = fault_of(name)
        if fault is not None:
            raise ApiError(Error.INVALID_TOPIC_EXCEPTION, fault)
    elif resource_type == ResourceType.BROKER:
        if name != ALL_BROKERS and not (name.isascii() and name.isdecimal()):
            raise _invalid(f"A broker's id must be an integer from 0 up, but it is: {name}")
    elif resource_type == ResourceType.BROKER_LOGGER:
        raise _invalid("Log levels cannot be changed through this request: not supported.")
    elif resource_type in (ResourceType.CLIENT_METRICS, ResourceType.GROUP):
        kind = ResourceType(resource_type).name
        raise _invalid(f"Configurations of the resource type {kind} are not supported.")
    else:
        raise _invalid(f"Unknown resource type {resource_type}.")


def _legacy(before: Mapping[str, str], alteration: Alteration) -> dict[str, str]:
    return {name: value for name, _, value in alteration.changes if value is not None}


def _incremental(before: Mapping[str, str], alteration: Alteration) -> dict[str, str]:
    after = dict(before)
    for name, operation, value in alteration.changes:
        if operation == Operation.DELETE:
            after.pop(name, None)
            continue
        assert value is not None, "_check_form refused it"
        if operation == Operation.SET:
            after[name] = value
            continue
        key = _key(alteration.resource, name)
        if key is None or key.type is not Type.LIST:
            raise ApiError(
                Error.INVALID_CONFIG,
                f"Can't {Operation(operation).name} to {name}: it is not a list.",
            )
        present = after.get(name)
        if present is None:
            present = format_value(key.type, key.default) or ""
        after[name] = _edited(present, operation, value)
    return after


def _edited(present: str, operation: int, value: str) -> str:
    items = [each.strip() for each in present.split(",") if each.strip()]
    for each in (part.strip() for part in value.split(",")):
        if operation == Operation.SUBTRACT:
            if each in items:
                items.remove(each)
        elif each and each not in items:
            items.append(each)
    return ",".join(items)


def _key(resource: Resource, name: str) -> ConfigKey | None:
    is_topic = resource[0] == ResourceType.TOPIC
    return (DEFINITIONS if is_topic else NODE_DEFINITIONS).keys.get(name)


def _check_values(
    image: ClusterImage,
    resource: Resource,
    before: Mapping[str, str],
    after: Mapping[str, str],
    context: DecisionContext,
) -> TopicTieringRecord | None:
    """Check a resource's values; return the record of a topic's new tiering state."""
    resource_type, name = resource
    if resource_type == ResourceType.TOPIC:
        validate_topic_configs(after, context.config, image)
        check_ttl(image, context.mode, name, after)
        topic_id = image.topics.id_of(name)
        if topic_id is None:
            raise ApiError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        if image.is_queued_for_deletion(name):
            raise ApiError(
                Error.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' is marked for deletion."
            )
        return tiering_change(image, context, name, topic_id, before, after)
    if name != ALL_BROKERS and int(name) not in image.brokers:
        raise ApiError(
            Error.BROKER_ID_NOT_REGISTERED, f"No broker with the id {name} is registered."
        )
    changed = {each for each in after if after[each] != before.get(each)}
    _check_broker_values(changed, after, is_default=name == ALL_BROKERS)
    _check_rules(image, resource, before, after, context.config)
    return None


def _check_broker_values(
    changed: Iterable[str], after: Mapping[str, str], *, is_default: bool
) -> None:
    """Check dynamic values of brokers; every error is INVALID_REQUEST, as in Kafka."""
    for name in sorted(changed):
        key = NODE_DEFINITIONS.keys.get(name)
        if key is None:
            if reason := refusal(name, after[name]):
                raise _invalid(f"{name} {reason}.")
            near = NODE_DEFINITIONS.similar(name)
            hint = f" Did you mean {near}?" if near else ""
            raise _invalid(f"Unknown broker config name: {name}.{hint}")
        if key.update is Update.READ_ONLY:
            raise _invalid(f"Cannot update this config dynamically: {name}")
        if is_default and key.update is Update.PER_BROKER:
            raise _invalid(f"{name} can be set for single brokers only, not as a default.")
        try:
            parse_value(key, after[name])
        except ConfigError as error:
            raise _invalid(f"Invalid value for a broker config: {error}.") from None


def _check_rules(
    image: ClusterImage,
    resource: Resource,
    before: Mapping[str, str],
    after: Mapping[str, str],
    config: NodeConfig,
) -> None:
    """Refuse values with which no broker would start, beside those of this node's file.

    Rules that are broken already are not held against a change.
    """
    _, name = resource
    # No broker has the id -1: the defaults are checked alone.
    broker = replace(config, node_id=-1 if name == ALL_BROKERS else int(name))
    changed = _with(image, config_records(resource, before, after))
    known = {problem.name for problem in broken_rules(broker.dynamic(image).values)}
    for problem in broken_rules(broker.dynamic(changed).values):
        if problem.name not in known:
            raise _invalid(f"Invalid value for a broker config: {problem}.")


def _with(image: ClusterImage, records: Sequence[ConfigRecord]) -> ClusterImage:
    """Return the image with configurations that are not written yet."""
    offset, epoch = image.position
    return replay(image, records, offset=offset, epoch=epoch).image
