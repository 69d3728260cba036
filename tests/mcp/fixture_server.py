"""An MCP server for tests, without the SDK, which takes seconds to import: `python fixture_server.py [NUMBER_OF_TOOLS]`.

It writes its calls to the file `$CALLS`. With `$NO_RESOURCES`, it has no resources, with `$NO_TEMPLATES` no templates. With `$INVALID`,
its list of tools is invalid; it is without the tool `$WITHOUT`. Once `$GONE` is a file, it does not start. The protocol is version 2025-11-25, with one JSON-RPC message a line.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator, Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeAlias

READS: Final = ('add', 'fail', 'stop', 'ask', 'form', 'sleep', 'grow')

QUESTIONS: Final[dict[str, list[dict[str, Any]]]] = {
    'ask': [{'message': 'Who?', 'requestedSchema': {'type': 'object', 'properties': {'name': {'type': 'string'}}}}],
    'book': [
        {
            'message': 'How many?',
            'requestedSchema': {
                'type': 'object',
                'properties': {'count': {'type': 'integer', 'minimum': 1, 'maximum': 5}},
                'required': ['count'],
            },
        },
        {'message': 'Pay here.', 'mode': 'url', 'url': 'https://pay.example/1', 'elicitationId': '1'},
    ],
    'form': [
        {
            'message': 'Which tea?',
            'requestedSchema': {
                'type': 'object',
                'properties': {
                    'cups': {'type': 'integer', 'title': 'Cups', 'minimum': 1, 'maximum': 5},
                    'kind': {'type': 'string', 'enum': ['g', 'b'], 'enumNames': ['Green', 'Black']},
                    'extras': {'type': 'array', 'items': {'type': 'string', 'enum': ['milk', 'sugar']}},
                    'gift': {'type': 'boolean', 'default': False},
                    'note': {'type': 'string'},
                },
                'required': ['cups', 'kind', 'gift'],
            },
        }
    ],
    'repeat': [
        {
            'message': 'How often?',
            'requestedSchema': {
                'type': 'object',
                'properties': {'times': {'type': 'string', 'enum': ['0', '1', '2']}, 'note': {'type': 'string'}},
                'required': ['times'],
            },
        }
    ],
    'odd': [
        {'message': 'Where?', 'requestedSchema': {'type': 'object', 'properties': {'at': {'type': 'object'}}}},
        {'message': 'Click.', 'mode': 'url', 'url': 'javascript:alert(1)', 'elicitationId': '2'},
    ],
}
"""The questions that tools ask before they return."""

Steps: TypeAlias = Generator[dict[str, Any], dict[str, Any], dict[str, Any]]
"""A call that yields the parameters of questions, receives the responses, and returns a result."""

grown: list[str] = []
"""The calls that have added a tool."""

COUNT: Final = int(sys.argv[1]) if len(sys.argv) > 1 else 0


def tools() -> list[dict[str, Any]]:
    number, text = {'type': 'integer'}, {'type': 'string'}
    known = [
        tool('add', 'Add two numbers.', a=number, b=number),
        tool('order', 'Order an item.', item=text),
        tool('fail', 'Fail.'),
        tool('stop', 'Stop the server in this call.'),
        tool('sleep', 'Never return.'),
        tool('grow', 'Add a tool.'),
        *([tool('new', 'A new tool.')] if grown else []),
        *(tool(name, 'Ask the user.') for name in QUESTIONS),
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
    if name == 'grow':
        grown.append(name)
        send({'method': 'notifications/resources/list_changed'})
        send({'method': 'notifications/tools/list_changed'})
        send({'method': 'notifications/message', 'params': {'level': 'alert', 'data': 'It grows.\x1b[2J'}})
    if name == 'fail':
        return {'content': [{'type': 'text', 'text': 'It failed.'}], 'isError': True}
    if name == 'add':
        return text(str(arguments['a'] + arguments['b']))
    return text(f'{name}: {", ".join(map(str, arguments.values()))}')


def ask(name: str) -> Steps:
    """Ask the questions of a tool, and return the responses."""
    responses: list[Any] = []
    for question in QUESTIONS[name]:
        response = yield question
        responses.append(response.get('error') or response.get('result'))
    note(f'{name} ended')
    return text(json.dumps(responses))


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
            capabilities: dict[str, object] = {'tools': {'listChanged': True}}
            if has_resources:
                capabilities['resources'] = {}
            info = {'name': 'fixture', 'version': '1'}
            return {'protocolVersion': '2025-11-25', 'capabilities': capabilities, 'serverInfo': info}
        case 'tools/list':
            listed = [tool for tool in tools() if tool['name'] != os.environ.get('WITHOUT')]
            return {'tools': listed if 'INVALID' not in os.environ else 'none'}
        case 'tools/call':
            return call(params['name'], params.get('arguments') or {})
        case 'resources/list':
            names = ['today', *grown]
            return {
                'resources': [
                    {'uri': f'note://{each}', 'name': each, 'description': f'The note of {each}.'} for each in names
                ]
            }
        case 'resources/templates/list' if 'NO_TEMPLATES' not in os.environ:
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
    asking: dict[str, tuple[int, Steps]] = {}

    def proceed(request_id: int, steps: Steps, response: dict[str, Any] | None) -> None:
        """Send the next question of a call, or its result."""
        try:
            params = next(steps) if response is None else steps.send(response)
        except StopIteration as ended:
            send({'id': request_id, 'result': ended.value})
        else:
            question_id = f'q{next(numbers)}'
            asking[question_id] = request_id, steps
            send({'id': question_id, 'method': 'elicitation/create', 'params': params})

    while line := sys.stdin.readline():
        message = json.loads(line)
        if 'id' not in message:
            continue
        if 'method' not in message:
            proceed(*asking.pop(message['id']), message)
            continue
        params: dict[str, Any] = message.get('params') or {}
        if message['method'] == 'tools/call' and params['name'] in QUESTIONS:
            note(params['name'])
            proceed(message['id'], ask(params['name']), None)
            continue
        if message['method'] == 'tools/call' and params['name'] == 'sleep':
            note('sleep')
            continue
        result = answer(message['method'], params)
        known = {'result': result} if result is not None else {'error': {'code': -32601, 'message': 'It is unknown.'}}
        send({'id': message['id'], **known})


numbers = count(1)


if __name__ == '__main__':
    main()
