"""Overrides are kept by resource, and an emptied resource is forgotten. Method: by hand."""

from ottla.metadata.image import ConfigsImage


def test_an_emptied_resource_is_forgotten() -> None:
    configs = ConfigsImage().with_value((2, "t"), "a", "1")
    assert dict(configs.of(2, "t")) == {"a": "1"}
    assert configs.with_value((2, "t"), "b", None) is configs
    assert configs.with_value((2, "t"), "a", None) == ConfigsImage()
    assert configs.without((2, "u")) is configs
    assert configs.without((2, "t")) == ConfigsImage()


def test_resources_come_in_order() -> None:
    configs = ConfigsImage()
    for resource in ((4, "2"), (2, "b"), (4, ""), (2, "a")):
        configs = configs.with_value(resource, "x", "1")
    assert configs.resources() == [(2, "a"), (2, "b"), (4, ""), (4, "2")]
    assert [resource for resource, _ in configs] == configs.resources()
