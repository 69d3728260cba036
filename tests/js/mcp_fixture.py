"""The tools, resources and prompts that the conformance kit of MCP calls. The kit prescribes their names and texts.

They are in a server of their own, which `mcp_serve.py` puts in place of ours: the route, its checks, its sessions and
its transport are ours.
"""

# Logging and sampling are deprecated, and the kit tests them.
# pyright: reportDeprecated=false
from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolRequestParams,
    CallToolResult,
    CompleteResult,
    Completion,
    ContentBlock,
    EmbeddedResource,
    EmptyResult,
    GetPromptRequestParams,
    GetPromptResult,
    ImageContent,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    Prompt,
    PromptArgument,
    PromptMessage,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    SamplingMessage,
    TextContent,
    TextResourceContents,
    Tool,
)

from pydantic_deep.server.access._ownership import Access

warnings.simplefilter('ignore', MCPDeprecationWarning)

Context: TypeAlias = ServerRequestContext[Any, Any]
Content: TypeAlias = str | ContentBlock | Sequence[ContentBlock]

PIXEL: Final = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=='
SILENCE: Final = 'UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA='
IMAGE: Final = ImageContent(data=PIXEL, mime_type='image/png')


def embedded(uri: str, text: str, mime_type: str = 'text/plain') -> EmbeddedResource:
    """Return a text as an embedded resource."""
    return EmbeddedResource(resource=TextResourceContents(uri=uri, mime_type=mime_type, text=text))


# Tools that need no client

CONTENTS: Final[dict[str, Content]] = {
    'test_simple_text': 'This is a simple text response for testing.',
    'test_image_content': IMAGE,
    'test_audio_content': AudioContent(data=SILENCE, mime_type='audio/wav'),
    'test_embedded_resource': embedded('test://embedded-resource', 'This is an embedded resource content.'),
    'test_multiple_content_types': (
        TextContent(text='Multiple content types test:'),
        IMAGE,
        embedded('test://mixed-content-resource', '{"test":"data","value":123}', 'application/json'),
    ),
    'test_reconnection': 'Without stored events, no stream is closed early.',
    'json_schema_2020_12_tool': 'The schema is in the list of tools.',
}

# Tools that talk to the client


async def log(context: Context, arguments: dict[str, Any]) -> str:
    """Send three messages of the log."""
    for message in ('Tool execution started', 'Tool processing data', 'Tool execution completed'):
        await context.session.send_log_message('info', message, related_request_id=context.request_id)
    return 'Logged.'


async def progress(context: Context, arguments: dict[str, Any]) -> str:
    """Report progress three times."""
    for at in (0, 50, 100):
        await context.session.report_progress(at, 100, f'Completed step {at} of 100')
    return 'Done.'


async def sample(context: Context, arguments: dict[str, Any]) -> str:
    """Let the client ask its model."""
    message = SamplingMessage(role='user', content=TextContent(text=arguments['prompt']))
    result = await context.session.create_message([message], max_tokens=100, related_request_id=context.request_id)
    assert isinstance(result.content, TextContent)
    return f'LLM response: {result.content.text}'


def form(prefix: str, schema: dict[str, Any], message: str | None = None) -> Callable[..., Awaitable[str]]:
    """Return a tool that shows a form."""

    async def ask(context: Context, arguments: dict[str, Any]) -> str:
        session: ServerSession = context.session
        shown = {'type': 'object', **schema}
        result = await session.elicit_form(message or arguments['message'], shown, context.request_id)
        return f'{prefix}: action={result.action}, content={result.content or {}}'

    return ask


DEFAULTS: Final = {
    'properties': {
        'name': {'type': 'string', 'default': 'John Doe'},
        'age': {'type': 'integer', 'default': 30},
        'score': {'type': 'number', 'default': 95.5},
        'status': {'type': 'string', 'enum': ['active', 'inactive', 'pending'], 'default': 'active'},
        'verified': {'type': 'boolean', 'default': True},
    },
}
TITLED: Final = [{'const': f'value{number}', 'title': f'Option {number}'} for number in (1, 2, 3)]
ENUMS: Final = {
    'properties': {
        'untitledSingle': {'type': 'string', 'enum': ['option1', 'option2', 'option3']},
        'titledSingle': {'type': 'string', 'oneOf': TITLED},
        'legacyEnum': {'type': 'string', 'enum': ['opt1', 'opt2', 'opt3'], 'enumNames': ['One', 'Two', 'Three']},
        'untitledMulti': {'type': 'array', 'items': {'type': 'string', 'enum': ['option1', 'option2', 'option3']}},
        'titledMulti': {'type': 'array', 'items': {'anyOf': TITLED}},
    },
}
RESPONSE: Final = {'properties': {'response': {'type': 'string'}}, 'required': ['response']}

TOOLS: Final[dict[str, Callable[..., Awaitable[str]]]] = {
    'test_tool_with_logging': log,
    'test_tool_with_progress': progress,
    'test_sampling': sample,
    'test_elicitation': form('User response', RESPONSE),
    'test_elicitation_sep1034_defaults': form('Elicitation completed', DEFAULTS, 'Check the defaults.'),
    'test_elicitation_sep1330_enums': form('Elicitation completed', ENUMS, 'Choose.'),
}

SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    'test_sampling': {'properties': {'prompt': {'type': 'string'}}, 'required': ['prompt']},
    'test_elicitation': {'properties': {'message': {'type': 'string'}}, 'required': ['message']},
    'json_schema_2020_12_tool': {
        '$schema': 'https://json-schema.org/draft/2020-12/schema',
        '$defs': {'address': {'type': 'object', 'properties': {'street': {'type': 'string'}}}},
        'properties': {'name': {'type': 'string'}, 'address': {'$ref': '#/$defs/address'}},
        'additionalProperties': False,
    },
}


async def list_tools(context: Context, params: object) -> ListToolsResult:
    """List all tools."""
    tools = [
        Tool(name=name, description='For tests.', input_schema={'type': 'object', **SCHEMAS.get(name, {})})
        for name in (*CONTENTS, *TOOLS, 'test_error_handling')
    ]
    return ListToolsResult(tools=tools)


async def call_tool(context: Context, params: CallToolRequestParams) -> CallToolResult:
    """Call a tool."""
    if params.name == 'test_error_handling':
        content = TextContent(text='This tool intentionally returns an error for testing')
        return CallToolResult(content=[content], is_error=True)
    known = CONTENTS.get(params.name)
    found = await TOOLS[params.name](context, params.arguments or {}) if known is None else known
    if isinstance(found, str):
        found = TextContent(text=found)
    return CallToolResult(content=list(found) if isinstance(found, Sequence) else [found])


# Resources


async def list_resources(context: Context, params: object) -> ListResourcesResult:
    """List the resources without a template."""
    names = ('static-text', 'static-binary', 'watched-resource')
    return ListResourcesResult(resources=[Resource(uri=f'test://{name}', name=name) for name in names])


async def list_templates(context: Context, params: object) -> ListResourceTemplatesResult:
    """List the template."""
    template = ResourceTemplate(uri_template='test://template/{id}/data', name='template')
    return ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(context: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
    """Read a resource."""
    uri = params.uri
    if uri == 'test://static-binary':
        return ReadResourceResult(contents=[BlobResourceContents(uri=uri, mime_type='image/png', blob=PIXEL)])
    text = f'This is the content of {uri}.'
    if uri.startswith('test://template/'):
        text = f'{{"id": "{uri.split("/")[3]}"}}'
    return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type='text/plain', text=text)])


# Prompts

PROMPTS: Final = {
    'test_simple_prompt': (),
    'test_prompt_with_arguments': ('arg1', 'arg2'),
    'test_prompt_with_embedded_resource': ('resourceUri',),
    'test_prompt_with_image': (),
}


async def list_prompts(context: Context, params: object) -> ListPromptsResult:
    """List the prompts."""
    prompts = [
        Prompt(
            name=name, description='For tests.', arguments=[PromptArgument(name=a, required=True) for a in arguments]
        )
        for name, arguments in PROMPTS.items()
    ]
    return ListPromptsResult(prompts=prompts)


async def get_prompt(context: Context, params: GetPromptRequestParams) -> GetPromptResult:
    """Return a prompt."""
    given = params.arguments or {}
    contents: dict[str, list[ContentBlock]] = {
        'test_simple_prompt': [TextContent(text='This is a simple prompt for testing.')],
        'test_prompt_with_arguments': [
            TextContent(text=f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'")
        ],
        'test_prompt_with_embedded_resource': [embedded(given.get('resourceUri', ''), 'Embedded.')],
        'test_prompt_with_image': [IMAGE],
    }
    return GetPromptResult(messages=[PromptMessage(role='user', content=content) for content in contents[params.name]])


# The server


async def accept(context: Context, params: object) -> EmptyResult:
    """Accept a subscription or a level of the log."""
    return EmptyResult()


async def complete(context: Context, params: object) -> CompleteResult:
    """Complete an argument."""
    return CompleteResult(completion=Completion(values=['paris', 'park'], total=2, has_more=False))


def create_fixture_server(access: Access) -> Server[Any]:
    """Return the server, with the signature of `create_mcp_server`."""
    return Server(
        'conformance-fixture',
        version='1',
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_subscribe_resource=accept,
        on_unsubscribe_resource=accept,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_completion=complete,
        on_set_logging_level=accept,
    )
