"""A controller survives its record. Method: hypothesis draws controllers."""

from hypothesis import given, settings

from ottla.metadata.controllers import ControllerImage, controller_of, record_of
from tests.drawn import examples

from .images import controllers


@settings(max_examples=examples(50))
@given(controllers(5))
def test_a_controller_survives_its_record(controller: ControllerImage) -> None:
    assert controller_of(record_of(controller)) == controller
