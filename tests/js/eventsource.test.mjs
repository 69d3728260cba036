import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EventSource } from 'eventsource';
import { ada, api, bob, cut, ended, headers, newThread, open, url } from './server.mjs';

const TYPES = ['start', 'text', 'notice', 'function_call', 'tool_result', 'usage', 'end', 'reset', 'error'];

/** Read a run until the server reports its end, over connections that are cut after some frames. */
function read(run, { frames = Infinity, key = ada } = {}) {
  const events = [];
  const connections = [];
  const authorized = (input, init) => {
    connections.push(init.headers['Last-Event-ID'] ?? null);
    return fetch(input, { ...init, headers: { ...init.headers, ...headers(key) } });
  };
  const source = new EventSource(`${url}/api/runs/${run}/events?tool_results=true&function_calls=true`, {
    fetch: async (input, init) => {
      const answer = await authorized(input, init);
      return frames === Infinity || answer.status !== 200 ? answer : cut(frames, async () => answer)(input, init);
    },
  });
  const done = new Promise((resolve) => {
    source.addEventListener('error', (event) => {
      if (source.readyState === EventSource.CLOSED) resolve(event.code);
    });
  });
  for (const type of TYPES) source.addEventListener(type, (event) => event.data && events.push([event.lastEventId, type, event.data]));
  return { events, connections, done, source };
}

async function begin(prompt) {
  const { id } = await api('/api/conversations', { agent: 'writer' });
  return (await api(`/api/conversations/${id}/turns?wait=false`, { prompt })).id;
}

test('a client reads a run to its end, and does not reconnect', async () => {
  const reader = read(await begin('write Hello'));
  assert.equal(await reader.done, 204);
  assert.deepEqual([reader.events[0][1], reader.events.at(-1)[1]], ['start', 'end']);
  assert.ok(reader.events.some(([, type]) => type === 'tool_result'));
  assert.match(JSON.parse(reader.events.at(-1)[2]).output, /^Done: Created/);
});

test('a reader with lost connections receives the same events as one without', async () => {
  const gate = newThread();
  const run = await begin(`hold ${gate}`);
  const [steady, unlucky] = [read(run), read(run, { frames: 4 })];
  await open(gate);
  assert.equal((await ended(run)).state, 'complete');
  await Promise.all([steady.done, unlucky.done]);
  assert.ok(unlucky.connections.length > 2, `${unlucky.connections}`);
  assert.deepEqual(unlucky.events, steady.events);
  assert.equal(new Set(steady.events.map(([id]) => id)).size, steady.events.length);
});

test('a failure is an error event without secrets, and ends the stream', async () => {
  const reader = read(await begin('fail'));
  await reader.done;
  const [, , data] = reader.events.find(([, type]) => type === 'error');
  assert.doesNotMatch(data, /inside of the server/);
});

test('a run of another owner is not found', async () => {
  const reader = read(await begin('Hi'), { key: bob });
  assert.equal(await reader.done, 404);
});
