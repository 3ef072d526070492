"""Where remote storage is: a node says at its start what is wrong with the URI.

Method: properties in a table; a node that cannot use its URI opens nothing.
"""

import pytest

from ottla.base.object_store import Pool
from ottla.host.log_dirs.node_dirs import StartError
from ottla.host.remote_storage import pool_sizes, storage_uri
from ottla.metadata.configs import ResourceType
from ottla.metadata.delta import replay
from ottla.metadata.image import EMPTY
from ottla.metadata.records import ConfigRecord
from ottla.stores.uri import FileUri, S3Uri
from tests.unit.metadata.nodes import node

ENABLE, URI = "remote.log.storage.system.enable", "ottla.remote.storage.uri"


def test_the_uri_counts_where_remote_storage_is_enabled() -> None:
    assert storage_uri(node()) is None
    assert storage_uri(node({URI: "what"})) is None
    assert storage_uri(node({ENABLE: "true", URI: "file:///a/b"})) == FileUri(path="/a/b")
    assert storage_uri(node({ENABLE: "true", URI: "s3://b/p"})) == S3Uri(bucket="b", prefix="p")


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("/a/b", "ottla.remote.storage.uri=/a/b: expected file:///DIRECTORY"),
        ("s3://", "expected s3://BUCKET/PREFIX"),
        ("s3://key:secret@b/p", "ottla.remote.storage.uri=s3://b/p: credentials belong in"),
    ],
)
def test_an_invalid_uri_is_named(uri: str, text: str) -> None:
    with pytest.raises(StartError) as caught:
        storage_uri(node({ENABLE: "true", URI: uri}))
    assert text in str(caught.value)
    assert "secret" not in str(caught.value)


def test_the_pools_have_the_sizes_of_the_configuration_of_now() -> None:
    config = node({"remote.log.reader.threads": "3", "remote.log.reader.max.pending.tasks": "7"})
    sizes = pool_sizes(config)
    assert set(sizes) == set(Pool)
    assert sizes[Pool.FETCHER] == (3, 7)
    assert sizes[Pool.COPIER] == (10, 60)
    record = ConfigRecord(
        resource_type=ResourceType.BROKER,
        resource_name="",
        name="remote.log.manager.copier.thread.pool.size",
        value="2",
    )
    image = replay(EMPTY, (record,), offset=1, epoch=1).image
    changed = pool_sizes(config.dynamic(image))
    assert changed == sizes | {Pool.COPIER: (2, 12)}
