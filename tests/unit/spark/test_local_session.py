"""Settings of a session, as far as they need no session: see tests/spark for the rest.

Method: the settings that would be handed to Spark.
"""

import pytest

from ottla.spark.local_session import _LOGGING, _with_logging, is_placed


def test_logging_is_quiet_from_the_first_line() -> None:
    options = _with_logging({"spark.driver.extraJavaOptions": "-Xss1m"}, "WARN")
    text = options["spark.driver.extraJavaOptions"]
    assert text.endswith(" -Xss1m")
    assert "-Dottla.spark.log.level=warn" in text
    assert _LOGGING.as_uri() in text
    assert _LOGGING.is_file()


def test_logging_of_the_user_wins() -> None:
    raw = {"spark.driver.extraJavaOptions": "-Dlog4j2.configurationFile=mine"}
    assert _with_logging(raw, "WARN") == raw


@pytest.mark.parametrize(
    "name", ["PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"]
)
def test_what_was_submitted_keeps_its_place(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_placed()
    monkeypatch.setenv(name, "1")
    assert is_placed()
