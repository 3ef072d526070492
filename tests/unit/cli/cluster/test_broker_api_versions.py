"""`ottla broker-api-versions` prints what kafka-broker-api-versions.sh prints."""

from ottla.cli.cluster.broker_api_versions import BETWEEN_NODES, version_lines
from ottla.wire.registry import APIS
from tests.unit.cli.conftest import Run
from tests.unit.client.fake_broker import FakeBroker


def test_every_broker(run: Run, broker: FakeBroker) -> None:
    broker.others = {2: "left"}
    ran = run("broker-api-versions", "--bootstrap-server", broker.address)
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert [line for line in lines if not line.startswith("\t")] == [
        f"{broker.address} (id: 1 rack: null isFenced: false) -> (",
        ")",
        f"{broker.address} (id: 2 rack: left isFenced: false) -> (",
        ")",
    ]
    assert "\tMetadata(3): 0 to 13 [usable: 13]," in lines
    assert "\tProduce(0): UNSUPPORTED," in lines
    assert not lines[lines.index(")") - 1].endswith(",")


def test_versions() -> None:
    lines = version_lines(
        {0: range(20, 22), 1: range(4, 30), 47: range(1), 1003: range(1), 999: range(3)}
    )
    assert "Produce(0): 20 to 21 [unusable: node too new]" in lines
    assert "Fetch(1): 4 to 29 [usable: 18]" in lines
    assert "OffsetDelete(47): 0 [usable: 0]" in lines
    assert lines[-2:] == ["UNKNOWN(999): 0 to 2", "DescribeDeletions(1003): 0 [usable: 0]"]
    keys = [int(line.partition("(")[2].partition(")")[0]) for line in lines]
    assert keys == sorted(keys)
    assert set(keys) == {key for key in APIS if key < 999} - BETWEEN_NODES | {999, 1003}
