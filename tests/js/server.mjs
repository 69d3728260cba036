// Shared by all tests: the address of the server, calls to its API, and a record of each received stream.
import { appendFileSync } from 'node:fs';
import { join } from 'node:path';

export const { url, ada, bob } = JSON.parse(process.env.SERVED);
export const headers = (key = ada) => ({ authorization: `Bearer ${key}` });

let threads = 0;
export const newThread = () => `thread-${process.pid}-${++threads}`;

export async function api(path, body) {
  const init = body && { method: 'POST', body: JSON.stringify(body) };
  const answer = await fetch(url + path, { ...init, headers: { ...headers(), 'content-type': 'application/json' } });
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  return answer.json();
}

/** Release a run that is blocked at a gate. */
export async function open(gate) {
  const { id } = await api('/api/conversations', { agent: 'writer' });
  await api(`/api/conversations/${id}/turns`, { prompt: `open ${gate}` });
}

/** Wait until a run has ended, and return it. */
export async function ended(id) {
  for (;;) {
    const run = await api(`/api/runs/${id}`);
    if (run.state !== 'running') return run;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** A fetch that appends the received bytes to a file; there is one file for each thread. */
export const recording = (name) => async (input, init) => {
  const answer = await fetch(input, init);
  const file = join(process.env.CAPTURES, name);
  const note = new TransformStream({
    transform(chunk, controller) {
      appendFileSync(file, chunk);
      controller.enqueue(chunk);
    },
  });
  if (!answer.ok || !answer.body) return answer;
  return new Response(answer.body.pipeThrough(note), { status: answer.status, headers: answer.headers });
};

/** A fetch with a response that is cut after this number of frames, as by a lost connection. */
export const cut = (frames, fetched = fetch) => async (input, init) => {
  const answer = await fetched(input, init);
  let left = frames;
  const decoder = new TextDecoder();
  const breaking = new TransformStream({
    transform(chunk, controller) {
      if (left <= 0) return;
      const parts = decoder.decode(chunk, { stream: true }).split(/(?<=\n\n)/);
      controller.enqueue(new TextEncoder().encode(parts.slice(0, left).join('')));
      left -= parts.length;
      if (left <= 0) controller.terminate();
    },
  });
  return new Response(answer.body.pipeThrough(breaking), { status: answer.status, headers: answer.headers });
};
