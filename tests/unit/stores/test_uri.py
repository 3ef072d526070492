"""URIs of stores: what is accepted, what is refused and why, and profiles."""

from pathlib import Path

import pytest

from ottla.stores.uri import (
    FileUri,
    MemoryUri,
    S3Uri,
    StoreUri,
    StoreUriError,
    parse_store_uri,
    profile_settings,
)


@pytest.mark.parametrize(
    ("text", "uri", "shown"),
    [
        ("file:///var/tier", FileUri(path="/var/tier"), "file:///var/tier"),
        ("file:///var/tier/", FileUri(path="/var/tier"), "file:///var/tier"),
        ("file://localhost/a%20b", FileUri(path="/a b"), "file:///a%20b"),
        (" memory://test ", MemoryUri(name="test"), "memory://test"),
        ("s3://bucket", S3Uri(bucket="bucket"), "s3://bucket"),
        ("s3://bucket/a/b/", S3Uri(bucket="bucket", prefix="a/b"), "s3://bucket/a/b"),
        (
            "s3://b/p?endpoint=http://127.0.0.1:9000&region=r&profile=x&virtual_hosted_style=true",
            S3Uri(
                bucket="b",
                prefix="p",
                endpoint="http://127.0.0.1:9000",
                region="r",
                profile="x",
                virtual_hosted_style=True,
            ),
            "s3://b/p",
        ),
    ],
)
def test_accepted(text: str, uri: StoreUri, shown: str) -> None:
    assert parse_store_uri(text) == uri
    assert str(uri) == shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "expected file:///DIRECTORY"),
        ("/var/tier", "expected file:///DIRECTORY"),
        ("gs://bucket", "expected file:///DIRECTORY"),
        ("file://relative/path", "absolute path"),
        ("file:///", "absolute path"),
        ("file:///a?b=c", "unknown option b"),
        ("memory://", "expected memory://NAME"),
        ("memory://a/b", "expected memory://NAME"),
        ("s3:///prefix", "expected s3://BUCKET/PREFIX"),
        ("s3://bucket/a/../b", "relative part"),
        ("s3://bucket/a//b", "empty or relative part"),
        ("s3://bucket?zone=1", "unknown option zone; expected one of endpoint"),
        ("s3://bucket?endpoint=127.0.0.1:9000", "expected http://HOST:PORT"),
        ("s3://bucket?virtual_hosted_style=yes", "expected true or false"),
        ("s3://bucket#a", "# is not allowed"),
        ("s3://[bucket", "Invalid IPv6 URL"),
    ],
)
def test_refused(text: str, expected: str) -> None:
    with pytest.raises(StoreUriError, match=expected):
        parse_store_uri(text)


@pytest.mark.parametrize(
    "text",
    [
        "s3://AKIA:hidden@bucket/prefix",
        "s3://bucket?secret_access_key=hidden",
        "s3://bucket?aws_session_token=hidden",
        "s3://bucket?access_key_id=hidden",
    ],
)
def test_credentials_are_refused_and_not_shown(text: str) -> None:
    with pytest.raises(StoreUriError, match="belong in the environment") as refused:
        parse_store_uri(text)
    assert "hidden" not in str(refused.value)


def test_a_profile_s_keys_and_region(tmp_path: Path) -> None:
    credentials, config = tmp_path / "credentials", tmp_path / "config"
    credentials.write_text(
        "[default]\naws_access_key_id = d\naws_secret_access_key = e\n"
        "[backup]\naws_access_key_id = a\naws_secret_access_key = b%c\naws_session_token = t\n"
    )
    config.write_text("[default]\nregion = r0\n[profile backup]\nregion = r1\noutput = json\n")
    environ = {
        "AWS_SHARED_CREDENTIALS_FILE": str(credentials),
        "AWS_CONFIG_FILE": str(config),
        "HOME": str(tmp_path),
    }
    assert profile_settings("backup", environ) == {
        "access_key_id": "a",
        "secret_access_key": "b%c",
        "session_token": "t",
        "region": "r1",
    }
    assert profile_settings("default", environ)["region"] == "r0"
    with pytest.raises(StoreUriError, match="profile other: no aws_access_key_id"):
        profile_settings("other", environ)
    credentials.write_text("no section = 1")
    with pytest.raises(StoreUriError, match=f"{credentials} cannot be parsed"):
        profile_settings("backup", environ)
