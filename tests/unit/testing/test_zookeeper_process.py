"""Goal: a server is configured as asked, and what is missing is said with what to do.

Method: the files that are written; packages and Javas that are not found. Servers themselves are a
matter of tests/cluster/zookeeper.
"""

import importlib.util
from pathlib import Path

import pytest

from ottla.testing import zookeeper_process
from ottla.testing.layout import ClusterError
from ottla.testing.ports import free_ports
from ottla.testing.zookeeper_process import Member, write_config
from ottla.testing.zookeeper_server import ZooKeeperServer


def properties_in(directory: Path) -> dict[str, str]:
    lines = (directory / "zoo.cfg").read_text().splitlines()
    return dict(line.partition("=")[::2] for line in lines)


def test_a_server_that_stands_alone(tmp_path: Path) -> None:
    write_config(tmp_path, Member(1, 2181), ())
    properties = properties_in(tmp_path)
    assert (properties["clientPort"], properties["clientPortAddress"]) == ("2181", "127.0.0.1")
    assert Path(properties["dataDir"]).is_dir()
    assert not any(name.startswith("server.") for name in properties)
    # A client that asks for more than the maximum is given that, and learns of it by no error.
    assert int(properties["maxSessionTimeout"]) >= 60_000


@pytest.mark.parametrize(("purges_logs", "interval"), [(True, "1"), (False, "0")])
def test_transaction_logs_are_purged_or_kept(
    tmp_path: Path, purges_logs: bool, interval: str
) -> None:
    write_config(tmp_path, Member(1, 2181), (), purges_logs=purges_logs)
    assert properties_in(tmp_path)["autopurge.purgeInterval"] == interval


def test_a_member_knows_itself_and_the_others(tmp_path: Path) -> None:
    members = [Member(1, 10, 11, 12), Member(2, 20, 21, 22), Member(3, 30, 31, 32)]
    write_config(tmp_path, members[1], members)
    properties = properties_in(tmp_path)
    assert properties["server.3"] == "127.0.0.1:31:32"
    assert (Path(properties["dataDir"]) / "myid").read_text() == "2\n"


def test_a_missing_pyspark_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ClusterError, match=r"pip install 'ottla\[spark\]' 'ottla\[java\]'"):
        zookeeper_process.check_installed()


def test_a_missing_java_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    from ottla.spark import java

    def none_found() -> Path:
        raise java.NoJavaError("looked everywhere")

    monkeypatch.setattr(java, "find_java_home", none_found)
    with pytest.raises(ClusterError, match=r"no Java was found; .*'ottla\[java\]'"):
        zookeeper_process.check_installed()


def test_nobody_serves_where_nobody_listens() -> None:
    assert zookeeper_process.mode_of(free_ports(1)[0]) is None


def test_an_ensemble_has_a_server_at_least() -> None:
    with pytest.raises(ClusterError, match="0 servers: expected 1 or more"):
        ZooKeeperServer(0)
