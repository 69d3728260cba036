"""Holds what clients have read to `ag-ui-validate`, to the models of `ag-ui-protocol`, and to those of Vercel AI.

`check_streams.py DIRECTORY VALIDATOR`: the files of the directory are the runs of one thread each, as they came.
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
    """Check all streams of a directory, and say how many there were of what."""
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
    """Yield what is wrong with the runs of a thread."""
    events = [EVENTS.validate_json(data) for data in frames_in(stream)]
    counts.update(event.type.value for event in events)
    process = subprocess.run([validator, '--json', str(stream)], capture_output=True, text=True, check=False)
    report = json.loads(process.stdout)
    if report['eventCount'] != len(events) or report['internalErrors']:
        yield f'{stream.name}: {report["eventCount"]} events of {len(events)} were validated.'
    for found in report['diagnostics']:
        if not (found['rule'] == 'AGUI207' and is_resumed(events, found['eventIndex'])):
            yield f'{stream.name}: {found}'


def is_resumed(events: list[Any], index: int) -> bool:
    """Return whether a result is of a call that an earlier run of the thread began, and that has had no result yet.

    The protocol tells the result of an approved call in the run that goes on ("Interrupts", Lifecycle), and the
    validator, up to 0.4.0, knows only the calls of the run that a result is in.
    """
    result = events[index]
    assert isinstance(result, ToolCallResultEvent)
    begun = max(at for at, event in enumerate(events[:index]) if isinstance(event, RunStartedEvent))
    known = [event.tool_call_id for event in events[:begun] if isinstance(event, ToolCallStartEvent)]
    told = [event.tool_call_id for event in events[:index] if isinstance(event, ToolCallResultEvent)]
    return result.tool_call_id in known and result.tool_call_id not in told


def check_vercel(stream: Path, counts: Counter[str], validator: str) -> Iterable[str]:
    """Yield what is wrong with the runs of a chat; the client has checked each chunk by its own schema too."""
    frames = frames_in(stream)
    if frames[-1] != '[DONE]':
        yield f'{stream.name}: The last run has no end.'
    for data in frames:
        if data != '[DONE]':
            type = json.loads(data)['type']
            counts[type] += 1
            CHUNKS['data' if type.startswith('data-') else type].validate_json(data, strict=True)


def chunk_types() -> dict[str, TypeAdapter[Any]]:
    """Return what reads a chunk, by its type; `data` for all types that begin with it."""
    found: dict[str, TypeAdapter[Any]] = {}
    for each in vars(response_types).values():
        if isinstance(each, type) and issubclass(each, response_types.BaseChunk) and 'type' in each.model_fields:
            type_of = each.model_fields['type']
            found['data' if type_of.is_required() else type_of.default] = TypeAdapter(each)
    return found


def frames_in(stream: Path) -> list[str]:
    """Return the data of each frame."""
    reader = FrameReader()
    frames = [frame.data for frame in reader.feed(stream.read_bytes())]
    assert reader.finish() is None, f'{stream.name} ends within a frame.'
    return [data for data in frames if data]


CHUNKS = chunk_types()

if __name__ == '__main__':
    main(Path(sys.argv[1]), sys.argv[2])
