"""Error codes agree with an independent client's table, and each has a sentence."""

import kafka.errors

from ottla.base.errors import ApiError, Error, error_name, error_of

THEIR_NAMES = {
    Error.UNKNOWN_SERVER_ERROR: "UNKNOWN",
    Error.NONE: "NO_ERROR",
    Error.NOT_LEADER_OR_FOLLOWER: "NOT_LEADER_FOR_PARTITION",
    Error.MESSAGE_TOO_LARGE: "MESSAGE_SIZE_TOO_LARGE",
    Error.INVALID_TOPIC_EXCEPTION: "INVALID_TOPIC",
    Error.INVALID_REPLICA_ASSIGNMENT: "INVALID_REPLICATION_ASSIGNMENT",
}
"""Where kafka-python keeps an older name."""


def test_codes_agree_with_kafka_python() -> None:
    theirs = {
        kind.errno: kind
        for kind in vars(kafka.errors).values()
        if isinstance(kind, type) and isinstance(getattr(kind, "errno", None), int)
    }
    compared = [code for code in Error if code in theirs]
    assert len(compared) > 80
    for code in compared:
        assert theirs[code].message == THEIR_NAMES.get(code, code.name), code


def test_every_code_has_a_sentence() -> None:
    for code in Error:
        assert code.message.endswith("."), code


def test_an_api_error_carries_code_and_sentence() -> None:
    refusal = ApiError(Error.INVALID_CONFIG, "retention.ms: 'x' is not a number")
    assert refusal.error is Error.INVALID_CONFIG
    assert "retention.ms" in str(refusal)
    assert ApiError(Error.NONE).message == Error.NONE.message
    assert error_name(3) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert error_name(9999) == "error 9999"


def test_a_peers_code_is_an_error_even_where_it_is_not_in_the_table() -> None:
    assert error_of(3) is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert error_of(9999) is Error.UNKNOWN_SERVER_ERROR
