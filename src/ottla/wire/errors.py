"""The failures of the wire package: malformed bytes of a peer, and messages without an encoding."""


class WireError(Exception):
    """Bytes from a peer that are not a well-formed message of the version they claim."""


class TooManyElementsError(WireError):
    """A message whose arrays hold more elements than the caller lets it have."""

    def __init__(self) -> None:
        super().__init__("its arrays hold too many elements")


class UnsupportedVersionError(WireError):
    """A request whose key or version this package does not know.

    It has the fixed part of the header, which every header version shares, so that the caller can
    still respond: to ApiVersions at version 0 with UNSUPPORTED_VERSION (KIP-511).
    """

    def __init__(self, api_key: int, api_version: int, correlation_id: int) -> None:
        super().__init__(f"api key {api_key} has no version {api_version} here")
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id


class EncodeError(ValueError):
    """A message that the chosen version cannot express, or a value that does not fit its type.

    Always a bug of ours or a wrong version, never a peer's error.
    """
