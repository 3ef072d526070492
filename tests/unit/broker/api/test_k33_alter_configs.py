"""AlterConfigs replaces all of a resource's values, in every version.

Method: the real decider on an image in memory; every answer passes the codec of its version.
"""

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.metadata.records import ConfigRecord, TopicRecord
from ottla.wire.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)

from ..controller_harness import Controller, versions_of


def harness() -> Controller:
    controller = Controller()
    controller.write(
        TopicRecord(name="t", topic_id=Uuid(b"topic-----------")),
        ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5"),
    )
    return controller


def resource(name: str, config: str, value: str | None) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=2,
        resource_name=name,
        configs=(AlterableConfig(name=config, value=value),),
    )


@pytest.mark.parametrize("version", versions_of(33))
@pytest.mark.parametrize("validate_only", [False, True])
def test_every_version(version: int, validate_only: bool) -> None:
    controller = harness()
    request = AlterConfigsRequest(
        resources=(resource("t", "segment.ms", "9"), resource("nobody", "segment.ms", "9")),
        validate_only=validate_only,
    )
    good, bad = controller.ask(request, version).responses
    assert (good.resource_type, good.resource_name, good.error_code) == (2, "t", Error.NONE)
    assert (bad.resource_name, bad.error_code) == ("nobody", Error.UNKNOWN_TOPIC_OR_PARTITION)
    assert bad.error_message
    expected = {"retention.ms": "5"} if validate_only else {"segment.ms": "9"}
    assert dict(controller.image.configs.of(2, "t")) == expected


def test_without_a_controller() -> None:
    controller = harness()
    controller.refusal = Error.NOT_CONTROLLER
    request = AlterConfigsRequest(resources=(resource("t", "a", "b"),), validate_only=False)
    [notified] = controller.ask(request, 2).responses
    assert (notified.resource_name, notified.error_code) == ("t", Error.NOT_CONTROLLER)
