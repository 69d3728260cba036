"""Validates the streams that clients received with `ag-ui-validate`, and with the models of AG-UI and Vercel AI.

`check_streams.py DIRECTORY VALIDATOR`: each file of the directory contains the received streams of one thread.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ag_ui.core import Event, RunStartedEvent, ToolCallResultEvent, ToolCallStartEvent
from pydantic import TypeAdapter
from pydantic_ai.ui.vercel_ai import response_types

from pydantic_deep.streaming import FrameReader

EVENTS: TypeAdapter[Event] = TypeAdapter(Event)


def main(directory: Path, validator: str) -> None:
    """Check all streams of a directory, and print the numbers of threads and events by protocol."""
    problems: list[str] = []
    for protocol, check in (('ag-ui', check_ag_ui), ('vercel', check_vercel)):
        streams = sorted(directory.glob(f'{protocol}-*.sse'))
        counts: Counter[str] = Counter()
        for stream in streams:
            problems += check(stream, counts, validator)
        print(f'{protocol}: {len(streams)} threads, {counts.total()} events: {", ".join(sorted(counts))}')
        if not counts:
            problems.append(f'Nothing of {protocol} was captured.')
    sys.exit('\n'.join(problems) or None)


def check_ag_ui(stream: Path, counts: Counter[str], validator: str) -> Iterable[str]:
    """Yield the problems of the runs of a thread."""
    events = [EVENTS.validate_json(data) for data in frames_in(stream)]
    counts.update(event.type.value for event in events)
    process = subprocess.run([validator, '--json', str(stream)], capture_output=True, text=True, check=False)
    report = json.loads(process.stdout)
    if report['eventCount'] != len(events) or report['internalErrors']:
        yield f'{stream.name}: {report["eventCount"]} events of {len(events)} were validated.'
    for diagnostic in report['diagnostics']:
        if not (diagnostic['rule'] == 'AGUI207' and is_resumed(events, diagnostic['eventIndex'])):
            yield f'{stream.name}: {diagnostic}'


def is_resumed(events: list[Any], index: int) -> bool:
    """Return whether a result belongs to a call that an earlier run of the thread started, and is its first result.

    In the protocol, the resuming run contains the result of an approved call ("Interrupts", Lifecycle). The validator,
    up to 0.4.0, knows only the calls of the run that contains a result.
    """
    result = events[index]
    assert isinstance(result, ToolCallResultEvent)
    start = max(at for at, event in enumerate(events[:index]) if isinstance(event, RunStartedEvent))
    calls = [event.tool_call_id for event in events[:start] if isinstance(event, ToolCallStartEvent)]
    results = [event.tool_call_id for event in events[:index] if isinstance(event, ToolCallResultEvent)]
    return result.tool_call_id in calls and result.tool_call_id not in results


def check_vercel(stream: Path, counts: Counter[str], validator: str) -> Iterable[str]:
    """Yield the problems of the runs of a chat. The client has also validated each chunk with its own schema."""
    frames = frames_in(stream)
    if frames[-1] != '[DONE]':
        yield f'{stream.name}: The last run has no end.'
    for data in frames:
        if data != '[DONE]':
            type = json.loads(data)['type']
            counts[type] += 1
            CHUNKS['data' if type.startswith('data-') else type].validate_json(data, strict=True)


def chunk_types() -> dict[str, TypeAdapter[Any]]:
    """Return the adapter of each type of chunk; `data` is for all types that begin with it."""
    adapters: dict[str, TypeAdapter[Any]] = {}
    for model in vars(response_types).values():
        if isinstance(model, type) and issubclass(model, response_types.BaseChunk) and 'type' in model.model_fields:
            field = model.model_fields['type']
            adapters['data' if field.is_required() else field.default] = TypeAdapter(model)
    return adapters


def frames_in(stream: Path) -> list[str]:
    """Return the data of each frame."""
    reader = FrameReader()
    frames = [frame.data for frame in reader.feed(stream.read_bytes())]
    assert reader.finish() is None, f'{stream.name} ends within a frame.'
    return [data for data in frames if data]


CHUNKS = chunk_types()

if __name__ == '__main__':
    main(Path(sys.argv[1]), sys.argv[2])
