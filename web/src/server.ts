// The server: requests with a key or with the login of the host application, and run events that continue after a lost connection.

import { session } from './storage';
import type { Event } from './types';

/** The server refused a request. `status` is 0 if the page itself refused, or the server cannot be reached. */
export class Refused extends Error {
  constructor(readonly status: number, readonly facts: Record<string, unknown> = {}) {
    super(typeof facts['message'] === 'string' ? facts['message'] : `The server answered with ${status}.`);
  }
}

let key = session.getItem('key') ?? '';

export const hasKey = () => key !== '';
export const isKey = (text: string) => key === text.trim();

export function useKey(text: string) {
  key = text.trim();
  session.clear(); // also the calls that this person has approved for a conversation
  if (key) session.setItem('key', key);
}

/** Return the key in the fragment of a link, which servers and logs never see, and remove it from the address; else null. */
export function takeKeyFromAddress(): string | null {
  const found = new URLSearchParams(location.hash.slice(1)).get('key');
  if (found) history.replaceState(null, '', location.pathname);
  return found || null;
}

interface Options { body?: unknown; bytes?: Blob; headers?: Record<string, string>; signal?: AbortSignal }

async function ask(method: string, path: string, { body, bytes, headers = {}, signal }: Options = {}): Promise<Response> {
  const sent: Record<string, string> = key ? { ...headers, authorization: `Bearer ${key}` } : { ...headers };
  if (body !== undefined) sent['content-type'] = 'application/json';
  const response = await fetch(`api/${path}`, { method, headers: sent, signal, body: bytes ?? (body === undefined ? undefined : JSON.stringify(body)) })
    .catch((error: unknown) => { throw isAbort(error) ? error : new Refused(0, { message: 'The server cannot be reached.', is_away: true }); });
  if (!response.ok) {
    const { error } = await response.json().catch(() => ({})) as { error?: Record<string, unknown> };
    throw new Refused(response.status, error);
  }
  return response;
}

export const get = async <T>(path: string): Promise<T> => (await ask('GET', path)).json();
export const getExactly = async <T>(path: string): Promise<T> => parseExactly(await (await ask('GET', path)).text()) as T;
export const getBlob = async (path: string): Promise<Blob> => (await ask('GET', path)).blob();
export const post = async <T>(path: string, body: unknown = {}): Promise<T> => (await ask('POST', path, { body })).json();
export const postExactly = async <T>(path: string, body: unknown): Promise<T> => parseExactly(await (await ask('POST', path, { body })).text()) as T;
export const patch = async <T>(path: string, body: unknown): Promise<T> => (await ask('PATCH', path, { body })).json();
export const put = async (path: string, bytes: Blob): Promise<void> => { await ask('PUT', path, { bytes }); };
export const remove = async (path: string): Promise<void> => { await ask('DELETE', path); };

export const urlPath = (path: string) => path.split('/').map(encodeURIComponent).join('/');

type Reviver = (key: string, value: unknown, context?: { source: string }) => unknown;
const rawJSON = (JSON as { rawJSON?: (text: string) => unknown }).rawJSON;

/**
 * Parse JSON with each number as it is written: more than 53 bits, or `1.0`, would change in JavaScript, and a person who
 * edits a call would change it unknowingly. Such numbers are objects. Browsers without support for this get plain numbers.
 */
export const parseExactly = (text: string): unknown => JSON.parse(text, ((_, value, context) =>
  typeof value === 'number' && context?.source && rawJSON && String(value) !== context.source ? rawJSON(context.source) : value) as Reviver);

/** Whether a server is stopping, or cannot be reached by this page or by a proxy: try again. */
export const isAway = (error: unknown) => error instanceof Refused && (error.facts['is_away'] === true || [429, 502, 503, 504].includes(error.status));

/**
 * Yield the events of a run until its end, whoever started it. `reset` means: discard all earlier events of this run. `lost`
 * and `back` report the state of the connection.
 */
export async function* watch(runId: string, signal?: AbortSignal): AsyncGenerator<Event> {
  let last: string | null = null;
  for (let failures = 0; ;) {
    try {
      const headers: Record<string, string> = last === null ? {} : { 'last-event-id': last };
      const response = await ask('GET', `runs/${runId}/events?function_calls=true&tool_results=true&thinking=true`, { headers, signal });
      if (response.status === 204) return;
      for await (const frame of frames(response.body!)) {
        if (failures > 1) yield { type: 'back' };
        failures = 0;
        if (frame.id !== null) last = frame.id;
        if (frame.data === '') continue;
        const event = JSON.parse(frame.data) as Event;
        yield event;
        if (event.type === 'end') return;
      }
    } catch (error) {
      if (isAbort(error) || (error instanceof Refused && !isAway(error))) throw error;
    }
    failures += 1;
    if (failures === 2) yield { type: 'lost' };
    await new Promise((resolve) => setTimeout(resolve, Math.min(250 * 2 ** failures, 10_000)));
  }
}

export const isAbort = (error: unknown) => error instanceof DOMException && error.name === 'AbortError';

/** Server-sent events (WHATWG HTML, section 9.2), limited to what this server sends: LF only. */
async function* frames(body: ReadableStream<Uint8Array<ArrayBuffer>>) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split('\n\n');
      rest = blocks.pop() ?? '';
      yield* blocks.map(readFrame);
    }
  } finally {
    reader.cancel().catch(() => {}); // a lost connection cannot be cancelled
  }
}

function readFrame(block: string) {
  const frame: { id: string | null; data: string } = { id: null, data: '' };
  for (const line of block.split('\n')) {
    if (line.startsWith('data: ')) frame.data += (frame.data && '\n') + line.slice(6);
    if (line.startsWith('id: ')) frame.id = line.slice(4);
  }
  return frame;
}
