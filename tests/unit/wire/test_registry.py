"""The registry's table must say what the declarations say, and load them only when asked.

Method: every API is loaded and compared; laziness is looked at in a fresh interpreter.
"""

import subprocess
import sys

import pytest

from ottla.wire.registry import (
    APIS,
    NAMES,
    REQUESTS,
    RESPONSES,
    request_type,
    response_type,
    snake_case,
)
from ottla.wire.schema import spec_of, versions_of


@pytest.mark.parametrize("key", APIS, ids=NAMES.get)
def test_table_and_declarations_agree(key: int) -> None:
    api = APIS[key]
    for cls, suffix in ((request_type(key), "Request"), (response_type(key), "Response")):
        spec = spec_of(cls)
        assert cls.__name__ == api.name + suffix
        assert spec.key == key
        assert versions_of(cls) == range(api.first, api.last + 1)
        for version in versions_of(cls):
            assert (version in spec.flexible) == api.is_flexible(version)


def test_every_key_of_kafka_4_is_there_and_ten_of_ottlas() -> None:
    assert set(APIS) == {*range(93), *range(1001, 1013)}
    assert set(REQUESTS) == set(RESPONSES) == set(NAMES) == set(APIS)
    assert len(REQUESTS) == len(APIS)


def test_unknown_keys_are_refused() -> None:
    with pytest.raises(KeyError):
        request_type(9999)


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("Fetch", "fetch"),
        ("OffsetForLeaderEpoch", "offset_for_leader_epoch"),
        ("AddPartitionsToTxn", "add_partitions_to_txn"),
    ],
)
def test_snake_case(name: str, module: str) -> None:
    assert snake_case(name) == module


def test_messages_load_when_first_asked_for() -> None:
    program = (
        "import sys\n"
        "from ottla.wire import frames, registry\n"
        "def loaded():\n"
        "    return sorted(m for m in sys.modules if m.startswith('ottla.wire.messages.'))\n"
        "print(loaded())\n"
        "registry.REQUESTS[12]\n"
        "print(loaded())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split("\n")[:2] == ["[]", "['ottla.wire.messages.heartbeat']"]
