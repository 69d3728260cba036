"""Claims of directories: those of checkouts name their versions, and those of runs do not."""

from __future__ import annotations

from pydantic_deep.store import WorkspaceRecord, checkout_claim, new_id


def test_claim_of_a_checkout_names_each_version_once_in_order() -> None:
    claim = checkout_claim('b', 'a', 'b')
    assert WorkspaceRecord('{}', None, claim).checkouts == ('b', 'a')


def test_two_checkouts_of_one_version_have_their_own_claims() -> None:
    assert checkout_claim('a') != checkout_claim('a')


def test_run_in_a_directory_is_no_checkout() -> None:
    assert WorkspaceRecord('{}', 'a', new_id()).checkouts == ()
    assert WorkspaceRecord('{}', 'a', None).checkouts == ()
