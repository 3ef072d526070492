"""Every mutant still changes the product as it says, and is gone when its time is over.

`test_standard_mix` plays those that are known to show.
"""

import pytest

from .mutants import MUTANTS, Mutant, edited_code, function_of


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.name)
def test_a_mutant_changes_its_functions_for_a_while(mutant: Mutant) -> None:
    before = [function_of(edit.target).__code__ for edit in mutant.edits]
    with mutant.applied():
        during = [function_of(edit.target).__code__ for edit in mutant.edits]
    assert all(now is not then for now, then in zip(during, before, strict=True))
    assert [function_of(edit.target).__code__ for edit in mutant.edits] == before
    assert all(edited_code(edit).co_name == edit.target.split(".")[-1].split(":")[-1]
               for edit in mutant.edits)  # fmt: skip
