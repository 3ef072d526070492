"""Without an authorizer all three ACL requests are answered SECURITY_DISABLED, as by Kafka."""

import pytest

from ottla.base.errors import Error
from ottla.broker.api import k29_describe_acls, k30_create_acls, k31_delete_acls
from ottla.broker.dispatch import advertised, load_apis
from ottla.broker.ports import Listener
from ottla.wire.messages import create_acls, delete_acls, describe_acls

from ..harness import BrokerHarness

VERSIONS = [1, 2, 3]
REFUSED = (Error.SECURITY_DISABLED, "No Authorizer is configured.")


@pytest.fixture
def harness() -> BrokerHarness:
    return BrokerHarness()


@pytest.mark.parametrize("version", VERSIONS)
def test_describing(harness: BrokerHarness, version: int) -> None:
    request = describe_acls.DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    answer = harness.ask(request, version)
    assert (answer.error_code, answer.error_message) == REFUSED
    assert answer.resources == ()


@pytest.mark.parametrize("version", VERSIONS)
def test_each_creation_is_refused(harness: BrokerHarness, version: int) -> None:
    creation = create_acls.AclCreation(
        resource_type=2, resource_name="t", principal="User:a", host="*", operation=3,
        permission_type=3,
    )  # fmt: skip
    answer = harness.ask(create_acls.CreateAclsRequest(creations=(creation,) * 2), version)
    assert [(each.error_code, each.error_message) for each in answer.results] == [REFUSED] * 2


@pytest.mark.parametrize("version", VERSIONS)
def test_each_deletion_is_refused(harness: BrokerHarness, version: int) -> None:
    filter_ = delete_acls.DeleteAclsFilter(
        resource_type_filter=2, resource_name_filter="t", principal_filter=None, host_filter=None,
        operation=1, permission_type=1,
    )  # fmt: skip
    answer = harness.ask(delete_acls.DeleteAclsRequest(filters=(filter_,) * 2), version)
    assert [
        (each.error_code, each.error_message, each.matching_acls) for each in answer.filter_results
    ] == [(*REFUSED, ())] * 2


@pytest.mark.parametrize("zookeeper", [False, True])
def test_they_are_advertised(zookeeper: bool) -> None:
    returned = advertised(load_apis(), Listener.CLIENT, zookeeper=zookeeper)
    for module in (k29_describe_acls, k30_create_acls, k31_delete_acls):
        assert list(returned[module.API.key]) == VERSIONS
