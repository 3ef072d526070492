"""A request's parts hold all of it, each name in one part, and no part is much too large.

Method: hypothesis over names and sizes.
"""

from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.parts import in_parts

ASKED = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 5)))


@given(ASKED, st.integers(1, 6))
def test_parts_are_bounded_and_keep_equal_names_together(
    asked: list[tuple[str, int]], size_max: int
) -> None:
    parts = in_parts(asked, lambda each: each[0], size_max, lambda each: each[1])
    assert sorted(each for part in parts for each in part) == sorted(asked)
    names = [list(dict.fromkeys(name for name, _ in part)) for part in parts]
    assert [name for of_part in names for name in of_part] == list(
        dict.fromkeys(name for name, _ in asked)
    )
    assert all(parts) or not asked
    for part, of_part in zip(parts, names, strict=True):
        assert len(of_part) <= size_max
        sizes = dict(reversed(part))
        assert sum(sizes[name] for name in of_part[:-1]) < size_max or not part


def test_a_request_for_nothing_is_one_part() -> None:
    assert in_parts((), str, 5) == [()]
