"""`ottla storage` on a real disk: random ids, formatting, and the output about log directories."""

import re
from pathlib import Path

import pytest

from ottla.base.ids import parse_uuid
from tests.unit.cli.conftest import Run

ID = "k9e2bQ4t22WXJHbkKUuqIA"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A node with one log directory for metadata and one for data."""
    file = tmp_path / "node.properties"
    file.write_text(
        f"""\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9192
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:9192
metadata.log.dir={tmp_path}/meta
log.dirs={tmp_path}/data
"""
    )
    return file


def test_random_uuids(run: Run) -> None:
    first, second = run("storage", "random-uuid").out, run("storage", "random-uuid").out
    assert parse_uuid(first.strip()) != parse_uuid(second.strip())


def test_format_then_format_again(run: Run, config: Path, tmp_path: Path) -> None:
    ran = run("storage", "format", "-t", ID, "-c", str(config), "--release-version", "4.0")
    assert ran.code == 0
    assert sorted(ran.out.splitlines()) == [
        f"Formatting data directory {tmp_path}/data with metadata.version 4.0-IV3.",
        f"Formatting metadata directory {tmp_path}/meta with metadata.version 4.0-IV3.",
    ]
    again = run("storage", "format", "-t", ID, "-c", str(config))
    assert again.code == 1
    assert "is already formatted" in again.err
    ran = run("storage", "format", "-t", ID, "-c", str(config), "--ignore-formatted")
    assert ran == (0, "All of the log directories are already formatted.\n", "")


def test_a_broker_of_zookeeper_mode_is_not_formatted(run: Run, tmp_path: Path) -> None:
    """It would not start from such directories."""
    file = tmp_path / "broker.properties"
    file.write_text(f"broker.id=1\nzookeeper.connect=localhost:2181\nlog.dirs={tmp_path}/data\n")
    ran = run("storage", "format", "-t", ID, "-c", str(file))
    assert (ran.code, ran.out) == (1, "")
    assert "zookeeper.connect is set: only nodes of KRaft mode are formatted" in ran.err
    assert not (tmp_path / "data").exists()


ELR = "eligible.leader.replicas.version"


def test_features(run: Run, config: Path) -> None:
    for arguments, message in (
        ([f"{ELR}"], "expected NAME=LEVEL"),
        ([f"{ELR}=-1"], "expected NAME=LEVEL"),
        ([f"{ELR}={'9' * 4301}"], "... (4334 characters): expected NAME=LEVEL"),
        ([f"{ELR}=1", f"{ELR}=0"], "is given twice"),
    ):
        options = [each for text in arguments for each in ("--feature", text)]
        ran = run("storage", "format", "-t", ID, "-c", str(config), *options)
        assert ran.code == 2
        assert message in ran.err
    ran = run("storage", "format", "-t", ID, "-c", str(config), "-f", "group.version=1")
    assert ran.code == 1
    assert "Unknown feature group.version" in ran.err
    ran = run("storage", "format", "-t", ID, "-c", str(config), "-f", f"{ELR}=0")
    assert ran.code == 0


def test_info_before_and_after(run: Run, config: Path, tmp_path: Path) -> None:
    before = run("storage", "info", "-c", str(config))
    assert before.code == 1
    assert before.out.splitlines() == [
        "Found problems:",
        f"  {tmp_path}/data does not exist",
        f"  {tmp_path}/meta does not exist",
        "",
    ]
    run("storage", "format", "-t", ID, "-c", str(config))
    after = run("storage", "info", "-c", str(config))
    assert after.code == 0
    lines = after.out.splitlines()
    assert lines[:3] == ["Found log directories:", f"  {tmp_path}/data", f"  {tmp_path}/meta"]
    pattern = rf"Found metadata: {{cluster.id={ID}, directory.id=\S{{22}}, node.id=1, version=1}}"
    assert re.fullmatch(pattern, lines[4])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-t", "xyz"], "Cluster ID string xyz does not appear to be a valid UUID"),
        (["-t", ID, "--release-version", "3.0"], "--release-version 3.0: expected 4.0-IV3"),
        (
            ["-t", ID, "-s", "-N"],
            "--standalone and --no-initial-controllers cannot be used together",
        ),
    ],
)
def test_invalid_format_arguments(
    run: Run, config: Path, arguments: list[str], message: str
) -> None:
    ran = run("storage", "format", "-c", str(config), *arguments)
    assert ran.code == 1
    assert ran.err.startswith(f"ottla storage: {message}")


def test_the_cluster_id_is_required(run: Run, config: Path) -> None:
    ran = run("storage", "format", "-c", str(config))
    assert ran.code == 2
    assert "--cluster-id" in ran.err
