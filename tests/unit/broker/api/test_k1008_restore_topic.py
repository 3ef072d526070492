"""RestoreTopic creates what was planned from the store, in one step, or says why not."""

from dataclasses import replace

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.metadata.features import OTTLA_VERSION, OTTLA_VERSION_LEVEL
from ottla.metadata.records import FeatureLevelRecord
from ottla.wire.messages import restore_topic as wire

from ..controller_harness import Controller

ID = Uuid(bytes(range(16)))
REQUEST = wire.RestoreTopicRequest(
    name="t",
    topic_id=ID,
    tiered_epoch=3,
    remote_floor_epoch=1,
    replication_factor=1,
    configs=(wire.RestoreTopicConfig(name="remote.storage.enable", value="true"),),
    partitions=(
        wire.RestoreTopicPartition(
            partition_index=0,
            leader_epoch=8,
            log_start_offset=5,
            end_offset=20,
            epochs=(wire.RestoreTopicEpoch(epoch=7, start_offset=5),),
        ),
    ),
)


def harness() -> Controller:
    controller = Controller(
        {
            "remote.log.storage.system.enable": "true",
            "ottla.remote.storage.uri": "file:///store",
        }
    )
    controller.write(FeatureLevelRecord(name=OTTLA_VERSION, feature_level=OTTLA_VERSION_LEVEL))
    return controller


def test_the_topic_is_created_once() -> None:
    controller = harness()
    dry = controller.ask(replace(REQUEST, validate_only=True), 0)
    assert dry == wire.RestoreTopicResponse(error_code=Error.NONE)
    assert controller.image.topics.by_id(ID) is None
    assert controller.ask(REQUEST, 0) == wire.RestoreTopicResponse(error_code=Error.NONE)
    restored = controller.image.tiering[ID].restored_partition(0)
    assert restored is not None
    assert (restored.leader_epoch, restored.log_start_offset, restored.end_offset) == (8, 5, 20)
    assert restored.epochs == ((7, 5),)
    again = controller.ask(REQUEST, 0)
    assert again.error_code == Error.TOPIC_ALREADY_EXISTS
    assert "'t' exists" in again.error_message
