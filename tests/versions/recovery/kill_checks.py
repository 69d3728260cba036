"""Invariants of a store after any number of kills and recoveries."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from kill_agent import Agent, Journal, files_of, keys_of, prompt_of
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart

from pydantic_deep._messages.summary_metadata import without_summaries
from pydantic_deep.store import RunRecord, VersionFilter, VersionRecord
from pydantic_deep.versions import workspace_key
from pydantic_deep.versions.files._backend_descriptions import describe_backend
from pydantic_deep_backends import LocalBackend, Tree, digest_of


class Checks:
    """Checks the conversations of a round and lists violations."""

    def __init__(self, agent: Agent, journal: Journal, turns: int) -> None:
        self._turns = turns
        self._agent = agent
        self._store = agent.store
        self._journal = Counter(journal.lines())
        self._answers = journal.answers
        self.trees: dict[str, Tree] = {}
        """The trees of the versions read, by digest."""
        self.wrong: list[str] = []
        self.versions = 0
        """Number of versions read."""
        self.apart = 0
        """Number of directories with another version than the newest: two processes resumed it at the same moment."""

        self.unknown = 0
        """Number of responses lost with a killed process, which are in no account."""
        self.superseded = 0
        """Number of responses stored, but superseded before the run used them."""

    async def check(self, directory_by_name: Mapping[str, Path | None], acknowledged: Sequence[str]) -> None:
        running = await self._store.runs(states=['running'])
        self._expect(not running, f'runs are left running: {[run.id for run in running]}')
        failed = [run for run in await self._store.runs(states=['failed']) if run.error]
        self._expect(not failed, f'runs have failed: {[(run.id, run.error) for run in failed]}')
        twice = {key: count for key, count in self._journal.items() if count > 1}
        self._expect(not twice, f'calls ran twice: {twice}')
        await self._check_acknowledged(acknowledged)
        for name, directory in directory_by_name.items():
            if await self._store.conversation(name) is not None:
                await self._check_conversation(name)
                await self._check_turns(name, directory)
                await self._check_accounts(name)

    async def _check_accounts(self, name: str) -> None:
        """Expect that version, requests and runs agree on the usage, and that each call has one thread."""
        newest = (await self._agent.list(conversation_id=name, limit=1))[0]
        runs = await self._runs_of(name)
        rows = [row for run in runs for row in await self._store.requests(run.id)]
        responses = {row.response_id for row in rows}
        self._expect(len(responses) == len(rows), f'{name} has {len(rows)} requests for {len(responses)} responses')
        used = newest.usage
        self._expect(used.requests == len(rows), f'{newest!r} has used {used.requests} requests of {len(rows)}')
        tokens = sum(row.input_tokens for row in rows)
        self._expect(used.input_tokens == tokens, f'{newest!r} has used {used.input_tokens} tokens of {tokens}')
        counted = sum(json.loads(run.usage).get('requests', 0) for run in runs)
        self._expect(
            counted == len(rows), f'the runs of {name} say that they have made {counted} requests of {len(rows)}'
        )
        given = self._answers(name)
        self._expect(len(rows) <= given, f'{name} has {len(rows)} requests of {given} that were answered')
        self.unknown += given - len(rows)
        self.superseded += sum(row.kind == 'superseded' for row in rows)
        branches = [each for id in {run.conversation_id for run in runs} for each in await self._store.branches(id)]
        known = {each.id for branch in branches for each in await self._store.messages(branch.id, branch.tip_seq)}
        odd = [
            row for row in rows if (row.kind, row.response_id in known) not in (('answer', True), ('superseded', False))
        ]
        self._expect(not odd, f'{name} has requests of another kind than their answers: {odd}')
        threads: dict[tuple[str, str], set[str]] = {}
        for link in [link for run in runs for link in await self._store.delegations(parent_run_id=run.id)]:
            threads.setdefault((link.response_id, link.tool_call_id), set()).add(link.child_conversation_id)
        several = {call: ids for call, ids in threads.items() if len(ids) > 1}
        self._expect(not several, f'{name} has calls with several threads: {several}')
        lives = {each for ids in threads.values() for each in ids}
        others = {run.conversation_id for run in runs} - lives - {name}
        self._expect(not others, f'{name} has threads that no call has: {others}')

    async def _runs_of(self, conversation_id: str) -> list[RunRecord]:
        """Return the runs of a conversation and of all its subagents."""
        runs = await self._store.runs(conversation_id=conversation_id, limit=100_000)
        links = [link for run in runs for link in await self._store.delegations(parent_run_id=run.id)]
        below = {link.child_conversation_id for link in links} - {conversation_id}
        return [*runs, *[run for each in sorted(below) for run in await self._runs_of(each)]]

    async def _check_acknowledged(self, acknowledged: Sequence[str]) -> None:
        for line in acknowledged:
            kind, *ids = line.split(' ', 3)
            if kind == 'version':
                found = await self._store.version(ids[0])
                self._expect(found.id == ids[0], f'another version than {ids[0]}')
            else:
                calls = await self._store.calls([ids[0]])
                known = [(call.response_id, call.tool_call_id) for call in calls if call.status == 'done']
                self._expect((ids[1], ids[2]) in known, f'the call {line} was acknowledged and is not there')

    async def _check_conversation(self, conversation_id: str) -> None:
        """Read each version completely, and those of all conversations below."""
        versions = await self._store.versions(VersionFilter(conversation_id=conversation_id), limit=100_000)
        ordered = [version.id for version in reversed(versions)]
        by_number = [version.id for version in sorted(versions, key=lambda each: each.number)]
        self._expect(ordered == by_number, f'the versions of {conversation_id} are not in order')
        for version in versions:
            await self._check_version(version)
        for run in await self._store.runs(conversation_id=conversation_id, limit=100_000):
            for link in await self._store.delegations(parent_run_id=run.id):
                if link.child_conversation_id != conversation_id:
                    await self._check_conversation(link.child_conversation_id)

    async def _check_version(self, version: VersionRecord) -> None:
        self.versions += 1
        handle = await self._agent.load(version.id)
        messages = await handle.messages()
        self._expect(len(messages) == version.message_count, f'{version.id} has {len(messages)} messages')
        lineage = await self._store.lineage(version.id)
        self._expect(lineage.truncated_at is None, f'the lineage of {version.id} ends at {lineage.truncated_at}')
        self._expect(lineage.versions[0].parent_id is None, f'the lineage of {version.id} begins in the middle')
        self._expect(lineage.versions[-1].id == version.id, f'the lineage of {version.id} ends elsewhere')
        digests = {digest for digest in (version.deps, version.pending) if digest is not None}
        if version.tree is not None and version.tree not in self.trees:
            tree = await handle.file_tree()
            digests |= {file.digest for _, file in tree.items()}
            self.trees[version.tree] = tree
        missing = digests - await self._store.has_assets(digests)
        self._expect(not missing, f'{version.id} lacks {missing}')
        if version.agent_name in ('worker', 'forker') and version.state == 'complete' and version.kind == 'turn':
            todos = [f'done {todo.content}' for todo in handle.todos]
            self._expect(todos == [handle.output], f'{version.id} says {handle.output!r}, and its todos {todos}')
        if version.state == 'awaiting_approval':
            self._expect(bool(handle.pending), f'{version.id} waits for nothing')

    async def _check_turns(self, name: str, directory: Path | None) -> None:
        """Compare the planned effects of each turn with the actual ones."""
        newest = (await self._agent.list(conversation_id=name, limit=1))[0]
        self._expect(newest.state == 'complete', f'{newest!r} has no end')
        earlier = await newest.earlier_messages()
        messages = [*earlier, *without_summaries(await newest.messages())]
        self._check_messages(name, messages)
        await self._check_line(name, newest.id)
        tree = await newest.file_tree()
        prompts = [part.content for part in _parts(messages) if isinstance(part, UserPromptPart)]
        for turn in range(self._turns):
            is_done = prompts.count(prompt_of(name, turn)) == 1
            for key in keys_of(name, turn):
                count = self._journal[key]
                self._expect(count == is_done, f'{key} was noted {count} times, in a turn that is {is_done=}')
            for path, content in files_of(name, turn).items():
                file = tree.get(path)
                has = None if file is None else file.digest
                self._expect(has == (digest_of(content) if is_done else None), f'{path} of {newest!r} is {has}')
        if prompts:
            todos = [todo.content for todo in newest.todos]
            self._expect(todos == [f'{name}/{len(prompts) - 1}'], f'the todos of {newest!r} are {todos}')
        if directory is not None:
            await self._check_directory(name, directory)
        # Nobody else writes the files, so each write can be made again.
        failed = [
            part.tool_call_id
            for part in _parts(messages)
            if isinstance(part, ToolReturnPart) and part.outcome == 'failed'
        ]
        self._expect(not failed, f'{name} has failed calls: {failed}')

    async def _check_line(self, name: str, newest_id: str) -> None:
        """Expect that turns follow turns, whatever was recovered in between."""
        lineage = (await self._store.lineage(newest_id)).versions
        kinds = [version.kind for version in lineage if version.kind not in ('root', 'turn', 'pause')]
        self._expect(not kinds, f'{name}: among the turns of the lineage are {kinds}')

    def _check_messages(self, name: str, messages: Sequence[ModelMessage]) -> None:
        calls = [part.tool_call_id for part in _parts(messages) if isinstance(part, ToolCallPart)]
        returns = [part.tool_call_id for part in _parts(messages) if isinstance(part, ToolReturnPart)]
        self._expect(sorted(calls) == sorted(returns), f'{name}: calls and results differ: {calls} {returns}')
        self._expect(len(set(calls)) == len(calls), f'{name} has a call twice')
        prompts = [str(part.content) for part in _parts(messages) if isinstance(part, UserPromptPart)]
        self._expect(prompts == [prompt_of(name, turn) for turn in range(len(prompts))], f'{name}: {prompts}')
        answers = [message.text for message in messages if isinstance(message, ModelResponse) and message.text]
        wanted = [f'done {name}/{turn}' for turn in range(len(prompts))]
        self._expect(answers == wanted, f'{name} answers {answers}')

    async def _check_directory(self, name: str, directory: Path) -> None:
        described = describe_backend(LocalBackend(directory))
        assert described is not None
        workspace = await self._store.workspace(workspace_key(described))
        assert workspace is not None
        assert workspace.version_id is not None
        version = await self._store.version(workspace.version_id)
        tree = await (await self._agent.load(version.id)).file_tree()
        wanted = {path: file.digest for path, file in tree.items()}
        there = {
            f'/{path.relative_to(directory).as_posix()}': digest_of(path.read_bytes())
            for path in directory.rglob('*')
            if path.is_file() and not path.name.endswith('.tmp')  # temporary files of interrupted writes are ignored
        }
        self._expect(there == wanted, f'{name}: the directory has {sorted(there)}, {version.id} has {sorted(wanted)}')
        newest = (await self._agent.list(conversation_id=name, limit=1))[0]
        self.apart += newest.id != version.id

    def _expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.wrong.append(otherwise)


def _parts(messages: Sequence[ModelMessage]) -> list[object]:
    return [part for message in messages for part in message.parts]
