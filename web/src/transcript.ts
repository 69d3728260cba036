// The dialogue as turns: from stored messages, and from the events of a run. All functions are pure.

import { parseExactly } from './server';
import type { Content, Event, Message, Part, Version } from './types';

export interface Media { type: string; data: string | null }
export interface Prompt { text: string; media: Media[]; files?: string[] }
export interface Call {
  kind: 'call'; id: string; name: string; args: Record<string, unknown> | string; outcome: string | null; result: string;
  exitCode: number | null; steps: Item[]; media: Media[]; hasThread: boolean;
  /** The result, if a person or a program gave it in place of the tool. */
  answer: string | null;
}
export type Item = { kind: 'text' | 'thinking' | 'void' | 'note'; text: string } | Call;
export interface Turn {
  key: string;
  /** The position of its first message in the transcript. */
  at: number;
  prompt: Prompt | null;
  items: Item[];
}

const asText = (value: unknown): string => typeof value === 'string' ? value : value === undefined ? '' : JSON.stringify(value, null, 2);

/** A text as it is, and any other value as JSON in one line. */
export const inOneLine = (value: unknown): string => typeof value === 'string' ? value : JSON.stringify(value ?? null);

export function readArgs(args: unknown): Record<string, unknown> | string {
  if (typeof args !== 'string') return (args ?? {}) as Record<string, unknown>;
  try {
    const parsed = parseExactly(args || '{}');
    return parsed !== null && typeof parsed === 'object' && !Array.isArray(parsed) ? parsed as Record<string, unknown> : args;
  } catch { return args; }
}

function readContent(content: unknown): Prompt {
  const pieces = (Array.isArray(content) ? content : [content]) as Content[];
  const media = pieces.flatMap((piece) => piece !== null && typeof piece === 'object' && 'media_type' in piece
    ? [{ type: piece.media_type ?? 'file', data: piece.data ?? null }] : []);
  const texts = pieces.filter((piece) => typeof piece !== 'object' || piece === null || !('media_type' in piece))
    .map((piece) => asText(piece !== null && typeof piece === 'object' && /^(text|structured)-content$/.test(piece.kind ?? '') ? piece.content : piece));
  return { text: texts.join('\n'), media };
}

const LOADED_SKILL = /^<skill name="([^"\n]+)">\n[^]*?\n<\/skill>\n\n/;

/** A prompt as the person typed it, with `/NAME` in place of each loaded skill, as in the prompts of versions. */
export function typed(prompt: string): string {
  const names: string[] = [];
  for (let skill; (skill = LOADED_SKILL.exec(prompt)) !== null; prompt = prompt.slice(skill[0].length)) names.push(`/${skill[1]}`);
  return [...names, prompt].join(' ');
}

const newCall = (id: string, name: string, args: unknown): Call =>
  ({ kind: 'call', id, name, args: readArgs(args), outcome: null, result: '', exitCode: null, steps: [], media: [], hasThread: false, answer: null });

/** Whether a prompt is what the memory adds to it, for the model. */
const isMemory = (content: unknown) => Array.isArray(content) && content.length > 0
  && (content as Content[]).every((piece) => typeof piece === 'object' && /^pydantic-ai-harness\.memory\./.test(piece?.metadata?.origin ?? ''));

/** `state` is that of the version with the messages. */
export function turnsOf(messages: Message[], state: string | null = null): Turn[] {
  const turns: Turn[] = [];
  messages.forEach((message, index) => {
    // A text beside results is a note for the model, such as on a call that a person changed.
    const hasResults = message.parts.some((part) => part.part_kind === 'tool-return');
    for (const part of message.parts) {
      const last = turns.at(-1);
      if (part.part_kind === 'user-prompt' && last && isMemory(part.content)) last.items.push({ kind: 'note', text: 'The agent read its memory.' });
      else if (part.part_kind === 'user-prompt' && hasResults && last) last.items.push({ kind: 'note', text: readContent(part.content).text });
      else if (part.part_kind === 'user-prompt') turns.push({ key: String(index), at: index, prompt: readContent(part.content), items: [] });
      else if (last) addPart(last.items, part);
      else {
        const items: Item[] = [];
        addPart(items, part);
        if (items.length > 0) turns.push({ key: String(index), at: index, prompt: null, items });
      }
    }
  });
  if (state === 'interrupted' || state === 'failed') { // its last calls will never have a result
    for (const item of turns.at(-1)?.items ?? []) if (item.kind === 'call') item.outcome ??= 'interrupted';
  }
  return turns;
}

function addPart(items: Item[], part: Part): void {
  const id = part.tool_call_id ?? '';
  switch (part.part_kind) {
    case 'text': case 'thinking':
      if (part.content) items.push({ kind: part.part_kind, text: asText(part.content) });
      break;
    case 'tool-call': case 'builtin-tool-call': items.push(newCall(id, part.tool_name ?? '', part.args)); break;
    case 'tool-return': case 'builtin-tool-return': case 'retry-prompt': {
      const call = items.find((item): item is Call => item.kind === 'call' && item.id === id);
      if (!call) break;
      const { text, media } = readContent(part.content);
      const answer = part.metadata?.pydantic_deep?.kind === 'answered' ? inOneLine(part.content) : null;
      Object.assign(call, { result: text, media, hasThread: part.metadata?.sub_agent_thread_id !== undefined, answer });
      call.outcome = part.part_kind === 'retry-prompt' ? 'retried' : part.outcome ?? 'success';
      break;
    }
    case 'compaction': items.push({ kind: 'note', text: 'A summary replaced the messages above. The agent can search them.' }); break;
    default: break; // parts for models only
  }
}

/** Return the items after an event. Unchanged items remain the same objects. */
export function after(items: Item[], event: Event): Item[] {
  const path = event.path ?? [];
  switch (event.type) {
    case 'reset': return [];
    case 'text': case 'thinking': return inside(items, path, (list) => append(list, event.type as 'text', event.text));
    case 'tool_call': {
      const call = newCall(event.id, event.name, event.args);
      // A run that continues a turn emits pending calls again. A delegation keeps the steps before them.
      return inCall(items, event.id, (list) => {
        const steps = list.flatMap((item) => item.kind === 'call' && item.id === event.id ? item.steps : []);
        return [...list.filter((item) => item.kind !== 'call' || item.id !== event.id), { ...call, steps }];
      });
    }
    case 'tool_result': return inCall(items, event.id, (list) => list.map((item) => item.kind === 'call' && item.id === event.id
      ? { ...item, outcome: event.outcome, result: event.content, exitCode: event.exit_code } : item));
    case 'summarized': case 'retried': case 'budget': case 'status': return inside(items, path, (list) => withNote(list, event));
    default: return items;
  }
}

function append(items: Item[], kind: 'text' | 'thinking', text: string): Item[] {
  const last = items.at(-1);
  if (text === '') return items;
  return last?.kind === kind ? [...items.slice(0, -1), { kind, text: last.text + text }] : [...items, { kind, text }];
}

/** Change the items of the subagent to which a path leads: that of the last unfinished delegation at each level. */
function inside(items: Item[], path: string[], change: (items: Item[]) => Item[]): Item[] {
  if (path.length === 0) return change(items);
  const at = items.findLastIndex((item) => item.kind === 'call' && item.outcome === null && item.name === 'task'
    && (typeof item.args === 'string' || (item.args['subagent'] ?? 'general-purpose') === path[0]));
  return at < 0 ? items : items.map((item, index) => index === at ? { ...item as Call, steps: inside((item as Call).steps, path.slice(1), change) } : item);
}

/** Change the items among which a call is. The id of a call of a subagent begins with that of its delegation and a slash. */
function inCall(items: Item[], id: string, change: (items: Item[]) => Item[]): Item[] {
  const at = items.findIndex((item) => item.kind === 'call' && id.startsWith(`${item.id}/`));
  return at < 0 ? change(items) : items.map((item, index) => index === at ? { ...item as Call, steps: inCall((item as Call).steps, id, change) } : item);
}

function withNote(items: Item[], event: Event): Item[] {
  switch (event.type) {
    case 'summarized': {
      const size = `${event.tokens_before.toLocaleString('en')} to ${event.tokens_after.toLocaleString('en')} tokens`;
      return [...items, { kind: 'note', text: `Messages summarized: ${event.replaced_messages}, ${size}.${event.is_plain ? ' No model could write the summary.' : ''}` }];
    }
    case 'retried': {
      const last = items.at(-1);
      const before: Item[] = event.void_text && last?.kind === 'text' ? [...items.slice(0, -1), { kind: 'void', text: last.text }] : items;
      const delay = event.delay_seconds ? ` in ${event.delay_seconds.toFixed(1)} s` : '';
      return [...before, { kind: 'note', text: `Attempt ${event.attempt} of ${event.attempts}${delay}: ${event.reason}.` }];
    }
    case 'budget': {
      if (event.kind === 'unknown') return [...items, { kind: 'note', text: `The ${event.measure} of a response of ${event.model ?? 'a model'} is unknown: the budget does not count it.` }];
      const amount = (number: number | null) => event.measure === 'cost' ? `$${number?.toFixed(4)}` : `${number?.toLocaleString('en')} ${event.measure}`;
      return [...items, { kind: 'note', text: `Budget of the ${event.scope}: ${amount(event.used)} of ${amount(event.limit)} used.${event.kind === 'last_answer' ? ' One more response is allowed.' : ''}` }];
    }
    case 'status': return [...items, { kind: 'note', text: event.text }];
    default: return items;
  }
}

// Versions

/** Return the versions from the head back to the first one that is known, oldest first. */
export function lineageOf(versions: Version[], headId: string | null): Version[] {
  const byId = new Map(versions.map((version) => [version.id, version]));
  const lineage: Version[] = [];
  for (let id = headId; id !== null; id = lineage.at(-1)!.parent_id) {
    const version = byId.get(id);
    if (!version) break;
    lineage.push(version);
  }
  return lineage.reverse();
}

export interface Place {
  /** The version from which the turn started. */
  base: Version;
  /** The first version of the turn. */
  own: Version;
  /** The last version of the turn. It differs if the turn paused for approvals. */
  last: Version;
  /** The turns that started from the same version, oldest first, with this one. */
  alternatives: Version[];
  /** The names of the files that were attached to the prompt. Each is an edit of its own before the turn. */
  files: string[];
}

const UPLOADS = '/uploads/';
const uploadsOf = (version: Version) => (version.files_changed ?? []).filter((path) => path.startsWith(UPLOADS)).map((path) => path.slice(UPLOADS.length));

/** The turns of a conversation among its versions. */
export interface Places {
  /** By the position of its prompt in the transcript. */
  at: (position: number) => Place | null;
  /** The turns from a version that failed before any response, and so are not in the transcript, before another turn from it; without those that were tried again. */
  failures: (base: string | null, runId: string | null, prompt: string | null) => Version[];
}

const isTurn = (version: Version) => version.prompt !== null && version.kind !== 'edit' && version.kind !== 'merge' && version.kind !== 'root';

export function placesOf(versions: Version[], headId: string | null): Places {
  const lineage = lineageOf(versions, headId);
  const byId = new Map(versions.map((version) => [version.id, version]));
  const anchor = (id: string | null): string | null => {
    const version = id === null ? undefined : byId.get(id);
    return version?.kind === 'edit' ? anchor(version.parent_id) : id;
  };
  const startsByAnchor = new Map<string | null, Version[]>();
  for (const version of [...versions].reverse()) {
    const parent = byId.get(version.parent_id ?? '');
    if (!isTurn(version) || (parent && parent.state === 'awaiting_approval')) continue; // the turn of the parent continues
    startsByAnchor.set(anchor(version.parent_id), [...startsByAnchor.get(anchor(version.parent_id)) ?? [], version]);
  }
  // A summary shortens the history: positions before it mean nothing in earlier versions.
  let first = lineage.length - 1;
  while (first > 0 && lineage[first - 1]!.message_count <= lineage[first]!.message_count) first -= 1;
  const counted = lineage.slice(Math.max(first, 0));
  const failures: Places['failures'] = (base, runId, prompt) => {
    const starts = startsByAnchor.get(anchor(base)) ?? [];
    const own = starts.findIndex((version) => version.run_id === runId);
    const before = own < 0 ? starts : starts.slice(0, own); // a turn that is running is not stored yet
    return before.filter((version, index) => version.state === 'failed' && version.usage.requests === byId.get(version.parent_id ?? '')?.usage.requests
      && version.prompt !== prompt && !before.slice(index + 1).some((later) => later.prompt === version.prompt));
  };
  const at: Places['at'] = (position) => {
    const index = counted.findLastIndex((version) => version.message_count <= position);
    const base = counted[index], own = counted[index + 1];
    if (!base || !own) return null;
    const last = counted.slice(index + 1).find((version) => version.state !== 'awaiting_approval') ?? own;
    const alternatives = (startsByAnchor.get(anchor(base.id)) ?? []).filter((version) => version.state !== 'failed' || version.id === own.id);
    let files: string[] = [];
    for (let before: Version | undefined = base; before?.kind === 'edit'; before = byId.get(before.parent_id ?? '')) files = [...uploadsOf(before), ...files];
    return { base, own, last, alternatives, files };
  };
  return { at, failures };
}

/** Return the runs of the turn of a run, oldest first: a turn that pauses for approvals has several. */
export function runsOfTurn(versions: Version[], headId: string | null, runId: string): string[] {
  const own = versions.find((version) => version.run_id === runId);
  if (own === undefined) return [runId];
  const lineage = lineageOf(versions, headId);
  const line = lineage.includes(own) ? lineage : lineageOf(versions, own.id);
  let first = line.indexOf(own), last = first;
  while (line[first - 1]?.state === 'awaiting_approval') first -= 1;
  while (line[last]!.state === 'awaiting_approval' && last + 1 < line.length) last += 1;
  return line.slice(first, last + 1).flatMap((version) => version.run_id ?? []);
}

/** Return the newest version that continues a version, or the version itself. */
export function newestBelow(versions: Version[], id: string): string {
  const below = new Set([id]);
  let newest = id;
  for (const version of [...versions].reverse()) { // oldest first
    if (version.parent_id === null || !below.has(version.parent_id) || version.state === 'failed') continue;
    below.add(version.id);
    newest = version.id;
  }
  return newest;
}

/** Whether a version is the head or one of its ancestors, also through merges. */
export function isWithin(versions: Version[], id: string, head: string | null): boolean {
  const within = new Set([head]);
  for (const version of versions) if (within.has(version.id)) within.add(version.parent_id).add(version.merged_from); // newest first
  return within.has(id);
}

const KINDS: Record<string, string> = { root: 'Beginning', step: 'Step', turn: 'Resumed after an answer', pause: 'Resumed and paused again', edit: 'Edited', merge: 'Merged' };

/** Return the name of a version, as a person would call it. */
export function nameOf(version: Version): string {
  const [first, ...more] = version.prompt?.trim().split('\n') ?? [];
  if (first !== undefined && version.kind !== 'merge' && version.kind !== 'edit') return more.length ? `${first} …` : first;
  const uploads = version.kind === 'edit' ? (version.files_changed ?? []).map((path) => path.split('/').at(-1)) : [];
  return uploads.length > 0 ? `Uploaded ${uploads.join(', ')}` : KINDS[version.kind] ?? version.kind;
}
