"""UpdateFeatures sets levels, and responds in the form of each version.

Method: the real decider on an image in memory; every answer passes the codec of its version.
"""

import pytest

from ottla.base.errors import Error
from ottla.metadata.features import ELR_VERSION, OTTLA_VERSION
from ottla.metadata.records import FeatureLevelRecord
from ottla.wire.messages import update_features as wire

from ..controller_harness import Controller

UPGRADE, SAFE_DOWNGRADE = 1, 2


def update(name: str, level: int, **more: int | bool) -> wire.FeatureUpdateKey:
    return wire.FeatureUpdateKey(feature=name, max_version_level=level, **more)


def request(*updates: wire.FeatureUpdateKey, **more: int | bool) -> wire.UpdateFeaturesRequest:
    return wire.UpdateFeaturesRequest(feature_updates=updates, **more)


def results(answer: wire.UpdateFeaturesResponse) -> list[tuple[str, int]]:
    return [(each.feature, each.error_code) for each in answer.results]


@pytest.mark.parametrize("version", range(3))
def test_a_level_is_set(version: int) -> None:
    controller = Controller()
    answer = controller.ask(request(update(OTTLA_VERSION, 1)), version)
    assert (answer.error_code, answer.error_message) == (Error.NONE, None)
    assert results(answer) == ([] if version == 2 else [(OTTLA_VERSION, Error.NONE)])
    assert controller.image.features[OTTLA_VERSION] == 1


@pytest.mark.parametrize("version", range(3))
def test_a_refusal_is_the_top_level_error(version: int) -> None:
    controller = Controller()
    wanted = request(update(ELR_VERSION, 1), update(OTTLA_VERSION, 9))
    answer = controller.ask(wanted, version)
    assert answer.error_code == Error.INVALID_UPDATE_VERSION
    assert answer.error_message == "Level 9 of ottla.version is not supported: expected 0 to 3."
    each = [
        (ELR_VERSION, Error.FEATURE_UPDATE_FAILED),
        (OTTLA_VERSION, Error.INVALID_UPDATE_VERSION),
    ]
    assert results(answer) == ([] if version == 2 else each)
    assert ELR_VERSION not in controller.image.features


@pytest.mark.parametrize("version", range(3))
def test_an_error_of_no_feature_is_the_top_level_error(version: int) -> None:
    controller = Controller()
    controller.refusal = Error.NOT_CONTROLLER
    answer = controller.ask(request(update(OTTLA_VERSION, 1)), version)
    assert answer.error_code == Error.NOT_CONTROLLER
    assert results(answer) == ([] if version == 2 else [(OTTLA_VERSION, Error.NOT_CONTROLLER)])


@pytest.mark.parametrize("version", [1, 2])
def test_validation_alone_changes_nothing(version: int) -> None:
    controller = Controller()
    answer = controller.ask(request(update(OTTLA_VERSION, 1), validate_only=True), version)
    assert answer.error_code == Error.NONE
    assert OTTLA_VERSION not in controller.image.features


@pytest.mark.parametrize(
    ("version", "allowed"), [(0, {"allow_downgrade": True}), (1, {"upgrade_type": SAFE_DOWNGRADE})]
)
def test_a_downgrade_in_the_form_of_each_version(version: int, allowed: dict[str, int]) -> None:
    controller = Controller()
    controller.write(FeatureLevelRecord(name=ELR_VERSION, feature_level=1))
    refused = controller.ask(request(update(ELR_VERSION, 0)), version)
    assert refused.error_code == Error.INVALID_UPDATE_VERSION
    assert refused.error_message.endswith("level 0 is not an upgrade.")
    answer = controller.ask(request(update(ELR_VERSION, 0, **allowed)), version)
    assert (answer.error_code, answer.error_message) == (Error.NONE, None)
    assert ELR_VERSION not in controller.image.features


def test_the_timeout_becomes_a_deadline() -> None:
    controller = Controller()
    controller.ask(request(update(OTTLA_VERSION, 1), timeout_ms=70), 2, now_ms=1_000)
    assert controller.deadlines == [1_070]
