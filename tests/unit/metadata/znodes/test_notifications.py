"""Goal: notifications are read and written as Kafka 3.9 does. Method: data that Kafka wrote."""

import pytest

from ottla.metadata.znodes import paths
from ottla.metadata.znodes.fields import ZnodeError
from ottla.metadata.znodes.notifications import (
    changed_resource,
    decode_config_change,
    decode_isr_change,
    decode_log_dir_event,
    encode_config_change,
    encode_isr_change,
    encode_log_dir_event,
)

CHANGE = f"{paths.CONFIG_CHANGE}0000000001"


@pytest.mark.parametrize(
    ("data", "resource"),
    [
        (b'{"version":2,"entity_path":"topics/t"}', (2, "t")),
        (b'{"version":2,"entity_path":"brokers/1"}', (4, "1")),
        (b'{"version":2,"entity_path":"brokers/<default>"}', (4, "")),
    ],
)
def test_a_changed_configuration_is_written_as_it_was_read(
    data: bytes, resource: tuple[int, str]
) -> None:
    assert changed_resource(decode_config_change(CHANGE, data)) == resource
    assert encode_config_change(resource) == data


def test_version_1_names_type_and_entity() -> None:
    data = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    assert decode_config_change(CHANGE, data) == "topics/t"


@pytest.mark.parametrize("path", ["users/u", "clients/c", "users/u/clients/c", "ips/::1", "x", ""])
def test_what_is_not_ottlas_is_nobodys_resource(path: str) -> None:
    assert changed_resource(path) is None


def test_changed_in_sync_replicas_are_written_as_they_were_read() -> None:
    data = b'{"version":1,"partitions":[{"topic":"a","partition":0},{"topic":"b","partition":0}]}'
    path = f"{paths.ISR_CHANGE}0000000000"
    assert decode_isr_change(path, data) == (("a", 0), ("b", 0))
    assert encode_isr_change(decode_isr_change(path, data)) == data


def test_a_log_dir_event_is_written_as_it_was_read() -> None:
    data = b'{"version":1,"broker":3,"event":1}'
    assert decode_log_dir_event(f"{paths.LOG_DIR_EVENT}0000000000", data) == 3
    assert encode_log_dir_event(3) == data


@pytest.mark.parametrize("data", [b"", b'{"version":3,"entity_path":"x"}', b'{"entity_path":"x"}'])
def test_what_cannot_be_meant_names_the_path(data: bytes) -> None:
    with pytest.raises(ZnodeError, match=r"config_change_0000000001: .*expected"):
        decode_config_change(CHANGE, data)
