"""Goal: a broker's registration is read in every version and written as Kafka 3.9 does.

Method: registrations as brokers of all ages have written them, and what cannot be meant.
"""

from dataclasses import replace

import pytest
from immutables import Map

from ottla.metadata.brokers import Endpoint, FeatureRange
from ottla.metadata.znodes.broker import BrokerZnode, broker_image, decode_broker, encode_broker
from ottla.metadata.znodes.fields import ZnodeError

WRITTEN = (
    b'{"version":5,"host":"h1","port":9092,"jmx_port":9999,"timestamp":"2233345666",'
    b'"endpoints":["CLIENT://h1:9092","REPLICATION://[::1]:9093"],'
    b'"listener_security_protocol_map":{"CLIENT":"PLAINTEXT","REPLICATION":"SSL"},'
    b'"rack":"dc1","features":{"f":{"min_version":1,"max_version":3}}}'
)
BROKER = BrokerZnode(
    endpoints=(Endpoint("CLIENT", "h1", 9092), Endpoint("REPLICATION", "::1", 9093, 1)),
    rack="dc1",
    jmx_port=9999,
    timestamp_ms=2233345666,
    features=Map({"f": (1, 3)}),
)


def test_it_is_written_as_it_was_read() -> None:
    assert decode_broker(1, WRITTEN) == BROKER
    assert encode_broker(BROKER) == WRITTEN


def test_kafkas_own_order_of_fields_is_read() -> None:
    data = (
        b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
        b'"endpoints":["PLAINTEXT://node01:9092"],"jmx_port":-1,"port":9092,"host":"node01",'
        b'"version":5,"timestamp":"1692025259506"}'
    )
    znode = decode_broker(0, data)
    assert znode.endpoints == (Endpoint("PLAINTEXT", "node01", 9092),)
    assert (znode.rack, znode.jmx_port, znode.timestamp_ms) == (None, -1, 1692025259506)


@pytest.mark.parametrize(
    ("data", "endpoints", "rack"),
    [
        (
            b'{"jmx_port":-1,"timestamp":"1420485325400","host":"172.16.8.243","version":1,'
            b'"port":9091}',
            (Endpoint("PLAINTEXT", "172.16.8.243", 9091),),
            None,
        ),
        (
            b'{"version":2,"host":"h","port":9092,"jmx_port":9999,"timestamp":"1416974968782",'
            b'"endpoints":["PLAINTEXT://h:9092"]}',
            (Endpoint("PLAINTEXT", "h", 9092),),
            None,
        ),
        (
            b'{"version":3,"host":"h","port":9092,"jmx_port":9999,"timestamp":"2233345666",'
            b'"endpoints":["PLAINTEXT://h1:9092", "SASL_SSL://h1:9093"],"rack":"dc1"}',
            (Endpoint("PLAINTEXT", "h1", 9092), Endpoint("SASL_SSL", "h1", 9093, 3)),
            "dc1",
        ),
        (
            b'{"version":4,"host":null,"port":-1,"jmx_port":9999,"timestamp":"2233345666",'
            b'"endpoints":["CLIENT://h1:9092"],'
            b'"listener_security_protocol_map":{"CLIENT":"SSL"},"rack":null}',
            (Endpoint("CLIENT", "h1", 9092, 1),),
            None,
        ),
    ],
)
def test_older_versions(data: bytes, endpoints: tuple[Endpoint, ...], rack: str | None) -> None:
    znode = decode_broker(1, data)
    assert (znode.endpoints, znode.rack) == (endpoints, rack)


def test_a_newer_version_keeps_its_fields() -> None:
    data = WRITTEN.replace(b'"version":5', b'"version":100,"foo":"bar"')
    assert dict(decode_broker(1, data).extra) == {"foo": "bar"}


@pytest.mark.parametrize("timestamp", [b'"soon"', b"1", b"null", b'"' + b"9" * 5_000 + b'"'])
def test_nothing_rests_on_the_timestamp(timestamp: bytes) -> None:
    data = WRITTEN.replace(b'"2233345666"', timestamp)
    assert decode_broker(1, data).timestamp_ms == 0


def test_without_a_plaintext_endpoint_there_is_no_host() -> None:
    data = encode_broker(BrokerZnode(endpoints=(Endpoint("SSL", "h", 1, 1),)))
    assert b'"host":null,"port":-1,' in data


def test_the_image_has_the_czxid_as_epoch_and_incarnation() -> None:
    image = broker_image(7, BROKER, 0x1_0000_0042)
    assert image.epoch == 0x1_0000_0042
    assert image.incarnation_id == bytes(11) + b"\x01\x00\x00\x00\x42"
    assert image.active
    assert image.features == (FeatureRange("f", 1, 3),)
    supported = replace(BROKER, features=Map({"ottla.version": (1, 2)}))
    assert broker_image(7, supported, 1).features == (FeatureRange("ottla.version", 1, 2),)
    assert broker_image(7, BROKER, 0x1_0000_0043).incarnation_id != image.incarnation_id


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"garbage", "expected JSON"),
        (b'{"host":"h","port":1}', "version is missing"),
        (b'{"version":0,"host":"h","port":1}', "expected 1 or more"),
        (b'{"version":1,"host":"h"}', "a host and a port"),
        (b'{"version":5}', "endpoints is missing"),
        (b'{"version":5,"endpoints":["h:1"]}', "expected NAME://host:port"),
        (b'{"version":5,"endpoints":[7]}', "expected NAME://host:port"),
        (b'{"version":5,"endpoints":["CLIENT://h:1"]}', "expected a known protocol"),
        (b'{"version":5,"endpoints":["SSL://h:65536"]}', "expected a port"),
        (b'{"version":5,"endpoints":[],"features":{"f":1}}', "expected its levels"),
    ],
)
def test_what_cannot_be_meant_names_the_path_and_what_was_expected(
    data: bytes, expected: str
) -> None:
    with pytest.raises(ZnodeError, match="/brokers/ids/9: ") as caught:
        decode_broker(9, data)
    assert expected in caught.value.reason
