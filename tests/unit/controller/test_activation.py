"""A new cluster keeps min.insync.replicas for all its nodes where ISRs may run empty.

Method: the records that formatting leaves, with and without the feature.
"""

from ottla.controller.activation import first_records
from ottla.metadata.features import ELR_VERSION, METADATA_VERSION
from ottla.metadata.records import ConfigRecord, FeatureLevelRecord, Record

from .builders import context

VERSION = FeatureLevelRecord(name=METADATA_VERSION, feature_level=25)
ELR = FeatureLevelRecord(name=ELR_VERSION, feature_level=1)


def min_isr(value: str) -> Record:
    return ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value=value)


def test_the_controller_s_own_value_becomes_the_cluster_s() -> None:
    usual, two = context(), context({"min.insync.replicas": "2"})
    assert first_records((VERSION, ELR), usual.config) == (VERSION, ELR, min_isr("1"))
    assert first_records((VERSION, ELR), two.config) == (VERSION, ELR, min_isr("2"))


def test_a_set_min_isr_stays() -> None:
    given = (VERSION, ELR, min_isr("3"))
    assert first_records(given, context().config) == given


def test_without_the_feature_nothing_is_added() -> None:
    off = FeatureLevelRecord(name=ELR_VERSION, feature_level=0)
    assert first_records((VERSION,), context().config) == (VERSION,)
    assert first_records((VERSION, off), context().config) == (VERSION, off)
