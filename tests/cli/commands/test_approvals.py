"""Pending approvals, listed and answered by `approvals`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from anyio.to_thread import run_sync
from inline_snapshot import snapshot
from pydantic_ai import DeferredToolRequests
from pydantic_ai.messages import ModelMessage, ToolCallPart
from pydantic_ai.models.function import AgentInfo
from typer.testing import Result

from pydantic_deep import LocalBackend, StateBackend, create_deep_agent
from pydantic_deep.cli.commands._approvals import delegation_path
from pydantic_deep.store import Store, VersionFilter, open_store
from pydantic_deep.store._samples import Dialogue, sample_approval
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.versions import VersionedAgent

Invoke = Callable[..., Result]

EDIT = call('edit_file', path='/poem.txt', old_string='violet', new_string='lily\x1b')
WRITE = call('write_file', path='/new.txt', content='new\n')


def told(messages: list[ModelMessage], info: AgentInfo) -> str:
    """Answer with the last tool results."""
    return '\n'.join(str(part.content) for part in messages[-1].parts if part.part_kind == 'tool-return')


def document(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture
def waiting(invoke: Invoke) -> list[str]:
    """The ids of two pending approvals of one version."""
    invoke('run', 'Go', '--approvals=pause', model=ScriptedModel([WRITE, EDIT]))
    return [row['id'] for row in document(invoke('approvals', 'list', '--json'))]


def test_list_shows_the_full_view_of_each_call(invoke: Invoke, waiting: list[str], work: Path) -> None:
    text = invoke('approvals', 'list').stdout
    digests = [row['view']['digest'] for row in document(invoke('approvals', 'list', '--json'))]
    for number, (id, digest) in enumerate(zip(waiting, digests, strict=True)):
        text = text.replace(f'{id[-8:]}:{digest[:8]}', f'approval{number}:digest{number}')
    version = document(invoke('log', '--json'))[0]['id'][-8:]
    assert text.replace(version, 'theversion').replace(str(work), '/work') == snapshot("""\
approval0:digest0 pending now  version theversion of command-line
in /work
? write_file
  path: /new.txt
  content: \n\
  │ new
  │ --- /dev/null
  │ +++ b/new.txt
  │ @@ -0,0 +1 @@
  │ +new

approval1:digest1 pending now  version theversion of command-line
in /work
? edit_file
  path: /poem.txt
  old_string: violet
  new_string: lily\\x1b
  │ --- a/poem.txt
  │ +++ b/poem.txt
  │ @@ -1,2 +1,2 @@
  │  rose
  │ -violet
  │ +lily\\x1b
  invisible characters, escaped: 2
""")


def test_resume_uses_answers_given_one_by_one(invoke: Invoke, waiting: list[str], work: Path) -> None:
    first = invoke('approvals', 'answer', waiting[0][-8:], '--approve', variables={'USER': 'anna'})
    version = document(invoke('log', '--json'))[0]['id'][-8:]
    assert first.stdout == f'approved write_file by anna\nVersion {version} has 1 more to answer.\n'
    second = invoke('approvals', 'answer', waiting[1], '--deny', 'Keep violet.', '--by', 'bob')
    assert (
        second.stdout
        == f'denied edit_file by bob\nAll approvals are answered. Resume with: pydantic-deep resume {version}\n'
    )
    assert invoke('approvals', 'list').stderr == 'No approvals are pending.\n'
    result = invoke('resume', model=ScriptedModel(told))
    assert result.stdout == ('Created /new.txt: 1 line, 4 bytes.\nA person denied this call: Keep violet.\n')
    assert (work / 'new.txt').exists()


def test_resume_prompts_only_for_unanswered_approvals(
    invoke: Invoke, waiting: list[str], work: Path, make_terminal: Callable[..., Any]
) -> None:
    invoke('approvals', 'answer', waiting[0], '--approve')
    terminal = make_terminal('n', '')
    assert invoke('resume', model=ScriptedModel('Done.'), terminal=terminal).exit_code == 0
    assert '? edit_file' in terminal.shown
    assert '? write_file' not in terminal.shown
    rows = document(invoke('approvals', 'list', '--status', 'all', '--json'))
    assert [(row['status'], row['decided_by']) for row in rows] == [('approved', 'person'), ('denied', 'person')]


def test_resume_pauses_at_later_calls_after_all_answers_were_given(
    invoke: Invoke, waiting: list[str], work: Path
) -> None:
    for id in waiting:
        invoke('approvals', 'answer', id, '--deny', '')
    result = invoke('resume', '--approvals=pause', model=ScriptedModel(WRITE))
    assert result.exit_code == 5
    assert not (work / 'new.txt').exists()


def test_answer_with_edited_arguments_and_with_a_response(invoke: Invoke, waiting: list[str], work: Path) -> None:
    row = document(invoke('approvals', 'answer', waiting[0], '--edit', '{"path": "/b.txt", "content": "b"}', '--json'))
    assert (row['id'], row['status'], row['reason']) == (waiting[0], 'edited', None)
    assert invoke('approvals', 'answer', waiting[1], '--respond', 'It is fine as it is.').exit_code == 0
    result = invoke('resume', model=ScriptedModel(told))
    assert result.stdout.endswith('It is fine as it is.\n')
    assert (work / 'b.txt').read_text() == 'b'


def test_answer_with_json(invoke: Invoke, waiting: list[str]) -> None:
    """The result that replaces a call may be any JSON, as on the page; `NaN` is none."""
    refused = invoke('approvals', 'answer', waiting[0], '--respond-json', '[NaN]')
    assert refused.exit_code == 2
    assert 'This is not JSON' in refused.stderr
    row = document(invoke('approvals', 'answer', waiting[0], '--respond-json', '{"degrees": [1.0, null]}', '--json'))
    assert (row['status'], row['response']) == ('responded', {'degrees': [1.0, None]})


def test_list_shows_edited_arguments_and_denial_reasons(invoke: Invoke, waiting: list[str], work: Path) -> None:
    edit = '{"path": "/b.txt", "content": "b\\nc\\n"}'
    invoke('approvals', 'answer', waiting[0], '--edit', edit, '--by', 'anna')
    invoke('approvals', 'answer', waiting[1], '--deny', 'Keep violet.', '--by', 'bob')
    rows = document(invoke('approvals', 'list', '--status', 'all', '--json'))
    assert [(row['edited_args'], row['reason']) for row in rows] == [
        ({'path': '/b.txt', 'content': 'b\nc\n'}, None),
        (None, 'Keep violet.'),
    ]
    text = invoke('approvals', 'list', '--status', 'all').stdout
    first, second = text.split('\n\n')
    assert first[first.index('edited to') :] == snapshot("""\
edited to
  path: /b.txt
  content: \n\
  │ b
  │ c\
""")
    assert second.splitlines()[-1] == 'because Keep violet.'


def test_list_shows_the_results_that_people_gave(invoke: Invoke, waiting: list[str]) -> None:
    """The list has the text that the model gets in place of a result. Invisible characters are escaped."""
    invoke('approvals', 'answer', waiting[0], '--respond', 'It is\nfine\u202e.', '--by', 'anna')
    rows = document(invoke('approvals', 'list', '--status', 'all', '--json'))
    assert [row['response'] for row in rows] == ['It is\nfine\u202e.', None]
    first, second = invoke('approvals', 'list', '--status', 'all').stdout.split('\n\n')
    assert first.splitlines()[-2:] == ['result It is', 'fine\\u202e.']
    assert 'result ' not in second


def test_denial_reason_from_the_prompt_is_listed(invoke: Invoke, make_terminal: Callable[..., Any]) -> None:
    invoke('run', 'Go', model=ScriptedModel(WRITE, 'Done.'), terminal=make_terminal('n', 'Not now.'))
    (row,) = document(invoke('approvals', 'list', '--status', 'all', '--json'))
    assert row['reason'] == 'Not now.'


def test_denial_without_reason_lists_no_reason(invoke: Invoke, make_terminal: Callable[..., Any]) -> None:
    invoke('run', 'Go', model=ScriptedModel(WRITE, 'Done.'), terminal=make_terminal('n', ''))
    assert document(invoke('approvals', 'list', '--status', 'all', '--json'))[0]['reason'] is None
    assert 'because' not in invoke('approvals', 'list', '--status', 'all').stdout


@pytest.mark.parametrize(
    ('edit', 'sentence'),
    [
        ('{"path": 3, "content": "b"}', "The argument 'path' is 3, and must be of type string."),
        ('{"pth": "/b", "content": "b"}', "There is no argument 'pth'. Known: content, path."),
        ('{"path": "/b"}', "The argument 'content' is missing."),
    ],
)
def test_edit_with_arguments_invalid_for_the_tool_is_refused(
    invoke: Invoke, waiting: list[str], edit: str, sentence: str
) -> None:
    result = invoke('approvals', 'answer', waiting[0], '--edit', edit)
    assert result.exit_code == 2
    assert f'write_file does not accept these arguments. {sentence}' in ' '.join(result.stderr.replace('│', '').split())
    assert invoke('approvals', 'answer', waiting[0], '--approve').exit_code == 0


@pytest.fixture
def subagent_approval_id(invoke: Invoke) -> str:
    """The id of a pending approval in a subagent. The id of its `task` call has a slash, and an approval before it was
    answered."""
    task = ToolCallPart('task', {'subagent': 'general-purpose', 'description': 'Write'}, tool_call_id='a/%b')
    invoke('run', 'Go', '--approvals=pause', model=ScriptedModel(task, EDIT))
    (row,) = document(invoke('approvals', 'list', '--json'))
    invoke('approvals', 'answer', row['id'], '--approve')
    invoke('resume', '--approvals=pause', model=ScriptedModel(WRITE))
    (row,) = document(invoke('approvals', 'list', '--json'))
    assert (row['path'], row['tool']) == (['general-purpose'], 'write_file')
    return row['id']


@pytest.mark.slow
def test_edit_with_arguments_invalid_for_a_subagent_tool_is_refused(
    invoke: Invoke, subagent_approval_id: str, work: Path
) -> None:
    result = invoke('approvals', 'answer', subagent_approval_id, '--edit', '{"pth": 3}')
    assert result.exit_code == 2
    sentence = "write_file does not accept these arguments. There is no argument 'pth'. Known: content, path."
    assert sentence in ' '.join(result.stderr.replace('│', '').split())
    edit = '{"path": "/b.txt", "content": "b"}'
    assert invoke('approvals', 'answer', subagent_approval_id, '--edit', edit).exit_code == 0
    invoke('resume', model=ScriptedModel('Written.', 'Done.'))
    assert (work / 'b.txt').read_text() == 'b'


@pytest.mark.anyio
async def test_subagent_arguments_are_not_validated_without_a_stored_version(
    invoke: Invoke, subagent_approval_id: str, tmp_path: Path
) -> None:
    async with open_store(f'sqlite:///{tmp_path}/state/pydantic-deep/agents.db') as store:
        for record in await store.versions(VersionFilter(agent_name='general-purpose')):
            await store.delete(record.id)
    edit = ('approvals', 'answer', subagent_approval_id, '--edit', '{"pth": 3}')
    assert (await run_sync(partial(invoke, *edit))).exit_code == 0


@pytest.mark.anyio
async def test_list_shows_the_backend_of_each_approval(invoke: Invoke, tmp_path: Path, work: Path) -> None:
    url = f'sqlite:///{tmp_path}/program.db'
    agent = create_deep_agent(ScriptedModel(WRITE, WRITE), interrupt_on={'write_file': True})
    async with open_store(url) as store:
        for backend in (LocalBackend(work), StateBackend()):
            await (await VersionedAgent(agent, store).create(backend=backend)).advance('Go')
    shown = (await run_sync(lambda: invoke('approvals', 'list', '--store', url))).stdout
    directory, memory = (line.removeprefix('in ') for line in shown.splitlines() if line.startswith('in '))
    assert (directory, memory.partition(':')[0]) == (str(work), 'state')


def test_answered_approvals_are_listed_after_their_version_was_deleted(
    invoke: Invoke, waiting: list[str], tmp_path: Path
) -> None:
    async def delete(version_id: str) -> None:
        async with open_store(f'sqlite:///{tmp_path}/state/pydantic-deep/agents.db') as store:
            await store.delete(version_id)

    before = document(invoke('approvals', 'answer', waiting[0], '--deny', 'No.', '--json'))
    anyio.run(delete, before['version_id'])
    (row,) = document(invoke('approvals', 'list', '--status', 'all', '--json'))
    assert row == {**before, 'decisions': []}
    assert document(invoke('approvals', 'list', '--json')) == []


def test_unknown_approval_status_is_refused(invoke: Invoke, waiting: list[str]) -> None:
    result = invoke('approvals', 'list', '--status', 'lost')
    assert result.exit_code == 2
    assert "'lost' is not one of pending, approved," in result.stderr


def test_second_answer_is_refused_and_names_the_first_decider(invoke: Invoke, waiting: list[str]) -> None:
    invoke('approvals', 'answer', waiting[0], '--approve', '--by', 'anna')
    result = invoke('approvals', 'answer', waiting[0], '--deny', 'No.')
    assert (result.exit_code, result.stdout) == (1, '')
    assert f'The approval {waiting[0]} was approved by anna at ' in result.stderr
    listed = invoke('approvals', 'list', '--status', 'approved').stdout
    assert re.match(f'{waiting[0][-8:]}:[0-9a-f]{{8}} approved by anna now', listed)


def test_answer_is_refused_when_the_digest_does_not_match(invoke: Invoke, waiting: list[str]) -> None:
    """`list` shows a digest for each call, and `answer` refuses a call with another digest without recording an answer."""
    shown = document(invoke('approvals', 'list', '--json'))
    names = [f'{row["id"][-8:]}:{row["view"]["digest"][:8]}' for row in shown]
    for wrong in ('', shown[0]['view']['digest'][:7], shown[1]['view']['digest'][:8]):
        result = invoke('approvals', 'answer', f'{waiting[0]}:{wrong}', '--approve')
        assert (result.exit_code, result.stdout) == (2, '')
        assert 'has changed since it was shown' in result.stderr
    assert len(document(invoke('approvals', 'list', '--json'))) == 2
    assert invoke('approvals', 'answer', names[0].upper(), '--approve').exit_code == 0


def test_list_filters_by_agent_and_limit(invoke: Invoke, waiting: list[str]) -> None:
    assert len(document(invoke('approvals', 'list', '--agent', 'command-line', '-n', '1', '--json'))) == 1
    assert document(invoke('approvals', 'list', '--agent', 'nobody', '--json')) == []
    assert invoke('approvals', 'list', '--status', 'denied').stderr == 'No approvals found.\n'


@pytest.mark.parametrize(
    ('options', 'sentence'),
    [
        ((), 'use exactly one of --approve, --deny, --edit, --respond and --respond-json.'),
        (('--approve', '--deny', 'No.'), 'use exactly one of --approve, --deny, --edit, --respond and --respond-json.'),
        (('--edit', '{'), 'This is not JSON'),
        (('--edit', '[]'), 'the arguments must be a JSON object.'),
    ],
)
def test_invalid_answer_options_are_refused(
    invoke: Invoke, waiting: list[str], options: tuple[str, ...], sentence: str
) -> None:
    result = invoke('approvals', 'answer', waiting[0], *options)
    assert result.exit_code == 2
    assert sentence in ' '.join(result.stderr.replace('│', '').split())
    assert len(document(invoke('approvals', 'list', '--json'))) == 2


def test_unknown_approval_id_is_reported(invoke: Invoke, waiting: list[str]) -> None:
    result = invoke('approvals', 'answer', 'ffffffff', '--approve')
    assert result.exit_code == 2
    assert result.stderr.startswith("There is no approval 'ffffffff' in this store.")
    assert '`pydantic-deep approvals list`' in result.stderr


@pytest.mark.parametrize('id', ['', ':', ':00000000'])
def test_empty_id_names_no_approval(invoke: Invoke, id: str) -> None:
    """Not even the only one."""
    invoke('run', 'Go', '--approvals=pause', model=ScriptedModel(WRITE))
    result = invoke('approvals', 'answer', id, '--approve')
    assert (result.exit_code, result.stdout) == (2, '')
    assert 'approval' in result.stderr
    assert [row['status'] for row in document(invoke('approvals', 'list', '--json'))] == ['pending']


def test_delegation_path_is_empty_without_matching_pending_requests() -> None:
    approval = sample_approval(Dialogue(cast('Store', None)).version())._replace(pending_id='one/two/three')
    assert list(delegation_path(approval, None)) == []
    assert list(delegation_path(approval, DeferredToolRequests())) == []
