"""`ottla server`: files, overrides and bad properties; no node is started here."""

from pathlib import Path

import pytest

from ottla.cli.errors import CommandError
from ottla.cli.local.server import parse_config, read_file
from tests.unit.cli.conftest import Run

GOOD = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9192
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:9192
log.dirs=/tmp/nowhere
"""


def test_a_missing_file_is_named(run: Run) -> None:
    ran = run("server", "/no/such.properties")
    assert ran.code == 1
    assert ran.err == (
        "ottla server: /no/such.properties: no such file or directory: expected a property file\n"
    )


def test_invalid_properties_are_printed_one_a_line(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "node.properties"
    file.write_text(GOOD + "log.segment.bytes=many\nno.such.property=1\n")
    ran = run("server", str(file))
    assert ran.code == 1
    lines = ran.err.splitlines()
    assert len(lines) == 2
    assert any("log.segment.bytes" in line and "many" in line for line in lines)
    assert any("no.such.property" in line for line in lines)


def test_an_override_must_have_a_name_and_a_value(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "node.properties"
    file.write_text(GOOD)
    ran = run("server", str(file), "--override", "node.id")
    assert (ran.code, ran.err.splitlines()[0]) == (
        2,
        "ottla server: --override node.id: expected NAME=VALUE",
    )


def test_a_file_is_read_and_parsed(tmp_path: Path) -> None:
    file = tmp_path / "node.properties"
    file.write_text(GOOD)
    config = parse_config(read_file(str(file)), str(file))
    assert (config.node_id, config.is_broker, config.is_controller) == (1, True, True)


def test_a_directory_is_no_property_file(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="is a directory"):
        read_file(str(tmp_path))
