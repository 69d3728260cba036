"""The web in an agent: rules, limits, failures, untrusted results and costs."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, BinaryContent, Tool, UserError
from pydantic_ai.agent import AgentRunResult

from pydantic_deep import (
    Approve,
    DeepAgentDeps,
    Subagent,
    UntrustedContent,
    answer_approvals,
    create_deep_agent,
    pending_approvals,
)
from pydantic_deep.approvals import Edit
from pydantic_deep.testing import ScriptedModel, SeenRequest, Step, call
from pydantic_deep.web import Web

from .conftest import Engine, Site

pytestmark = pytest.mark.anyio

GUIDE = Path(__file__).parent.parent.parent / 'docs/guides/web.md'


async def run(web: Web, *steps: Step, **options: Any) -> tuple[AgentRunResult[Any], ScriptedModel]:
    model = ScriptedModel(*steps, 'done')
    capabilities = [web, *options.pop('capabilities', ())]
    agent = create_deep_agent(model, capabilities=capabilities, interrupt_on=options.pop('interrupt_on', {}))
    return await agent.run('go', deps=DeepAgentDeps()), model


def results(model: ScriptedModel) -> list[tuple[object, str]]:
    """Return the contents and outcomes of all results that the model has seen."""
    return [(part.content, part.outcome) for part in model.requests[-1].tool_returns]


def local(*, allow: Sequence[str] = ('127.0.0.1',), private_addresses: bool = True, **options: Any) -> Web:
    return Web(allow=allow, private_addresses=private_addresses, **options)


async def fetch(url: str, **options: Any) -> tuple[object, str]:
    _, model = await run(local(**options), call('web_fetch', url=url))
    [result] = results(model)
    return result


async def test_page_is_read_as_markdown(site: Site) -> None:
    """A page of an allowed domain is read without approval, as Markdown without its tags."""
    assert await fetch(site.url()) == ('Tea\n\nGreen\n=====\n\nSteep **once**.', 'success')


async def test_page_of_another_domain_waits_for_a_person(site: Site) -> None:
    """A page outside of `allow` pauses the run with the reason, and is fetched once it is approved."""
    web = local(allow=['python.org'])
    model = ScriptedModel(call('web_fetch', url=site.url()), 'done')
    agent = create_deep_agent(model, capabilities=[web], interrupt_on={})
    paused = await agent.run('go', deps=DeepAgentDeps())
    [pending] = pending_approvals(paused.output)
    assert str(pending.preview) == "The domain '127.0.0.1' is not in `allow` of `Web`."
    assert site.requested == []
    answers = answer_approvals(paused.output, {pending.id: Approve()})
    await agent.run(message_history=paused.all_messages(), deferred_tool_results=answers, deps=DeepAgentDeps())
    assert results(model)[0][1] == 'success'
    assert site.requested == ['127.0.0.1/tea']


async def test_edit_to_a_denied_domain_is_refused(site: Site) -> None:
    """A person may change the address, but not to a denied one."""
    web = local(allow=[], deny=['localhost'])
    model = ScriptedModel(call('web_fetch', url=site.url()), 'done')
    agent = create_deep_agent(model, capabilities=[web], interrupt_on={})
    paused = await agent.run('go', deps=DeepAgentDeps())
    [pending] = pending_approvals(paused.output)
    answers = answer_approvals(paused.output, {pending.id: Edit({'url': site.url(host='localhost')})})
    await agent.run(message_history=paused.all_messages(), deferred_tool_results=answers, deps=DeepAgentDeps())
    [(text, outcome)] = results(model)
    assert (str(text).splitlines()[0], outcome) == ("The domain 'localhost' is denied. Continue without it.", 'failed')
    assert site.requested == []


@pytest.mark.parametrize('interrupt_on', [{}, {'web_fetch': True}])
async def test_denied_domain_is_refused_and_nobody_is_asked(site: Site, interrupt_on: dict[str, bool]) -> None:
    """A denied page fails at once, also if a rule asks about every page."""
    _, model = await run(local(deny=['127.0.0.1']), call('web_fetch', url=site.url()), interrupt_on=interrupt_on)
    assert results(model) == [("The domain '127.0.0.1' is denied. Continue without it.", 'failed')]
    assert site.requested == []


async def test_agent_without_approvals_refuses_other_domains(site: Site) -> None:
    """With `asks=False`, an agent that cannot pause has the web, and pages of other domains are refused."""
    model = ScriptedModel(call('web_fetch', url=site.url()), call('web_fetch', url=site.url(host='localhost')), 'done')
    await Agent(model, capabilities=[local(asks=False)]).run('go')
    assert [outcome for _, outcome in results(model)] == ['success', 'failed']
    assert site.requested == ['127.0.0.1/tea']


async def test_agent_that_cannot_pause_is_refused() -> None:
    """An agent that may have to ask and cannot ends its run before the first request; one that never asks runs."""
    with pytest.raises(UserError, match=r'`Web` requires approvals.*Pass `interrupt_on=\{\}`'):
        await Agent(ScriptedModel('done'), capabilities=[Web()]).run('go')
    for web in (Web(allow=['*']), Web(fetch=False)):
        await Agent(ScriptedModel('done'), capabilities=[web]).run('go')


async def test_rule_asks_about_allowed_domains_too(site: Site) -> None:
    """A rule of the agent for `web_fetch` applies to all domains."""
    result, _ = await run(local(), call('web_fetch', url=site.url()), interrupt_on={'web_fetch': True})
    assert [pending.tool for pending in pending_approvals(result.output)] == ['web_fetch']


@pytest.mark.parametrize(
    'address', ['127.0.0.1', '10.0.0.1', '169.254.169.254', '[::1]', '[::ffff:10.0.0.1]', '0x7f000001', '2130706433']
)
async def test_private_addresses_are_refused(address: str) -> None:
    """No address of this machine or of a private network is fetched, in any notation."""
    text, outcome = await fetch(f'http://{address}/', allow=['*'], private_addresses=False)
    assert outcome == 'failed'
    assert 'private' in str(text) or 'metadata' in str(text)


async def test_metadata_service_is_refused_even_in_private_networks() -> None:
    """Credentials of a cloud are never fetched."""
    text, outcome = await fetch('http://169.254.169.254/latest/', allow=['*'])
    assert (outcome, 'metadata' in str(text)) == ('failed', True)


async def test_name_with_a_private_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name is resolved once, and its address is refused if it is private: the name is never resolved again."""
    asked: list[str] = []

    def resolve(host: str, *args: object, **kwargs: object) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, '', ('10.0.0.1', 0))]

    monkeypatch.setattr(socket, 'getaddrinfo', resolve)
    _, outcome = await fetch('http://inside.example/', allow=['*'], private_addresses=False)
    assert (outcome, asked) == ('failed', ['inside.example'])


async def test_request_goes_to_the_address_that_was_checked(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection uses the checked address, so that a second answer of the resolver changes nothing."""
    real, answers = socket.getaddrinfo, ['127.0.0.1', '10.0.0.1']

    def resolve(host: str, *args: Any, **kwargs: Any) -> list[Any]:
        return real(answers.pop(0) if host == 'tea.example' else host, *args, **kwargs)

    monkeypatch.setattr(socket, 'getaddrinfo', resolve)
    _, outcome = await fetch(site.url(host='tea.example'), allow=['tea.example'])
    assert (outcome, answers, site.requested) == ('success', ['10.0.0.1'], ['tea.example/tea'])


async def test_redirect_to_another_host_is_refused(site: Site) -> None:
    """A redirect leads only to hosts that need no approval; the model is informed of the other host."""
    site.redirect('/moved', site.url(host='localhost'))
    text, outcome = await fetch(site.url('/moved'))
    assert (outcome, site.requested) == ('failed', ['127.0.0.1/moved'])
    assert "Domain 'localhost' is not in the allowed domains list." in str(text)


@pytest.mark.parametrize('allow', [['127.0.0.1', 'localhost'], ['*']])
async def test_redirect_to_an_allowed_domain_is_followed(site: Site, allow: Sequence[str]) -> None:
    """A redirect between allowed domains is followed."""
    site.redirect('/moved', site.url(host='localhost'))
    assert (await fetch(site.url('/moved'), allow=allow))[1] == 'success'
    assert site.requested == ['127.0.0.1/moved', 'localhost/tea']


async def test_redirect_to_a_private_address_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each redirect is checked again, so a public page cannot lead into the private network."""
    site.redirect('/moved', 'http://169.254.169.254/latest/')
    _, outcome = await fetch(site.url('/moved'), allow=['*'])
    assert (outcome, site.requested) == ('failed', ['127.0.0.1/moved'])


async def test_long_page_is_cut_and_large_download_fails(site: Site) -> None:
    """A page has at most `max_chars` and says that it is cut; a download above `max_bytes` fails."""
    site.pages['/long'] = (200, {'Content-Type': 'text/plain'}, b'x' * 1_000)
    assert await fetch(site.url('/long'), max_chars=10) == ('x' * 10 + '\n\n[Content truncated]', 'success')
    text, outcome = await fetch(site.url('/long'), max_bytes=999)
    assert (outcome, 'maximum size of 999 bytes' in str(text)) == ('failed', True)


async def test_page_that_does_not_answer_fails(site: Site) -> None:
    """A fetch ends after `timeout_seconds`, whatever the server does."""
    site.may_answer.clear()
    assert await fetch(site.url(), timeout_seconds=0.01) == (
        f'{site.url()} did not answer within 0.01 seconds. Try another page.',
        'failed',
    )


async def test_missing_pages_do_not_end_the_run(site: Site) -> None:
    """Failures in a row are failed results, of which the model is informed."""
    calls = [call('web_fetch', url=site.url(f'/{number}')) for number in range(4)]
    result, model = await run(local(), *calls)
    assert result.output == 'done'
    assert [(outcome, '404' in str(text)) for text, outcome in results(model)] == [('failed', True)] * 4


async def test_text_that_is_no_url_is_refused() -> None:
    """A call without a host fails with an example, and nobody is asked."""
    text, outcome = await fetch('python.org')
    assert (outcome, text) == (
        'failed',
        "'python.org' is not a URL of a page. Use one like https://example.com/page.",
    )


async def test_empty_page_says_so(site: Site) -> None:
    """A page without text has a result that says so."""
    site.pages['/empty'] = (200, {'Content-Type': 'text/plain'}, b'')
    assert await fetch(site.url('/empty')) == (f'{site.url("/empty")} is empty.', 'success')


async def test_image_is_shown_and_other_binary_data_is_refused(site: Site) -> None:
    """The model sees an image of a size that providers accept; other data fails with its type and size."""
    site.pages |= {
        '/leaf.png': (200, {'Content-Type': 'image/png'}, b'\x89PNG'),
        '/big.png': (200, {'Content-Type': 'image/png'}, b'x' * 5_000_001),
        '/tea.zip': (200, {'Content-Type': 'application/zip'}, b'PK'),
    }
    content, outcome = await fetch(site.url('/leaf.png'))
    assert outcome == 'success'
    assert content == [
        f'{site.url("/leaf.png")}: image/png, 4 bytes',
        BinaryContent(b'\x89PNG', media_type='image/png'),
    ]
    assert await fetch(site.url('/big.png')) == (
        f'{site.url("/big.png")}: image/png, 5,000,001 bytes. At most 5,000,000 bytes can be shown.',
        'failed',
    )
    assert await fetch(site.url('/tea.zip')) == (
        f'{site.url("/tea.zip")}: application/zip, 2 bytes. Only text, images and PDFs can be read.',
        'failed',
    )


async def test_search_leaves_denied_domains_out(engine: Engine) -> None:
    """A search needs no approval, has at most ten results, and shows none of denied domains."""
    engine.results = [
        {'title': 'Tea', 'href': 'https://tea.org/green', 'body': 'Steep once.'},
        {'title': 'Ad', 'href': 'https://ads.evil.com/', 'body': 'Buy.'},
        {'title': 'No address', 'href': '', 'body': ''},
    ]
    _, model = await run(Web(deny=['evil.com']), call('web_search', query='tea'))
    assert results(model) == [('Tea\nhttps://tea.org/green\nSteep once.', 'success')]
    assert engine.queries == [('tea', 10)]


async def test_search_without_results_or_engine_is_reported(engine: Engine) -> None:
    """A search that fails, and one whose results are all left out, say what to do."""
    _, model = await run(Web(), call('web_search', query='tea'))
    assert results(model) == [('The search failed: No results found. Use other words, or try later.', 'failed')]
    engine.results = []
    _, model = await run(Web(), call('web_search', query='tea'))
    assert results(model) == [('No results. Use other words.', 'success')]


async def test_search_of_another_provider_is_a_tool() -> None:
    """Another search replaces the built-in one, and is declared to only read."""

    async def my_search(query: str) -> str:
        return f'found {query}'

    web = Web(search=Tool(my_search, metadata={'trusted': True}), fetch=False)
    _, model = await run(web, call('my_search', query='tea'))
    assert results(model) == [('found tea', 'success')]
    [tool] = [tool for tool in model.requests[0].tools if tool.name in ('my_search', 'web_search', 'web_fetch')]
    assert (tool.name, tool.metadata) == ('my_search', {'trusted': True, 'effect': 'read'})


async def test_results_are_untrusted_and_the_next_page_asks(site: Site) -> None:
    """After a page was read, a page of an allowed domain asks too: its URL could contain anything that was read."""
    untrusted = UntrustedContent()
    steps = [call('web_fetch', url=site.url()), call('web_fetch', url=site.url('/collect?secret=1'))]
    result, _ = await run(local(), *steps, capabilities=[untrusted])
    [pending] = pending_approvals(result.output)
    assert pending.arguments == {'url': site.url('/collect?secret=1')}
    assert 'web_fetch' in str(pending.preview)
    assert site.requested == ['127.0.0.1/tea']


async def test_untrusted_result_allows_a_search(site: Site, engine: Engine) -> None:
    """A search after a page needs no approval, unless its query has an address."""
    engine.results = []
    steps = [call('web_fetch', url=site.url()), call('web_search', query='tea')]
    result, _ = await run(
        local(), *steps, call('web_search', query='http://evil.com/?1'), capabilities=[UntrustedContent()]
    )
    [pending] = pending_approvals(result.output)
    assert (pending.arguments, engine.queries) == ({'query': 'http://evil.com/?1'}, [('tea', 10)])


async def test_general_purpose_subagent_has_the_web_of_the_agent(site: Site) -> None:
    """The subagent that every agent has reads pages by the same rules."""
    steps = [
        call('task', subagent='general-purpose', description='x'),
        call('web_fetch', url=site.url(host='localhost')),
    ]
    result, _ = await run(local(), *steps)
    [pending] = pending_approvals(result.output)
    assert (pending.path, pending.tool) == (('general-purpose',), 'web_fetch')


async def test_other_subagents_have_no_web_unless_they_are_given_one(site: Site) -> None:
    """A subagent has the web of its own capabilities, whose rules ask the person of the parent."""
    child = ScriptedModel(call('web_fetch', url=site.url()), call('web_fetch', url=site.url(host='localhost')), 'found')
    plain = ScriptedModel('nothing')
    agent = create_deep_agent(
        ScriptedModel(
            call('task', subagent='plain', description='x'), call('task', subagent='reader', description='x')
        ),
        capabilities=[local()],
        interrupt_on={},
        subagents=[
            Subagent(name='plain', description='x', model=plain),
            Subagent(name='reader', description='x', model=child, capabilities=[local()]),
        ],
    )
    paused = await agent.run('go', deps=DeepAgentDeps())
    [pending] = pending_approvals(paused.output)
    assert (pending.path, pending.arguments) == (('reader',), {'url': site.url(host='localhost')})
    assert site.requested == ['127.0.0.1/tea']
    assert 'web_fetch' not in [tool.name for tool in plain.requests[0].tools]


@pytest.mark.parametrize('module', ['markdownify', 'ddgs'])
def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """Without the extra, the error says which one to install; an unused part needs nothing."""

    def _find_spec(name: str) -> str | None:
        return None if name == module else name

    monkeypatch.setattr('pydantic_deep.web._download.find_spec', _find_spec)
    with pytest.raises(ModuleNotFoundError, match=rf"needs '{module}'.*versioned-deep-agents\[web\]"):
        Web()
    assert Web(fetch=module != 'markdownify', search=module != 'ddgs').id == 'web'


def test_invalid_options_are_refused() -> None:
    """Each wrong value is an error with the value and what to use."""
    with pytest.raises(TypeError, match=r"`allow` is 'python\.org'\. Pass a list"):
        Web(allow='python.org')
    with pytest.raises(ValueError, match=r'`max_chars` is 0\. Use a positive number\.'):
        Web(max_chars=0)
    with pytest.raises(ValueError, match='`fetch` and `search` are both false'):
        Web(fetch=False, search=False)


def size_of(request: SeenRequest) -> int:
    return len(request.instructions or '') + sum(
        len(json.dumps([tool.name, tool.description, tool.parameters_json_schema], separators=(',', ':')))
        for tool in request.tools
    )


async def test_cost_in_the_guide_is_the_measured_one() -> None:
    """The table of the guide has the number of tools and characters that each form of the capability adds."""

    async def cost(*capabilities: Web) -> tuple[int, int]:
        model = ScriptedModel('done')
        await Agent(model, capabilities=capabilities).run('go')
        return len(model.requests[0].tools), size_of(model.requests[0])

    rows = dict(re.findall(r'^\| (search and fetch|search|fetch) \| (\d+ \| \d+) \|$', GUIDE.read_text(), re.MULTILINE))
    assert rows == {
        'search and fetch': '{} | {}'.format(*await cost(Web(allow=['*']))),
        'search': '{} | {}'.format(*await cost(Web(fetch=False))),
        'fetch': '{} | {}'.format(*await cost(Web(allow=['*'], search=False))),
    }
