"""`submit`: queues a turn, which a worker of any process runs."""

from __future__ import annotations

import json
import logging
from typing import Any

from pydantic_deep._checks import MAX_INTEGER, check_index, check_names, check_object
from pydantic_deep._run_to_completion import run_to_completion
from pydantic_deep._spans import span_id, trace_id
from pydantic_deep.store import QueuedRunRecord, SqlStore, new_id, now
from pydantic_deep.versions import AgentVersion, ApprovalsPendingError, TurnOptions, VersionedConversation

from ._protocol import Dispatcher
from .errors import DispatcherUnavailableError

_LOGGER = logging.getLogger('pydantic_deep')


async def submit(
    place: AgentVersion[Any, Any] | VersionedConversation[Any, Any],
    options: TurnOptions,
    store: SqlStore,
    *,
    dispatcher: Dispatcher | None = None,
    priority: int = 0,
    account: str | None = None,
    key_id: str | None = None,
    session_id: str | None = None,
    max_active: int | None = None,
    max_of_key: int | None = None,
) -> QueuedRunRecord:
    """Queue a turn and return its record; its `run_id` is the id of the run. The queue is in the store.

    The turns of a conversation that continue its head run one after another, in the order of their submission, each
    from the head that the one before it leaves; they wait while the head has pending approvals, until a turn has resumed
    it. Turns from a version, and those that resume the head, run at any time.

    ```text
    run = await submit(agent.conversation(id), TurnOptions(prompt='Add a chart'), store)
    ```

    Args:
        place: The version to start from, or the conversation whose head the turn continues.
        options: The prompt, or the answers to the pending approvals of the version or head, which are stored at once,
            even if a limit is reached. `moves_head` applies to a version; the turn of a conversation always moves its
            head, and a prompt for it is queued also with `exclusive`.
        store: The store of the version.
        dispatcher: Delivers the run to a worker. Without it, workers find the run when they look for work.
        priority: Runs with a higher number begin first.
        account: The owner of the conversation, as your application names it, to list runs by.
        key_id: The key whose limit counts the run.
        session_id: Your own session id, which the run passes on to tools.
        max_active: The maximum number of runs of the store that have not ended, of all processes.
        max_of_key: The maximum number of those of `key_id`.

    Raises:
        ValidationError: An option is invalid, or another process cannot have it, such as `deps`.
        VersionNotFoundError: The store is not that of the version.
        ApprovalsPendingError: The version has pending approvals, and the options contain a prompt.
        NothingPendingError: The options contain no prompt, and nothing is pending.
        ApprovalAnsweredError: An approval is already answered.
        QueueLimitError: A maximum is reached.
        VersionBusyError: The turn is `exclusive`, and another run from the version is active.
        ValueError: The id of the run is in use.
    """
    check_names(account=account, key_id=key_id, session_id=session_id)
    check_index('priority', priority, least=-MAX_INTEGER)
    check_object('options', options, TurnOptions, 'For a prompt, pass `TurnOptions(prompt=prompt)`.')
    prompt, dumped = options.dump()
    document = json.loads(dumped)
    if session_id is not None:
        document['session_id'] = session_id
    if (span := span_id()) is not None:
        document['submitted_in'] = [trace_id(), span]
    if options.run_id is not None and await store.run(options.run_id) is not None:
        raise ValueError(f'The store has a run {options.run_id!r} already. Use a new id.')
    version = place if isinstance(place, AgentVersion) else await place.head()
    await store.version(version.id)  # before anything is stored: workers of another store would not find it
    continues_head = version is not place and options.prompt is not None
    if not continues_head:
        document['moves_head'] = options.moves_head or version is not place
    if options.prompt is None:  # stored now, so that the caller learns of conflicts
        await version.answer(options.answers, by=options.by, reason=options.reason)
    elif version is place and version.state == 'awaiting_approval':
        raise ApprovalsPendingError(version.id, [pending.id for pending in version.pending])
    run = QueuedRunRecord(
        run_id=options.run_id or new_id(),
        conversation_id=version.conversation_id,
        base_id=None if continues_head else version.id,
        agent_name=version.agent_name,
        account=account,
        key_id=key_id,
        priority=priority,
        prompt=prompt,
        options=json.dumps(document),
        submitted_at=now(),
    )
    # Whoever cancels this knows afterwards whether the run is in the queue.
    await run_to_completion(
        store.queue.add(run, max_active=max_active, max_of_key=max_of_key, exclusive=options.exclusive)
    )
    if dispatcher is not None:
        await _deliver(run, dispatcher)
    return run


async def _deliver(run: QueuedRunRecord, dispatcher: Dispatcher) -> None:
    """Deliver a queued run; one that the engine does not accept stays queued, and workers find it later."""
    try:
        await dispatcher.submit(
            run.run_id, agent_name=run.agent_name, conversation_id=run.conversation_id, priority=run.priority
        )
    except DispatcherUnavailableError as error:
        _LOGGER.warning('%s', error)
