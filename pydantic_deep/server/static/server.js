// The server: requests with a key, and run events that continue after a lost connection.

export class Refused extends Error {
  constructor(status, error) {
    super(error?.message ?? `The server answered with ${status}.`);
    this.status = status;
    this.facts = error ?? {};
  }
}

let key = sessionStorage.getItem('key') ?? '';

export function hasKey() { return key !== ''; }

export function useKey(text) {
  key = text.trim();
  sessionStorage.setItem('key', key);
}

export function isKey(text) { return key === text.trim(); }

// Returns the key in the fragment of a link, which servers and logs never see, and removes it from the address; else null.
export function takeKeyFromAddress() {
  const found = new URLSearchParams(location.hash.slice(1)).get('key');
  if (found) history.replaceState(null, '', location.pathname);
  return found || null;
}

async function ask(method, path, body, headers = {}, signal = undefined) {
  const sent = { ...headers, authorization: `Bearer ${key}` };
  if (body !== undefined) sent['content-type'] = 'application/json';
  const response = await fetch(`api/${path}`, {
    method, headers: sent, signal, body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (!response.ok) {
    const told = await response.json().catch(() => ({}));
    throw new Refused(response.status, told.error);
  }
  return response;
}

export async function get(path) { return (await ask('GET', path)).json(); }
export async function getExactly(path) { return parseExactly(await (await ask('GET', path)).text()); }
export async function getBlob(path) { return (await ask('GET', path)).blob(); }
export async function post(path, body = {}) { return (await ask('POST', path, body)).json(); }
export async function remove(path) { await ask('DELETE', path); }

// Parse JSON with each number as it is written: more than 53 bits, or `1.0`, would change in JavaScript, and a person who
// edits a call would change it unknowingly. Browsers without support for this get plain numbers.
export const parseExactly = (text) => JSON.parse(text, (key, value, context) =>
  typeof value === 'number' && context?.source && JSON.rawJSON ? JSON.rawJSON(context.source) : value);

// Statuses of a server that is stopping, or of a proxy in front of it: try again.
const AWAY = [429, 502, 503, 504];

// Yield the events of a run until its end, whoever started it. `reset` means: discard all earlier events of this run. `lost`
// and `back` report the state of the connection.
export async function* watch(runId, signal) {
  let last = null;
  for (let failures = 0; ; ) {
    try {
      const headers = last === null ? {} : { 'last-event-id': last };
      const response = await ask('GET', `runs/${runId}/events?function_calls=true&tool_results=true`, undefined, headers, signal);
      if (response.status === 204) return;
      for await (const frame of frames(response.body)) {
        if (failures > 1) yield { type: 'back' };
        failures = 0;
        if (frame.id !== null) last = frame.id;
        if (frame.data === '') continue;
        const event = JSON.parse(frame.data);
        yield event;
        if (event.type === 'end') return;
      }
    } catch (error) {
      if (error.name === 'AbortError' || (error instanceof Refused && !AWAY.includes(error.status))) throw error;
    }
    failures += 1;
    if (failures === 2) yield { type: 'lost' };
    await new Promise((resolve) => setTimeout(resolve, Math.min(250 * 2 ** failures, 10_000)));
  }
}

// Server-sent events (WHATWG HTML, section 9.2), limited to what this server sends: LF only.
async function* frames(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split('\n\n');
      rest = blocks.pop();
      yield* blocks.map(readFrame);
    }
  } finally {
    reader.cancel().catch(() => {}); // a lost connection cannot be cancelled
  }
}

function readFrame(block) {
  const frame = { id: null, data: '' };
  for (const line of block.split('\n')) {
    if (line.startsWith('data: ')) frame.data += (frame.data && '\n') + line.slice(6);
    if (line.startsWith('id: ')) frame.id = line.slice(4);
  }
  return frame;
}
