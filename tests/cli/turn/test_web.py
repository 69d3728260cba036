"""The web on the command line: off by default, with the domains of the configuration."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ddgs.ddgs import DDGS
from typer.testing import Result

from pydantic_deep.testing import ScriptedModel, call

Invoke = Callable[..., Result]

FETCH = call('web_fetch', url='https://docs.python.org/3/')
DENIED = 'Nobody lets this call run'
PRIVATE = 'private/internal IP address'


@pytest.fixture(autouse=True)
def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All names have a private address, so that no page is fetched; searches find nothing."""
    searches: list[str] = []
    real = socket.getaddrinfo

    def resolve(host: str, *args: Any, **kwargs: Any) -> list[Any]:
        return real('10.0.0.1', *args, **kwargs)

    def text(self: DDGS, query: str, **options: Any) -> list[dict[str, str]]:
        searches.append(query)
        return []

    monkeypatch.setattr(socket, 'getaddrinfo', resolve)
    monkeypatch.setattr(DDGS, 'text', text)
    return searches


def configure(work: Path, invoke: Invoke, text: str) -> None:
    (work / 'pydantic-deep.toml').write_text(text)
    assert invoke('config', 'trust', '--yes').exit_code == 0


def result_of(model: ScriptedModel) -> str:
    return str(model.requests[-1].tool_returns[-1].content)


@pytest.mark.parametrize(('options', 'has_web'), [((), False), (('--web',), True), (('--no-web',), False)])
def test_agent_has_the_web_only_with_the_option(invoke: Invoke, options: tuple[str, ...], has_web: bool) -> None:
    """Without the option, the agent has no tool for the web."""
    model = ScriptedModel('done')
    assert invoke('run', 'Go', *options, model=model).exit_code == 0
    assert ('web_fetch' in [tool.name for tool in model.requests[0].tools]) is has_web


def test_search_runs_and_a_page_asks(invoke: Invoke, searches: list[str]) -> None:
    """A search needs no approval; a page of a domain that nobody has allowed does."""
    model = ScriptedModel(call('web_search', query='tea'), FETCH, 'done')
    assert invoke('run', 'Go', '--web', '--approvals=deny', model=model).exit_code == 0
    assert searches == ['tea']
    assert DENIED in result_of(model)


@pytest.mark.parametrize(
    ('rule', 'result'),
    [
        ('{allow = ["python.org"]}', PRIVATE),
        ('false', PRIVATE),
        ('true', DENIED),
        ('{allow = ["python.org"], deny = ["docs.python.org"]}', "The domain 'docs.python.org' is denied."),
    ],
)
def test_rules_of_the_configuration_decide(work: Path, invoke: Invoke, rule: str, result: str) -> None:
    """The key `web` switches the web on, and the rule for `web_fetch` has its domains."""
    configure(work, invoke, f'web = true\n[rules]\nweb_fetch = {rule}\n')
    model = ScriptedModel(FETCH, 'done')
    assert invoke('run', 'Go', '--approvals=deny', model=model).exit_code == 0
    assert result in result_of(model)
    model = ScriptedModel('done')
    assert invoke('run', 'Go', '--no-web', model=model).exit_code == 0
    assert 'web_fetch' not in [tool.name for tool in model.requests[0].tools]


def test_question_about_a_project_shows_that_it_uses_the_web(work: Path, invoke: Invoke) -> None:
    """Before a project is trusted, the web and the domains that need no approval are shown."""
    (work / 'pydantic-deep.toml').write_text('web = true\n[rules]\nweb_fetch = {allow = ["python.org"]}\n')
    shown = invoke('config', 'trust', '--yes').stdout
    assert '  web: true\n' in shown
    assert "rule for web_fetch: runs WITHOUT APPROVAL if it matches ['python.org']" in shown


def test_invalid_domain_is_refused_before_the_turn(work: Path, invoke: Invoke) -> None:
    """An entry that is not a domain is wrong usage, with what to write."""
    configure(work, invoke, '[rules]\nweb_fetch = {allow = ["https://python.org"]}\n')
    result = invoke('run', 'Go', '--web', model=ScriptedModel())
    assert result.exit_code == 2
    assert "rules.web_fetch: `allow` has 'https://python.org', which is not a domain." in result.stderr


def test_missing_extra_is_named(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, the option is wrong usage, with what to install."""

    def _find_spec(name: str) -> None:
        return None

    monkeypatch.setattr('pydantic_deep.web._download.find_spec', _find_spec)
    result = invoke('run', 'Go', '--web', model=ScriptedModel())
    assert result.exit_code == 2
    assert "pip install 'versioned-deep-agents[web]'" in result.stderr


def test_turn_resumes_and_replays_with_the_web(work: Path, invoke: Invoke) -> None:
    """A version stores that its turn has the web, so `resume` and `replay` have it without the option."""
    paused = invoke('run', 'Go', '--web', '--approvals=pause', model=ScriptedModel(FETCH))
    assert paused.exit_code == 5
    model = ScriptedModel('done')
    assert invoke('resume', '--approvals=allow', model=model).exit_code == 0
    assert PRIVATE in result_of(model)
    assert invoke('replay', model=ScriptedModel()).exit_code == 0
