"""The pools of a broker's object store follow its dynamic configuration while it runs.

Method: a simulated node with tiered storage, whose store notes how its pools are resized.
"""

import pytest

from ottla.base.object_store import Pool
from ottla.metadata.configs import ResourceType
from ottla.testing.sim import Sim
from ottla.testing.sim.object_store import ModelStore
from ottla.wire.messages import incremental_alter_configs as wire

CONFIG = {
    "remote.log.storage.system.enable": "true",
    "ottla.remote.storage.uri": "memory://store",
    "remote.log.reader.max.pending.tasks": "9",
}


def test_another_number_of_readers_reaches_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: dict[Pool, tuple[int, int]] = {}
    monkeypatch.setattr(
        ModelStore,
        "resize",
        lambda _self, pool, running, queued: sizes.__setitem__(pool, (running, queued)),
    )
    sim = Sim(1, brokers=1, controllers=1, combined=True, config=CONFIG)
    (node,) = sim.nodes.values()
    sim.run_until(lambda: node.serves, limit_ms=60_000)
    sizes.clear()
    change = wire.AlterableConfig(name="remote.log.reader.threads", config_operation=0, value="4")
    resource = wire.AlterConfigsResource(
        resource_type=int(ResourceType.BROKER), resource_name="", configs=(change,)
    )
    request = wire.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    answer = sim.client_port("somebody").send(node.id, request, 1, 8_000)
    sim.run_until(lambda: answer.done, limit_ms=60_000)
    sim.run_until(lambda: bool(sizes), limit_ms=60_000)
    assert sizes[Pool.FETCHER] == (4, 9)
    sim.run(1_000)
