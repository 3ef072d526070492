"""IncrementalAlterConfigs edits a resource's values, in every version.

Method: the real decider on an image in memory; every answer passes the codec of its version.
"""

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.metadata.records import ConfigRecord, TopicRecord
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

from ..controller_harness import Controller, versions_of

SET, DELETE, APPEND = 0, 1, 2


def harness() -> Controller:
    controller = Controller()
    controller.write(
        TopicRecord(name="t", topic_id=Uuid(b"topic-----------")),
        ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5"),
    )
    return controller


def alter(
    *changes: tuple[str, int, str | None], validate_only: bool = False
) -> IncrementalAlterConfigsRequest:
    resource = AlterConfigsResource(
        resource_type=2,
        resource_name="t",
        configs=tuple(
            AlterableConfig(name=name, config_operation=operation, value=value)
            for name, operation, value in changes
        ),
    )
    return IncrementalAlterConfigsRequest(resources=(resource,), validate_only=validate_only)


@pytest.mark.parametrize("version", versions_of(44))
def test_every_version(version: int) -> None:
    controller = harness()
    request = alter(
        ("segment.ms", SET, "9"),
        ("retention.ms", DELETE, None),
        ("cleanup.policy", APPEND, "compact"),
    )
    [notified] = controller.ask(request, version).responses
    assert (notified.resource_name, notified.error_code) == ("t", Error.NONE)
    assert dict(controller.image.configs.of(2, "t")) == {
        "segment.ms": "9",
        "cleanup.policy": "delete,compact",
    }


def test_refusals_and_validation_alone() -> None:
    controller = harness()
    [notified] = controller.ask(alter(("segment.ms", 9, "1")), 1).responses
    assert notified.error_code == Error.INVALID_REQUEST
    [notified] = controller.ask(alter(("segment.ms", SET, "9"), validate_only=True), 1).responses
    assert notified.error_code == Error.NONE
    assert dict(controller.image.configs.of(2, "t")) == {"retention.ms": "5"}


def test_without_a_controller() -> None:
    controller = harness()
    controller.refusal = Error.NOT_CONTROLLER
    [notified] = controller.ask(alter(("segment.ms", SET, "9")), 1).responses
    assert (notified.resource_name, notified.error_code) == ("t", Error.NOT_CONTROLLER)
