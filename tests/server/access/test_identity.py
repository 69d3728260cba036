"""`Identity`, the arguments `authenticate` and `login_url`, and what is counted for an owner without a key."""

from __future__ import annotations

from typing import Any

import pytest

from pydantic_deep.errors import ValidationError
from pydantic_deep.server import Identity, InvalidIdentityError
from pydantic_deep.server.access._identity import Login, caller_of_host, create_login


def nobody(request: object) -> None:
    return None


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        ({'owner': 'ada', 'scopes': []}, 'scopes: at least one scope is required. Scopes: run, approve, audit, admin.'),
        (
            {'owner': 'ada', 'scopes': ['write']},
            "scopes: there is no scope 'write'. Scopes: run, approve, audit, admin.",
        ),
    ],
)
def test_identity_needs_known_scopes(arguments: dict[str, Any], message: str) -> None:
    """An identity without scopes, or with an unknown one, is an error that names the scopes."""
    with pytest.raises(InvalidIdentityError) as caught:
        Identity(**arguments)
    assert str(caught.value) == message


@pytest.mark.parametrize('arguments', [{'owner': ' '}, {'owner': 7}, {'owner': 'ada', 'agents': ['']}])
def test_identity_needs_names(arguments: dict[str, Any]) -> None:
    """A blank owner would own the conversations of everybody without a name."""
    with pytest.raises(ValidationError):
        Identity(**arguments)


def test_agents_of_an_identity_are_a_list() -> None:
    """A text contains each agent whose name is a part of it."""
    with pytest.raises(ValidationError, match=r'^agents: it is "analyst"\. Pass a list of names\.$'):
        Identity(owner='ada', agents='analyst')


def test_account_of_an_owner_is_not_that_of_a_key() -> None:
    """An owner with the id of a key as name has limits of their own."""
    assert caller_of_host(Identity(owner='ada')).account == 'owner:ada'


def test_login_is_optional() -> None:
    """Without `authenticate`, only keys are accepted; the address of the login is optional."""
    assert create_login(None, None, None) is None
    assert create_login(nobody, None, None) == Login(authenticate=nobody, url=None, logout_url=None)
    assert create_login(nobody, '/login', '/logout') == Login(authenticate=nobody, url='/login', logout_url='/logout')
    assert create_login(nobody, 'https://login.example.com', None) is not None


@pytest.mark.parametrize(
    ('authenticate', 'url', 'message'),
    [
        (None, '/login', 'login_url: it needs `authenticate`. Pass both, or neither.'),
        (
            nobody,
            'javascript:alert(1)',
            "login_url: it is 'javascript:alert(1)'. Pass a path that starts with `/`, or an `https:` address.",
        ),
        (nobody, '', 'login_url: it is empty. Omit it, or pass a text.'),
    ],
)
def test_invalid_login_is_refused(authenticate: Any, url: str, message: str) -> None:
    """The page links to the login and the logout, so they must be addresses that a browser opens."""
    with pytest.raises(ValidationError) as caught:
        create_login(authenticate, url, None)
    assert str(caught.value) == message
    with pytest.raises(ValidationError) as caught:
        create_login(authenticate, None, url)
    assert str(caught.value) == message.replace('login_url', 'logout_url')
