"""The URI of a store: `ottla.remote.storage.uri`, on brokers and in Spark.

    file:///var/lib/ottla/remote
    s3://bucket/prefix?region=eu-central-1
    s3://bucket/prefix?endpoint=http://127.0.0.1:9000&profile=backup
    memory://name                                  for tests: shared within one process

Credentials are never part of it: they come from the environment (AWS_ACCESS_KEY_ID and so on, a
web identity, the instance's metadata service) or, with `profile`, from a profile of the AWS
configuration files. So a URI can be logged and shown as it is.
"""

import configparser
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit

S3_OPTIONS = ("endpoint", "profile", "region", "virtual_hosted_style")
SCHEMES = "file:///DIRECTORY, s3://BUCKET/PREFIX or memory://NAME"


class StoreUriError(ValueError):
    """A URI that is not accepted: the message names it and what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileUri:
    """A directory, on a local or a mounted file system."""

    path: str

    def __str__(self) -> str:
        return f"file://{quote(self.path)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Uri:
    """A bucket, and a prefix within it without slashes at its ends."""

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None
    profile: str | None = None
    virtual_hosted_style: bool = False

    def __str__(self) -> str:
        return f"s3://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUri:
    """A store in this process's memory."""

    name: str

    def __str__(self) -> str:
        return f"memory://{self.name}"


StoreUri = FileUri | S3Uri | MemoryUri


def parse_store_uri(text: str) -> StoreUri:
    """Return the parsed URI. Raises: StoreUriError."""
    try:
        parts = urlsplit(text.strip())
        user, password = parts.username, parts.password
    except ValueError as error:
        raise StoreUriError(f"{text}: {error}; expected {SCHEMES}") from None
    if user is not None or password is not None:
        shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        raise StoreUriError(f"{shown}: credentials belong in the environment, not in the URI")
    if parts.fragment:
        raise StoreUriError(f"{text}: # is not allowed")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if parts.scheme == "s3":
        return _s3(text, parts.netloc, unquote(parts.path), options)
    if options:
        raise StoreUriError(f"{text}: unknown option {min(options)}; only s3:// has options")
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.strip("/"):
            raise StoreUriError(f"{text}: expected file:///DIRECTORY, with an absolute path")
        return FileUri(path=os.path.normpath(unquote(parts.path)))
    if parts.scheme == "memory":
        if not parts.netloc or parts.path.strip("/"):
            raise StoreUriError(f"{text}: expected memory://NAME")
        return MemoryUri(name=parts.netloc)
    raise StoreUriError(f"{text}: expected {SCHEMES}")


def _s3(text: str, bucket: str, path: str, options: Mapping[str, str]) -> S3Uri:
    if not bucket:
        raise StoreUriError(f"{text}: expected s3://BUCKET/PREFIX")
    unknown = sorted(set(options) - set(S3_OPTIONS))
    if unknown:
        secret = any(word in unknown[0].lower() for word in ("key", "secret", "token"))
        if secret:
            raise StoreUriError(
                f"s3://{bucket}: credentials ({unknown[0]}) belong in the environment,"
                " not in the URI"
            )
        raise StoreUriError(
            f"{text}: unknown option {unknown[0]}; expected one of {', '.join(S3_OPTIONS)}"
        )
    prefix = path.strip("/")
    if any(part in ("", ".", "..") for part in prefix.split("/")) and prefix:
        raise StoreUriError(f"{text}: the prefix has an empty or relative part")
    endpoint = options.get("endpoint")
    if endpoint is not None and urlsplit(endpoint).scheme not in ("http", "https"):
        raise StoreUriError(f"{text}: endpoint: expected http://HOST:PORT or https://HOST:PORT")
    style = options.get("virtual_hosted_style", "false").lower()
    if style not in ("true", "false"):
        raise StoreUriError(f"{text}: virtual_hosted_style: expected true or false")
    return S3Uri(
        bucket=bucket,
        prefix=prefix,
        endpoint=endpoint,
        region=options.get("region"),
        profile=options.get("profile"),
        virtual_hosted_style=style == "true",
    )


PROFILE_KEYS = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
    "region": "region",
}


def profile_settings(profile: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return a profile's keys and region from the AWS configuration files.

    Raises: StoreUriError where the profile is in neither file, or has no keys.
    """
    home = environ.get("HOME", str(Path.home()))
    credentials = environ.get("AWS_SHARED_CREDENTIALS_FILE", f"{home}/.aws/credentials")
    config = environ.get("AWS_CONFIG_FILE", f"{home}/.aws/config")
    found: dict[str, str] = {}
    for path, section in ((config, f"profile {profile}"), (credentials, profile)):
        parser = configparser.ConfigParser(interpolation=None)
        try:
            parser.read(path, encoding="utf-8")
        except configparser.Error:
            raise StoreUriError(f"profile {profile}: {path} cannot be parsed") from None
        if section == "profile default" and not parser.has_section(section):
            section = "default"
        if parser.has_section(section):
            values = parser[section]
            found |= {ours: values[name] for name, ours in PROFILE_KEYS.items() if name in values}
    if not {"access_key_id", "secret_access_key"} <= found.keys():
        raise StoreUriError(
            f"profile {profile}: no aws_access_key_id and aws_secret_access_key in"
            f" {credentials} or {config}"
        )
    return found
