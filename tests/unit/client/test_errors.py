"""The texts of errors."""

from ottla.client.errors import reason_of, seconds_text


def test_lengths_of_time() -> None:
    texts = [seconds_text(each) for each in (4.99652, 0.05, 15.0, 1234.0, 1e6)]
    assert texts == ["5 s", "0.05 s", "15 s", "1234 s", "1e+06 s"]


def test_reasons() -> None:
    assert reason_of(36, "It is there.") == "It is there. (TOPIC_ALREADY_EXISTS)"
    assert reason_of(36).endswith(" (TOPIC_ALREADY_EXISTS)")
    assert reason_of(9999) == "error 9999"
