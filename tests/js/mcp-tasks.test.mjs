// MCP: tasks, driven by the requester of the protocol's authors. Its wire shapes are validated by their schemas.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { createTaskSessionFromClient } from '@modelcontextprotocol/ext-tasks/client';

const { url, key } = JSON.parse(process.env.MCP_SERVED);
const authorization = `Bearer ${key}`;
const clientInfo = { name: 'tasks', version: '1' };
const framing = { protocolVersion: '2026-07-28', clientInfo, clientCapabilities: { elicitation: { form: {} } } };

/** Send a request of the session: the SDK has no transport for its own. */
async function rawDispatch(request, { signal, context } = {}) {
  const name = request.params.name ?? request.params.taskId;
  const response = await fetch(url, {
    method: 'POST',
    signal,
    headers: {
      authorization,
      accept: 'application/json, text/event-stream',
      'content-type': 'application/json',
      'mcp-protocol-version': framing.protocolVersion,
      'mcp-method': request.method,
      'mcp-name': name,
      ...context?.headers,
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, ...request }),
  });
  const { result, error } = await response.json();
  return error ? { kind: 'error', error } : { kind: 'result', result };
}

/** Open a session that fills its forms with decisions, in order, and return it with the forms. */
async function open(...decisions) {
  const client = new Client(clientInfo, { versionNegotiation: { mode: 'auto' } });
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { authorization } } }));
  assert.equal(client.getProtocolEra(), 'modern');
  const forms = [];
  const session = createTaskSessionFromClient(client, {
    endpointId: 'ours',
    rawDispatch,
    v2RequestFraming: framing,
    onInputRequest: async (request) => {
      forms.push(request.params.message);
      const decision = decisions.shift();
      return decision ? { action: 'accept', content: { decision } } : { action: 'cancel' };
    },
  });
  return { client, forms, session };
}

for (const [decision, kinds] of [['approve', ['added']], ['deny', []]]) {
  test(`the requester settles a task with a form: ${decision}`, async () => {
    const { client, forms, session } = await open(decision);
    const execution = await session.callTool('run', { prompt: 'write hello' });
    assert.equal(execution.kind, 'task');
    const states = [];
    const { outcome } = await execution.settle({ onEvent: ({ task }) => states.push(task?.status) });
    assert.equal(outcome.status, 'completed');
    const run = outcome.result.structuredContent;
    assert.equal(run.state, 'complete');
    assert.equal(forms.length, 1);
    assert.match(forms[0], /write_file/);
    assert.ok(states.includes('input_required'), String(states));
    const { structuredContent: { files } } = await client.callTool({ name: 'diff', arguments: { version: run.version } });
    assert.deepEqual(files.map(({ kind }) => kind), kinds);
    await session.close();
    await client.close();
  });
}

test('the requester gets the result of a call that starts no run', async () => {
  const { client, session } = await open();
  const execution = await session.callTool('log', {});
  assert.equal(execution.kind, 'immediate');
  await session.close();
  await client.close();
});
