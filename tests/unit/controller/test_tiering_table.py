"""Goal: every configuration, in every state, does what the documented table says.

Method: all combinations of the four names before and after, in all states; the expected result is
written again here, from the rules and not from the code's table. Epochs and floors are those of an
independent calculation. The transitions are also those of the drawn diagram.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

import pytest

from ottla.base.errors import ApiError, Error
from ottla.controller.context import DecisionContext
from ottla.controller.mode_policy import KRAFT_MODE, ZOOKEEPER_MODE
from ottla.controller.tiering import OBSERVED, disabled, tiering_change
from ottla.controller.tiering_states import BY_ACKNOWLEDGEMENT, BY_CONFIGURATION, Standing
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import TopicRecord
from ottla.metadata.tiering import (
    DisablePolicy,
    TieringState,
    TopicTiering,
    tiering_of,
    tiering_record,
)

from .builders import advance, uuid
from .test_tiering import DELETES, ENABLE, POLICY, TIERING, finalized, of, registered

COPY = "remote.log.copy.disable"
T = uuid("t")
Overrides = Mapping[str, str]

VALUES: dict[str, tuple[str | None, ...]] = {
    ENABLE: (None, "false", "true"),
    COPY: (None, "false", "true"),
    DELETES: (None, "false", "true"),
    POLICY: (None, "retain", "delete"),
}
CONFIGS: list[Overrides] = [
    {name: value for name, value in zip(VALUES, values, strict=True) if value is not None}
    for values in product(*VALUES.values())
]
STATES: list[TopicTiering | None] = [
    None,
    *(
        TopicTiering(
            topic_id=T,
            state=state,
            tiered_epoch=7,
            policy=policy,
            remote_floor_epoch=3,
            purge_pending=pending,
        )
        for state, policy in (
            (TieringState.ENABLED, DisablePolicy.NONE),
            (TieringState.DISABLING, DisablePolicy.RETAIN),
            (TieringState.DISABLING, DisablePolicy.DELETE),
            (TieringState.DISABLED, DisablePolicy.RETAIN),
            (TieringState.DISABLED, DisablePolicy.DELETE),
        )
        for pending in (False, True)
    ),
]


def contradicts(config: Overrides) -> bool:
    pair = config.get(POLICY), config.get(DELETES)
    return pair in {("retain", "true"), ("delete", "false")}


def meaning(config: Overrides) -> tuple[bool, bool, bool]:
    deletes = config.get(POLICY) == "delete" or config.get(DELETES) == "true"
    return config.get(ENABLE) == "true", config.get(COPY) == "true", deletes


def expected(
    known: TopicTiering | None, before: Overrides | None, after: Overrides
) -> TopicTiering | Error | None:
    """Return the next state, None = it stays; or the error."""
    is_repeated = before is not None and dict(before) == dict(after)
    if contradicts(after):
        return None if is_repeated else Error.INVALID_REQUEST
    enable, stops, deletes = meaning(after)
    copies, deletes = enable and not stops, deletes and not enable
    if known is None:
        return TopicTiering(topic_id=T) if copies else None
    if known.state is TieringState.DISABLING:
        if before is None:
            wanted = (False, known.policy is DisablePolicy.DELETE)
            is_other = (copies, deletes) != wanted
        else:
            is_other = contradicts(before) or meaning(before) != meaning(after)
        return Error.TIERED_STORAGE_DISABLEMENT_IN_PROGRESS if is_other else None
    if copies:
        if known.copies:
            return None
        return replace(known, state=TieringState.ENABLED, policy=DisablePolicy.NONE, tiered_epoch=8)
    was_deleted = known.policy is DisablePolicy.DELETE
    if deletes and not was_deleted:
        return replace(
            known,
            state=TieringState.DISABLING,
            policy=DisablePolicy.DELETE,
            tiered_epoch=8,
            remote_floor_epoch=7,
            purge_pending=True,
        )
    if not deletes and known.copies:
        return replace(
            known, state=TieringState.DISABLING, policy=DisablePolicy.RETAIN, tiered_epoch=8
        )
    asks_for_deleted = was_deleted and not enable and after.get(POLICY) == "retain"
    return Error.INVALID_REQUEST if asks_for_deleted and known.purge_pending else None


def actual(
    image: ClusterImage, where: DecisionContext, before: Overrides | None, after: Overrides
) -> TopicTiering | Error | None:
    try:
        record = tiering_change(image, where, "t", T, before, after)
    except ApiError as refusal:
        return refusal.error if refusal.message else Error.NONE  # It must say why.
    return None if record is None else tiering_of(record)


def images(known: TopicTiering | None) -> Iterator[tuple[DecisionContext, ClusterImage]]:
    for mode, image in (
        (KRAFT_MODE, finalized(TIERING)),
        (ZOOKEEPER_MODE, registered(TIERING)),
    ):
        made = advance(image, [TopicRecord(name="t", topic_id=T)])
        yield of(mode), made if known is None else advance(made, [tiering_record(known)])


@pytest.mark.forms(4)
@pytest.mark.parametrize("known", STATES, ids=str)
def test_every_write_in_every_state(known: TopicTiering | None) -> None:
    for where, image in images(known):
        for before in (OBSERVED, *CONFIGS):
            for after in CONFIGS:
                found = actual(image, where, before, after)
                assert found == expected(known, before, after), (before, after)


def test_a_topics_state_never_goes_back() -> None:
    """Else a broker that gets two states in the wrong order would keep the older one."""
    for known, after in product(STATES[1:], CONFIGS):
        assert known is not None
        where, image = next(images(known))
        found = actual(image, where, OBSERVED, after)
        if isinstance(found, TopicTiering):
            assert found.age > known.age
            assert found.tiered_epoch == known.tiered_epoch + 1
            assert found.remote_floor_epoch >= known.remote_floor_epoch
        if known.state is TieringState.DISABLING:
            ended = disabled(known)
            assert ended.age > known.age
            assert ended == replace(known, state=TieringState.DISABLED)


def test_every_standing_but_the_first_can_be_entered_and_left() -> None:
    entered = {
        target
        for source, row in BY_CONFIGURATION.items()
        for target in row.values()
        if isinstance(target, Standing) and target is not source
    } | set(BY_ACKNOWLEDGEMENT.values())
    assert entered == set(Standing) - {Standing.NEVER_TIERED}
