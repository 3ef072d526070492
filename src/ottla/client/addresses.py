"""Addresses of brokers in `HOST:PORT[,HOST:PORT...]`."""

import re

Address = tuple[str, int]


def parse_addresses(text: str) -> list[Address]:
    """Return the addresses of a list; IPv6 hosts in brackets.

    Raises: ValueError for anything else.
    """
    addresses = []
    for each in text.split(","):
        host, separator, port = each.strip().removeprefix("PLAINTEXT://").rpartition(":")
        if not separator or not is_host(host) or not is_port(port):
            raise ValueError(f"{text}: expected HOST:PORT[,HOST:PORT...]")
        addresses.append((host.strip("[]"), int(port)))
    return addresses


def is_host(text: str) -> bool:
    """Tell whether this can be the name or address of a machine."""
    if re.search(r"\s", text):
        return False
    try:
        return bool(text.encode("idna"))
    except UnicodeError:
        return False


def is_port(text: str) -> bool:
    """Tell whether this is a port number from 1 to 65535."""
    return re.fullmatch(r"[0-9]{1,5}", text) is not None and 0 < int(text) < 65_536
