"""An MCP server for tests, without the SDK, which takes seconds to import: `python fixture_server.py [NUMBER_OF_TOOLS]`.

It writes its calls to the file `$CALLS`. With `$NO_RESOURCES`, it has no resources. Once `$GONE` is a file, it does not
start. The protocol is version 2025-06-18, with one JSON-RPC message a line.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

READS: Final = ('add', 'fail', 'stop', 'ask')

COUNT: Final = int(sys.argv[1]) if len(sys.argv) > 1 else 0


def tools() -> list[dict[str, Any]]:
    number, text = {'type': 'integer'}, {'type': 'string'}
    known = [
        tool('add', 'Add two numbers.', a=number, b=number),
        tool('order', 'Order an item.', item=text),
        tool('fail', 'Fail.'),
        tool('stop', 'Stop the server in this call.'),
        tool('ask', 'Ask the user.'),
    ]
    return [*known, *(tool(f'look_up_{n}', f'Look up record {n} in the CRM.', query=text) for n in range(COUNT))]


def tool(name: str, description: str, **properties: object) -> dict[str, Any]:
    schema = {'type': 'object', 'properties': properties, 'required': [*properties]}
    found = {'name': name, 'description': description, 'inputSchema': schema}
    return {**found, 'annotations': {'readOnlyHint': True}} if name in READS else found


def call(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    note(' '.join([name, *map(str, arguments.values())]))
    if name == 'stop':
        sys.stderr.write('the key is s3cret-value\n')
        sys.stderr.flush()
        os._exit(3)
    if name == 'fail':
        return {'content': [{'type': 'text', 'text': 'It failed.'}], 'isError': True}
    if name == 'ask':
        schema = {'type': 'object', 'properties': {'name': {'type': 'string'}}}
        send({'id': 'q', 'method': 'elicitation/create', 'params': {'message': 'Who?', 'requestedSchema': schema}})
        answer = json.loads(sys.stdin.readline())
        return text(json.dumps(answer.get('error') or answer.get('result')))
    if name == 'add':
        return text(str(arguments['a'] + arguments['b']))
    return text(f'{name}: {", ".join(map(str, arguments.values()))}')


def text(content: str) -> dict[str, Any]:
    return {'content': [{'type': 'text', 'text': content}]}


def note(line: str) -> None:
    """Append a line to the file of calls."""
    with Path(os.environ['CALLS']).open('a') as calls:
        calls.write(f'{line}\n')


def answer(method: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the result of a request; `None` if the method or the resource is unknown."""
    has_resources = 'NO_RESOURCES' not in os.environ
    match method:
        case 'initialize':
            note('start')
            capabilities: dict[str, object] = {'tools': {}}
            if has_resources:
                capabilities['resources'] = {}
            info = {'name': 'fixture', 'version': '1'}
            return {'protocolVersion': '2025-06-18', 'capabilities': capabilities, 'serverInfo': info}
        case 'tools/list':
            return {'tools': tools()}
        case 'tools/call':
            return call(params['name'], params.get('arguments') or {})
        case 'resources/list':
            return {'resources': [{'uri': 'note://today', 'name': 'today', 'description': 'The note of today.'}]}
        case 'resources/templates/list':
            return {'resourceTemplates': [{'uriTemplate': 'note://{day}', 'name': 'of_day'}]}
        case 'resources/read' if params['uri'] == 'note://today':
            return {'contents': [{'uri': 'note://today', 'text': 'Buy milk.'}]}
        case 'ping':
            return {}
        case _:
            return None


def send(message: Mapping[str, Any]) -> None:
    print(json.dumps({'jsonrpc': '2.0', **message}), flush=True)


def main() -> None:
    if 'GONE' in os.environ and Path(os.environ['GONE']).exists():
        sys.exit('It is gone.')
    while line := sys.stdin.readline():
        message = json.loads(line)
        if 'id' not in message:
            continue
        result = answer(message['method'], message.get('params') or {})
        known = {'result': result} if result is not None else {'error': {'code': -32601, 'message': 'It is unknown.'}}
        send({'id': message['id'], **known})


if __name__ == '__main__':
    main()
