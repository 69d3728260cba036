"""Which domains may be fetched."""

from __future__ import annotations

import pytest

from pydantic_deep.web._domains import DomainRules, host_of, parse_domains


def rules(allow: list[str], deny: list[str], *, asks: bool = True) -> DomainRules:
    return DomainRules(allow=parse_domains('allow', allow), deny=parse_domains('deny', deny), asks=asks)


@pytest.mark.parametrize(
    ('allow', 'deny', 'host', 'verdict'),
    [
        (['python.org'], [], 'python.org', 'allow'),
        (['python.org'], [], 'docs.python.org', 'allow'),
        (['docs.python.org'], [], 'python.org', 'ask'),
        (['python.org'], [], 'notpython.org', 'ask'),
        (['python.org'], [], 'python.org.evil.com', 'ask'),
        (['python.org'], ['docs.python.org'], 'docs.python.org', 'deny'),
        (['python.org'], ['docs.python.org'], 'python.org', 'allow'),
        (['*'], ['evil.com'], 'www.evil.com', 'deny'),
        (['*'], ['evil.com'], 'python.org', 'allow'),
        ([], ['*'], 'python.org', 'deny'),
        (['Bücher.de.'], [], 'xn--bcher-kva.de', 'allow'),
        (['10.1.2.3', '2001:db8::1'], [], '10.1.2.3', 'allow'),
    ],
)
def test_domain_matches_its_subdomains_and_denials_win(
    allow: list[str], deny: list[str], host: str, verdict: str
) -> None:
    """An entry matches the domain and what is below it, in every spelling; `deny` wins over `allow`."""
    assert rules(allow, deny).verdict(host) == verdict


@pytest.mark.parametrize(
    ('url', 'host'),
    [
        ('https://Docs.Python.org./3?q=1', 'docs.python.org'),
        ('https://me:secret@python.org:8443/', 'python.org'),
        ('https://python.org@evil.com/', 'evil.com'),
        ('https://evil\u3002com/', 'evil.com'),
        ('https://ＥＶＩＬ.com/', 'evil.com'),
        ('http://[::1]:80/', '::1'),
        ('http://[::1', None),
        ('python.org/3', None),
        ('https:///path', None),
        ('https://a..b/', None),
        ('https://[fe80::1%25eth0]/', None),
    ],
)
def test_host_is_compared_in_the_form_that_is_resolved(url: str, host: str | None) -> None:
    """Letters, ports, credentials and look-alike characters of a URL do not change the domain that rules see."""
    assert host_of(url) == host


@pytest.mark.parametrize(
    ('allow', 'deny', 'hosts'),
    [
        ([], [], ['python.org', 'www.python.org']),
        (['pypi.org'], [], ['python.org', 'www.python.org', 'pypi.org']),
        (['pypi.org'], ['www.python.org', 'pypi.org'], ['python.org']),
        (['*'], ['evil.com'], ['python.org', 'www.python.org']),
        (['*'], [], None),
    ],
)
def test_redirects_lead_only_to_hosts_that_need_no_approval(
    allow: list[str], deny: list[str], hosts: list[str] | None
) -> None:
    """A redirect may add or remove `www.` and lead to allowed domains, but never to a denied one."""
    assert rules(allow, deny).redirect_hosts('python.org') == hosts


def test_redirect_may_remove_www() -> None:
    """A host with `www.` may redirect to the one without."""
    assert rules([], []).redirect_hosts('www.python.org') == ['www.python.org', 'python.org']


def test_refusal_names_some_of_the_allowed_domains() -> None:
    """A refusal names the domain and what is allowed instead, in a short list."""
    many = [f'{letter}.org' for letter in 'abcdefghijkl']
    assert rules([], [], asks=False).refusal('evil.com') == (
        "The domain 'evil.com' is not allowed. Allowed: none. Continue without it."
    )
    assert rules(many, [], asks=False).refusal('evil.com') == (
        "The domain 'evil.com' is not allowed. Allowed: a.org, b.org, c.org, d.org, e.org, f.org, g.org, h.org, i.org, "
        'j.org, …. Continue without it.'
    )


@pytest.mark.parametrize('domain', ['https://python.org/3', '*.python.org', '', 'a b', 'x' * 64])
def test_entry_that_is_no_domain_is_refused(domain: str) -> None:
    """A URL or a pattern in a list is an error that says what to write."""
    with pytest.raises(ValueError, match=r"`deny` has .*, which is not a domain\. Use one like 'python\.org'"):
        parse_domains('deny', [domain])
