"""`ottla features` prints what kafka-features.sh prints, and sends the right requests.

Method: the text is Kafka's, written out; a fake broker answers in the real protocol and tells
features in ApiVersions.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from ottla.base.errors import Error
from ottla.wire.messages import api_versions as versions_wire
from ottla.wire.messages import update_features as wire
from tests.unit.cli.conftest import Run
from tests.unit.client.fake_broker import FakeBroker

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
DEPRECATED = "--metadata is deprecated: use --release-version instead\n"


class FeatureBroker(FakeBroker):
    """A broker of three features, one of them off."""

    epoch = 17

    def _versions(self) -> versions_wire.ApiVersionsResponse:
        supported = [("ottla.version", 0, 1), ("metadata.version", 25, 26), ("a.version", 0, 3)]
        finalized = [("metadata.version", 25), ("a.version", 2)]
        return replace(
            super()._versions(),
            supported_features=tuple(
                versions_wire.SupportedFeatureKey(name=name, min_version=low, max_version=high)
                for name, low, high in supported
            ),
            finalized_features_epoch=self.epoch,
            finalized_features=tuple(
                versions_wire.FinalizedFeatureKey(
                    name=name, max_version_level=level, min_version_level=level
                )
                for name, level in finalized
            ),
        )


@pytest.fixture
def broker() -> Iterator[FeatureBroker]:
    fake = FeatureBroker()
    yield fake
    fake.close()


def grant(broker: FakeBroker, error: Error = Error.NONE, message: str | None = None) -> None:
    """Answer all updates alike."""
    broker.answer(
        wire.UpdateFeaturesRequest,
        lambda _: wire.UpdateFeaturesResponse(error_code=error, error_message=message),
    )


def asked(broker: FakeBroker) -> list[tuple[str, int, int]]:
    """Return name, level and type of each update of the one request that came."""
    (request,) = broker.requests(wire.UpdateFeaturesRequest)
    return [
        (each.feature, each.max_version_level, each.upgrade_type)
        for each in request.feature_updates
    ]


def test_describe_names_the_metadata_version(run: Run, broker: FeatureBroker) -> None:
    ran = run("features", "--bootstrap-server", broker.address, "describe")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        "Feature: a.version\tSupportedMinVersion: 0\tSupportedMaxVersion: 3\t"
        "FinalizedVersionLevel: 2\tEpoch: 17\n"
        "Feature: metadata.version\tSupportedMinVersion: 4.0-IV3\t"
        "SupportedMaxVersion: UNKNOWN 26\tFinalizedVersionLevel: 4.0-IV3\tEpoch: 17\n"
        "Feature: ottla.version\tSupportedMinVersion: 0\tSupportedMaxVersion: 1\t"
        "FinalizedVersionLevel: 0\tEpoch: 17\n"
    )


def test_without_metadata_there_is_no_epoch(run: Run, broker: FeatureBroker) -> None:
    broker.epoch = -1
    broker.be_controller()
    ran = run("features", "--bootstrap-controller", broker.address, "describe")
    assert ran.out.splitlines()[0].endswith("\tEpoch: -")


def test_a_broker_without_features(run: Run) -> None:
    """So do those of ZooKeeper clusters."""
    plain = FakeBroker()
    ran = run("features", "--bootstrap-server", plain.address, "describe")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    plain.close()


@pytest.mark.parametrize(
    ("words", "kind", "done", "could_be"),
    [
        (("upgrade",), UPGRADE, "was upgraded to", "can be upgraded to"),
        (("downgrade",), SAFE_DOWNGRADE, "was downgraded to", "can be downgraded to"),
        (("downgrade", "--unsafe"), UNSAFE_DOWNGRADE, "was downgraded to", "can be downgraded to"),
    ],
)
def test_levels_are_updated_in_one_request(
    run: Run, broker: FeatureBroker, words: tuple[str, ...], kind: int, done: str, could_be: str
) -> None:
    grant(broker)
    levels = ("--feature", "ottla.version=1", "--feature", "a.version=3")
    where = ("features", "--bootstrap-server", broker.address)
    ran = run(*where, *words, *levels)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"a.version {done} 3.\nottla.version {done} 1.\n"
    assert asked(broker) == [("a.version", 3, kind), ("ottla.version", 1, kind)]
    dry = run(*where, *words, *levels, "--dry-run")
    assert (dry.code, dry.out) == (0, f"a.version {could_be} 3.\nottla.version {could_be} 1.\n")
    requests = broker.requests(wire.UpdateFeaturesRequest)
    assert [each.validate_only for each in requests] == [False, True]


def test_a_feature_is_switched_off(run: Run, broker: FeatureBroker) -> None:
    grant(broker)
    where = ("features", "--bootstrap-server", broker.address, "disable")
    ran = run(*where, "--feature", "a.version")
    assert (ran.code, ran.out) == (0, "a.version was disabled.\n")
    assert asked(broker) == [("a.version", 0, SAFE_DOWNGRADE)]
    unsafe = run(*where, "--feature", "a.version", "--unsafe", "--dry-run")
    assert unsafe.out == "a.version can be disabled.\n"
    last = broker.requests(wire.UpdateFeaturesRequest)[-1]
    assert (last.validate_only, last.feature_updates[0].upgrade_type) == (True, UNSAFE_DOWNGRADE)


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (
            ("upgrade", "--feature", "ottla.version=9", "--feature", "a.version=3"),
            ["Could not upgrade a.version to 3. ", "Could not upgrade ottla.version to 9. "],
        ),
        (
            ("downgrade", "--feature", "ottla.version=0", "--dry-run"),
            ["Can not downgrade ottla.version to 0. "],
        ),
        (("disable", "--feature", "a.version"), ["Could not disable a.version. "]),
    ],
)
def test_a_refusal_is_everybodys(
    run: Run, broker: FeatureBroker, words: tuple[str, ...], lines: list[str]
) -> None:
    grant(broker, Error.INVALID_UPDATE_VERSION, "That is not allowed.")
    ran = run("features", "--bootstrap-server", broker.address, *words)
    reason = "That is not allowed. (INVALID_UPDATE_VERSION)"
    assert ran.out.splitlines() == [line + reason for line in lines]
    count = len(lines)
    assert ran.code == 1
    assert ran.err == f"ottla features: {count} out of {count} operation(s) failed.\n"


@pytest.mark.parametrize("release", ["4.0", "4.0-IV3"])
@pytest.mark.parametrize(("word", "kind"), [("upgrade", UPGRADE), ("downgrade", SAFE_DOWNGRADE)])
def test_a_release_is_all_its_levels(
    run: Run, broker: FeatureBroker, word: str, kind: int, release: str
) -> None:
    grant(broker)
    where = ("features", "--bootstrap-server", broker.address)
    assert run(*where, word, "--release-version", release).code == 0
    assert asked(broker) == [
        ("eligible.leader.replicas.version", 1, kind),
        ("metadata.version", 25, kind),
        ("ottla.version", 3, kind),
    ]
    mapping = run("features", "version-mapping", "--release-version", release)
    assert mapping.out.splitlines() == [
        "metadata.version=25 (4.0-IV3)",
        "eligible.leader.replicas.version=1",
        "ottla.version=3",
    ]
    assert run("features", "version-mapping").out == mapping.out


def test_the_metadata_version_alone(run: Run, broker: FeatureBroker) -> None:
    grant(broker)
    where = ("features", "--bootstrap-server", broker.address)
    ran = run(*where, "upgrade", "--metadata", "4.0-IV3", "--feature", "ottla.version=1")
    assert (ran.code, ran.err) == (0, DEPRECATED)
    assert asked(broker) == [("metadata.version", 25, UPGRADE), ("ottla.version", 1, UPGRADE)]


def test_feature_dependencies(run: Run) -> None:
    arguments = ("--feature", "metadata.version=25", "--feature", "ottla.version=0")
    ran = run("features", "feature-dependencies", *arguments)
    assert ran.out == (
        "metadata.version=25 (4.0-IV3) has no dependencies.\nottla.version=0 has no dependencies.\n"
    )


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("upgrade", "--release-version", "3.9"), "--release-version 3.9: expected 4.0-IV3"),
        (("upgrade", "--metadata", "4"), "--metadata 4: expected 4.0-IV3"),
        (("version-mapping", "--release-version", "x"), "--release-version x: expected 4.0-IV3"),
        (("feature-dependencies", "--feature", "b=1"), "unknown feature b: expected one of"),
        (
            ("feature-dependencies", "--feature", "ottla.version=4"),
            "ottla.version has no level 4: expected 0 to 3",
        ),
    ],
)
def test_unknown_features_and_levels(run: Run, words: tuple[str, ...], reason: str) -> None:
    ran = run("features", "--bootstrap-server", "127.0.0.1:1", *words)
    assert (ran.code, ran.out) == (1, "")
    assert reason in ran.err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("upgrade",), "expected one --feature NAME=LEVEL at least to upgrade"),
        (("downgrade",), "expected one --feature NAME=LEVEL at least to downgrade"),
        (("disable",), "expected one --feature NAME at least to disable"),
        (("feature-dependencies",), "expected one --feature NAME=LEVEL at least"),
        (("upgrade", "--feature", "a"), "--feature a: expected NAME=LEVEL"),
        (("upgrade", "--feature", "a=b"), "--feature a=b: expected NAME=LEVEL"),
        (("upgrade", "--feature", "a=-1"), "--feature a=-1: expected NAME=LEVEL"),
        (("upgrade", "--feature", "a=32768"), "--feature a=32768: expected a level of 32767"),
        (
            ("upgrade", "--feature", "a=" + "9" * 4301),
            f"--feature a={'9' * 98}... (4303 characters): expected NAME=LEVEL",
        ),
        (("upgrade", "--feature", "a=1", "--feature", "a=2"), "--feature a=2: a is given twice"),
        (("disable", "--feature", "a", "--feature", "a"), "--feature a is given twice"),
        (
            ("upgrade", "--release-version", "4.0", "--feature", "a=1"),
            "--release-version cannot be used with --feature or --metadata",
        ),
        (
            ("upgrade", "--release-version", "4.0", "--metadata", "4.0"),
            "--release-version cannot be used with --feature or --metadata",
        ),
        (
            ("upgrade", "--metadata", "4.0", "--feature", "metadata.version=25"),
            "only one of --metadata and --feature metadata.version can be given",
        ),
        (
            ("--bootstrap-controller", "127.0.0.1:1", "describe"),
            "only one of --bootstrap-server and --bootstrap-controller can be given",
        ),
    ],
)
def test_invalid_options(run: Run, words: tuple[str, ...], reason: str) -> None:
    ran = run("features", "--bootstrap-server", "127.0.0.1:1", *words)
    assert (ran.code, ran.out) == (2, "")
    assert reason in ran.err


def test_a_controller_on_the_move_is_waited_for(run: Run, broker: FeatureBroker) -> None:
    codes = iter([Error.NOT_CONTROLLER, Error.NONE])
    broker.answer(
        wire.UpdateFeaturesRequest,
        lambda _: wire.UpdateFeaturesResponse(error_code=next(codes)),
    )
    where = ("features", "--bootstrap-server", broker.address)
    ran = run(*where, "upgrade", "--feature", "a.version=3")
    assert (ran.code, ran.out) == (0, "a.version was upgraded to 3.\n")


def test_of_several_controllers_the_active_one_answers(run: Run, broker: FeatureBroker) -> None:
    standby = FeatureBroker()
    grant(standby, Error.NOT_CONTROLLER)
    standby.be_controller(active=broker)
    words = (
        "features", "--bootstrap-controller", standby.address, "--timeout", "0.5",
        "upgrade", "--feature", "a.version=3",
    )  # fmt: skip
    grant(broker)
    assert run(*words).out == "a.version was upgraded to 3.\n"
    grant(broker, Error.INVALID_UPDATE_VERSION, "No.")
    assert "No. (INVALID_UPDATE_VERSION)" in run(*words).out
    grant(broker, Error.NOT_CONTROLLER)
    ran = run(*words)
    assert ran.code == 1
    assert "NOT_CONTROLLER" in ran.out
    standby.close()


def test_levels_cannot_be_changed_in_zookeeper_mode(run: Run, broker: FeatureBroker) -> None:
    """Brokers there do not serve the request; it says so."""
    where = ("features", "--bootstrap-server", broker.address)
    ran = run(*where, "upgrade", "--feature", "a.version=3")
    assert (ran.code, ran.out) == (1, "")
    assert "does not serve UpdateFeatures" in ran.err


def test_a_cluster_over_zookeeper_has_no_levels_to_change(run: Run, broker: FeatureBroker) -> None:
    """The fake serves what it has an answer for."""
    where = ("--bootstrap-server", broker.address)
    ran = run("features", *where, "upgrade", "--feature", "a.version=3")
    assert ran.code == 1
    assert ran.err.endswith("expected a KRaft cluster, not ZooKeeper mode\n")
