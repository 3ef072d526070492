"""A seed draws its mix of faults and its cluster's properties; what is asked for is kept.

Method: many draws; what the drawn rates do is in test_nodes and test_net.
"""

from dataclasses import fields
from random import Random

from ottla.metadata.node_config import NodeConfig
from ottla.testing.sim import Faults, Sim
from ottla.testing.sim.faults.fault_injector import FaultInjector
from ottla.testing.sim.layout import layout, tuning


def test_each_kind_is_off_in_some_mixes_and_full_in_others() -> None:
    mixes = [Faults.ROUGH.mix(Random(seed)) for seed in range(200)]
    for each in fields(Faults):
        most = getattr(Faults.ROUGH, each.name)
        if isinstance(most, bool) or each.name == "swarm":
            continue
        drawn = {getattr(mix, each.name) for mix in mixes}
        assert {type(most)(0), most} < drawn, each.name
        assert len(drawn) == 3
    assert not any(mix.swarm for mix in mixes)
    assert mixes[7] == Faults.ROUGH.mix(Random(7))


def test_faults_that_are_given_are_kept() -> None:
    faults = Faults(crashes=1.5, twice=0.25)
    assert faults.mix(Random(1)) is faults
    assert str(faults) == "twice=0.25 crashes=1.5"
    assert str(Faults.NONE) == "none"
    assert faults.of_network().twice == 0.25


def test_every_draw_is_a_configuration_that_a_node_takes() -> None:
    assert tuning(Random(1), Faults.NONE) == {}
    for seed in range(60):
        drawn = tuning(Random(seed), Faults.ROUGH)
        for combined in (False, True):
            nodes = layout(3, 3, combined=combined, config=drawn)
            assert len(nodes) == (3 if combined else 6)
            for properties in nodes:
                config = NodeConfig.parse(properties)
                assert config.is_broker or not combined
                assert {voter.id for voter in config.quorum_voters} == (
                    {1, 2, 3} if combined else {101, 102, 103}
                )


def test_what_a_test_configures_wins() -> None:
    (node,) = layout(1, 1, combined=True, config={"min.insync.replicas": "7"})
    assert node["min.insync.replicas"] == "7"
    assert node["default.replication.factor"] == "1"


def test_a_broker_whose_disk_refuses_writes_counts_as_one_that_may_have_lost_some() -> None:
    sim = Sim(1)
    sim.run(3_500)
    fault_injector = FaultInjector(sim, Faults(full_disks=1.0), Random(1))
    one, other = sim.nodes[1], sim.nodes[2]
    assert fault_injector.may_lose_power(other)
    assert fault_injector.may_refuse_writes(one)
    assert not fault_injector.may_lose_power(other), "min.insync.replicas is 2: one may lose data"
    assert fault_injector.may_lose_power(one)
    fault_injector.writes_again(one)
    assert fault_injector.may_lose_power(other), "nothing was refused meanwhile"
    assert fault_injector.may_refuse_writes(sim.nodes[101]), (
        "controllers flush what they acknowledge"
    )
    assert fault_injector.failed_disks == {1}
