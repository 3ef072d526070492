"""The standard mix of the simulator finds rules that are broken by a little.

Method: a rule is broken while standard seeds are played (see `standard_mix`); a checker of promises
must find it, not an assertion, nor missing progress. The seed that showed it last is played first.
Which one does shifts with every change of the product, so that `make test` plays only a few rules
that seed 1 shows, drawn by the commit; `make soak` plays all that are known to show.
"""

from itertools import islice

import pytest

from ..drawn import SIM_VARIANTS, drawn
from .found_out import STANDARD, ZOOKEEPER_STANDARD, find_out
from .rule import Rule
from .standard_mix import SHOWN_BY, likeliest_first, play_standard, rules

PLAYED = drawn(
    [each for each in rules() if each.name in SHOWN_BY],
    2,
    SIM_VARIANTS,
    suits=lambda each: SHOWN_BY[each.name] == 1,
)


@pytest.mark.parametrize("rule", list(rules()), ids=lambda each: each.name)
def test_there_still_is_what_a_rule_breaks(rule: Rule) -> None:
    with rule.breaks():
        pass


def test_each_rule_has_a_name_of_its_own() -> None:
    names = [each.name for each in rules()]
    assert len(set(names)) == len(names)
    assert not SHOWN_BY.keys() - set(names)


def test_the_seed_that_showed_a_rule_is_played_first_and_once() -> None:
    for rule in rules():
        seeds = list(islice(likeliest_first(rule), 20))
        assert seeds[0] == SHOWN_BY.get(rule.name, seeds[0])
        assert len(set(seeds)) == len(seeds)
        assert all(map(rule.suits, seeds))


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("rule", PLAYED, ids=lambda each: each.name)
def test_a_broken_rule_is_found(rule: Rule) -> None:
    find_out(
        rule.breaks,
        rule.by,
        likeliest_first(rule),
        lambda seed: play_standard(rule, seed),
        judged=ZOOKEEPER_STANDARD if rule.zookeeper else STANDARD,
    )
