// The state of the page, and the actions on it. Components read signals; only this module talks to the server about them.

import { batch, computed, signal } from '@preact/signals';

import { notify } from './preferences';
import { approveLater, isApproved } from './repeats';
import * as server from './server';
import { Refused } from './server';
import { keep, session } from './storage';
import { plain } from './text';
import { after, nameOf, type Item, type Prompt, type Turn, turnsOf, typed } from './transcript';
import type {
  Agent, Approval, Conversation, Difference, FileInfo, Me, Message, Page, Repeat, Run, Skill, Summary, Todo, Version, VersionDetails,
} from './types';

/** The open conversation at its head. */
export interface Open { details: Conversation; turns: Turn[]; versions: Version[]; files: FileInfo[]; suspended: Run[] }
/** A run of the open conversation, or the failed end of one. */
export interface Live { runId: string; isRunning: boolean; prompt: Prompt | null; items: Item[]; error: string | null; wasStopped: boolean; base: string | null }
/** A pending call, or one that is answered and keeps its place until the person turns to something else. */
export interface Card { key: string; approval: Approval }

export const isPending = ({ status }: Approval) => status === 'pending';
export type Route =
  | { view: 'new' } | { view: 'chat'; id: string } | { view: 'versions'; id: string; version: string | null; other: string | null }
  | { view: 'inbox'; approval: string | null };

export const me = signal<Me | null>(null);
/** The server knows nobody who sends these requests: a person has to sign in. */
export const needsSignIn = signal(false);
/** Where people log in to the host application; null if they need a key. */
export const loginUrl = signal<string | null>(null);
export const agents = signal<Agent[]>([]);
export const agent = signal('');
export const skills = signal<Skill[]>([]);
export const conversations = signal<Summary[]>([]);
export const cursor = signal<string | null>(null);
export const search = signal('');
/** What the address says, so that a page that is still loading never shows the composer of a new conversation instead. */
export const route = signal<Route>(parseRoute(location.hash));
export const open = signal<Open | null>(null);
/** The address leads to a conversation or a version that does not exist for this person. */
export const isMissing = signal(false);
export const live = signal<Live | null>(null);
export const isRunning = computed(() => live.value?.isRunning ?? false);
export const todos = signal<Todo[]>([]);
export const cards = signal<Card[]>([]);
/** The answered calls of the open conversation, by the ids of the calls, as far as they are known. */
export const decisions = signal<ReadonlyMap<string, Approval>>(new Map());
export const problem = signal<string | null>(null);
/** What was just done, and how to undo it. */
export const toast = signal<{ text: string; undo: (() => Promise<void>) | null } | null>(null);
/** A request of one part of the page to put a text into the composer. */
export const draft = signal<{ text: string } | null>(null);
export const isConnectionLost = signal(false);
/** Why the shown run does not begin or continue yet, such as that no worker has its agent. */
export const delay = signal<string | null>(null);

export const pendingCount = computed(() => cards.value.filter((card) => isPending(card.approval)).length);
export const may = (scope: string) => me.value !== null && (me.value.scopes.includes(scope) || me.value.scopes.includes('admin'));
const currentId = () => route.value.view === 'chat' || route.value.view === 'versions' ? route.value.id : null;

// Errors

// The messages of the server for these errors are for programs.
const UNKNOWN_KEY = 'The server does not know this API key: it is wrong, or has expired, or was revoked.';
const BUSY = 'A turn of the conversation is running. Wait for its end, or stop it first.';
const WAITS = 'Calls of the last turn wait for a decision. Answer them first, or edit an earlier prompt.';

export function fail(error: unknown): void {
  if (server.isAbort(error)) return;
  const isUnknown = error instanceof Refused && error.status === 401;
  const isFirst = isUnknown && me.value === null && !server.hasKey(); // nothing has failed yet
  const isBusy = error instanceof Refused && typeof error.facts['run_id'] === 'string';
  const waits = error instanceof Refused && Array.isArray(error.facts['pending']);
  problem.value = isFirst ? null : isBusy ? BUSY : waits ? WAITS : isUnknown && server.hasKey() ? UNKNOWN_KEY : error instanceof Error ? error.message : String(error);
  if (isUnknown) {
    needsSignIn.value = true;
    loginUrl.value = typeof error.facts['login_url'] === 'string' ? error.facts['login_url'] : null;
  } else if (isBusy) void lookForChanges(); // another page has started the turn
  else if (!(error instanceof Refused)) console.error(error);
}

/** Return an action of a person, which shows its errors. It returns undefined if it failed. */
export const guarded = <A extends unknown[], R>(act: (...given: A) => Promise<R>) => async (...given: A): Promise<R | undefined> => {
  problem.value = null;
  try { return await act(...given); } catch (error) { fail(error); return undefined; }
};

/** Return an action that nobody asked for: it leaves earlier errors on the screen, and is silent if the server is away for a while. */
export const unattended = <A extends unknown[], R>(act: (...given: A) => Promise<R>) => async (...given: A): Promise<R | undefined> => {
  try { return await act(...given); } catch (error) { if (!server.isAway(error)) fail(error); return undefined; }
};

// Addresses

export function parseRoute(hash: string): Route {
  const [kind, first, second] = hash.replace(/^#\/?/, '').split('/');
  if (kind === 'c' && first) return second === 'versions' ? { view: 'versions', id: first, version: null, other: null } : { view: 'chat', id: first };
  if (kind === 'v' && first) return { view: 'versions', id: '', version: first, other: second ?? null };
  if (kind === 'a') return { view: 'inbox', approval: first ?? null };
  return { view: 'new' };
}

/** Go to an address at once: the browser would tell the page later, and what a person types until then would be lost in the view before. */
export function go(address: string): void {
  if (address === location.hash) return;
  history.pushState(null, '', address);
  window.dispatchEvent(new HashChangeEvent('hashchange'));
}

/** Show what the address says. A link to a version or an approval does not say its conversation. */
export const follow = guarded(async () => {
  const { hash } = location;
  const next = parseRoute(hash);
  tidy();
  isMissing.value = false;
  if (next.view === 'versions' && next.version !== null) {
    const known = open.value?.versions.find((version) => version.id === next.version);
    next.id = known?.conversation_id ?? (await found(server.get<Version>(`versions/${next.version}`)))?.conversation_id ?? '';
    if (location.hash !== hash) return; // the person has gone elsewhere
    isMissing.value = next.id === '';
  }
  const isOther = (next.view === 'chat' || next.view === 'versions') && next.id !== currentId();
  batch(() => {
    route.value = next;
    if (isOther || next.view === 'new') { leave(); decisions.value = new Map(); if (open.value?.details.id !== (next as { id?: string }).id) open.value = null; }
  });
  if (isMissing.value) open.value = null;
  else if (next.view === 'chat' || next.view === 'versions') { if (open.value?.details.id !== next.id || isOther) await refresh(); }
  else if (next.view === 'inbox') await listApprovals();
  else { todos.value = []; }
});

/** Return what the server has, or null if it has no such thing for this person: then the address leads nowhere. */
async function found<T>(answer: Promise<T>): Promise<T | null> {
  try { return await answer; } catch (error) {
    if (!(error instanceof Refused && (error.status === 404 || error.status === 422))) throw error;
    return null;
  }
}

// The beginning

export const begin = guarded(async () => {
  const [person, { items }] = await Promise.all([server.get<Me>('me'), server.get<{ items: Agent[] }>('agents')]);
  if (me.value !== null && me.value.owner !== person.owner) return location.reload(); // nothing of the other owner remains
  leave();
  batch(() => {
    needsSignIn.value = false;
    me.value = person;
    open.value = null;
    if (!person.has_key && server.hasKey()) server.useKey(''); // the login decides, so a key of a link is not used
    agents.value = items;
    if (!items.some((each) => each.name === agent.value)) agent.value = items[0]?.name ?? '';
  });
  await Promise.all([listConversations(), listApprovals(), listSkills()]);
  const address = session.getItem('address'); // of a person who has left the page to sign in
  session.removeItem('address');
  if (address !== null && location.hash === '') history.replaceState(null, '', address);
  await follow();
});

export const listSkills = unattended(async () => {
  const name = agent.value;
  if (!name) return;
  const { items } = await server.get<{ items: Skill[] }>(`agents/${encodeURIComponent(name)}/skills`);
  if (agent.value === name) skills.value = items;
});

// Conversations

/** How many conversations are loaded at once. */
const PAGE = 30;

export const listConversations = unattended(async (more = false) => {
  if (!may('run')) return;
  const wanted = search.value.trim();
  const from = more ? cursor.value : null;
  const parameters = new URLSearchParams({ limit: String(PAGE) });
  if (wanted) parameters.set('search', wanted);
  if (from !== null) parameters.set('cursor', from);
  const page = await server.get<Page<Summary>>(`conversations?${parameters}`);
  if (search.value.trim() !== wanted || (more && cursor.value !== from)) return; // the list is another one by now
  batch(() => {
    conversations.value = more ? [...conversations.value, ...page.items] : page.items;
    cursor.value = page.cursor;
  });
});

/** Show the conversations that another page or a program has started, renamed or deleted, unless the person has loaded older ones. */
export const refreshList = async () => { if (conversations.value.length <= PAGE) await listConversations(); };

/** Return why a turn has failed, and its prompt with the text of loaded skills, which is sent again. */
async function loadFailure(id: string, failed: Version): Promise<[VersionDetails['error'], Prompt | null]> {
  const [{ error }, { messages }] = await Promise.all([
    server.get<VersionDetails>(`versions/${failed.id}`),
    server.getExactly<{ messages: Message[] }>(`conversations/${id}/messages?version=${failed.id}`),
  ]);
  return [error, turnsOf(messages).at(-1)?.prompt ?? null];
}

/**
 * Load the open conversation at its head. The stored state replaces that of a run that has ended, also some time ago, if the server
 * was away then. `over` is a run that has just ended: the server may still list it as running.
 */
export async function refresh(over: string | null = null): Promise<void> {
  const id = currentId();
  if (id === null) return;
  const ended = live.value?.isRunning === false ? live.value : null;
  const details = await found(server.get<Conversation>(`conversations/${id}`));
  if (currentId() !== id) return;
  if (details === null) {
    isMissing.value = true;
    open.value = null;
    conversations.value = conversations.value.filter((each) => each.id !== id);
    return;
  }
  const [transcript, history, files, suspended] = await Promise.all([
    server.getExactly<{ messages: Message[] }>(`conversations/${id}/messages`),
    server.get<Page<Version>>(`conversations/${id}/versions?limit=200`),
    server.get<{ items: FileInfo[] }>(`versions/${details.head}/files`),
    Promise.all(details.suspended.map((run) => server.get<Run>(`runs/${run}`))),
  ]);
  const failed = history.items[0];
  const isKept = failed?.id === details.head; // its steps are in the transcript
  const hasFailed = live.value === null && failed?.state === 'failed' && (isKept || failed.parent_id === details.head) && failed.prompt !== null;
  const [error, prompt] = hasFailed ? await loadFailure(id, failed) : [null, null];
  if (currentId() !== id) return; // another conversation was opened in the meantime
  const hasMoved = open.value?.details.head !== details.head;
  batch(() => {
    open.value = { details, turns: turnsOf(transcript.messages, details.state), versions: history.items, files: files.items, suspended };
    todos.value = details.todos;
    agent.value = details.agent;
    if (ended !== null && live.value === ended) {
      const isOver = ended.error === null || (hasMoved && (ended.wasStopped || failed?.run_id !== ended.runId));
      live.value = isOver ? null : hasMoved ? { ...ended, prompt: null, items: [] } : ended;
    }
    if (hasFailed && live.value === null) {
      live.value = { runId: failed.run_id ?? '', isRunning: false, prompt: isKept ? null : prompt, items: [], error: `The last turn failed${error ? `: ${error}` : '.'}`, wasStopped: false, base: details.head };
    }
  });
  await listApprovals();
  if (details.state === 'awaiting_approval') await loadDecisions();
  const running = details.running[0];
  if (running !== undefined && running !== over) void watchRun(id, running, null);
  void loadOlderVersions(id, history);
}

/** Load the other pages of versions, which old turns and branches need, until the conversation is loaded again or left. */
async function loadOlderVersions(id: string, { items, cursor }: Page<Version>): Promise<void> {
  for (let shown = items, next = cursor; next !== null;) {
    const page = await server.get<Page<Version>>(`conversations/${id}/versions?limit=200&cursor=${next}`).catch(() => ({ items: [], cursor: null }));
    if (open.value?.versions !== shown) return;
    shown = [...shown, ...page.items];
    open.value = { ...open.value, versions: shown };
    next = page.cursor;
  }
}

export const rename = guarded(async (id: string, name: string) => {
  const details = await server.patch<Conversation>(`conversations/${id}`, { name });
  conversations.value = conversations.value.map((each) => each.id === id ? { ...each, name: details.name, head: details.head } : each);
  if (open.value?.details.id === id) await refresh();
});

export const removeConversation = guarded(async (id: string) => {
  await server.remove(`conversations/${id}`).catch((error: unknown) => { if (!(error instanceof Refused && error.status === 404)) throw error; });
  conversations.value = conversations.value.filter((each) => each.id !== id);
  if (currentId() === id) go('#/');
  toast.value = { text: 'The conversation is deleted.', undo: null };
});

// Turns

let watching: AbortController | null = null;
let isSending = false; // pressing a key twice must not send a prompt twice

/** Stop watching the run. The run itself continues. */
function leave(): void {
  watching?.abort();
  watching = null;
  live.value = null;
  delay.value = null;
  isConnectionLost.value = false;
}

/** A new conversation whose first prompt could not be sent yet, such as after a refused upload. */
let prepared: Conversation | null = null;

/** Put the new conversation into the list, and open it unless the person has gone elsewhere. */
function showPrepared(): void {
  const made = prepared!;
  prepared = null;
  conversations.value = [made, ...conversations.value.filter(({ id }) => id !== made.id)]; // a list loaded since may have it
  if (route.value.view !== 'new') return;
  history.pushState(null, '', `#/c/${made.id}`);
  batch(() => {
    route.value = { view: 'chat', id: made.id };
    open.value = { details: made, turns: [], versions: [], files: [], suspended: [] };
  });
}

/** Send a prompt with files, and return whether it was sent. A conversation is created with its first prompt, which names it. */
export async function send(prompt: string, files: File[] = [], to = currentId()): Promise<boolean> {
  if (isSending || live.value?.isRunning || needsSignIn.value) return false;
  isSending = true;
  try {
    return await guarded(async () => {
      if (to === null && prepared?.agent !== agent.value) {
        const name = [...prompt.split('\n')[0]!].slice(0, 60).join('');
        prepared = await server.post<Conversation>('conversations', { agent: agent.value, name });
      }
      const id = to ?? prepared!.id;
      for (const file of files) await upload(id, file);
      const base = open.value?.details.head ?? null;
      const run = await server.post<Run>(`conversations/${id}/turns?wait=false`, { prompt });
      if (to === null) showPrepared();
      toast.value = null; // it offers to undo what happened before this turn
      tidy(); // the calls of the last turn
      const sent: Prompt = { text: prompt, media: [], files: files.map((file) => file.name) };
      keep('sent', JSON.stringify([run.id, sent]));
      void watchRun(id, run.id, sent, base);
      return true;
    })() ?? false;
  } finally {
    isSending = false;
  }
}

async function upload(id: string, file: File): Promise<void> {
  await file.slice(0, 1).arrayBuffer().catch(() => {
    throw new Refused(0, { message: `${file.name} cannot be read: it is a folder, or was changed or removed. Attach it again.` });
  });
  try { await server.put(`conversations/${id}/uploads/${encodeURIComponent(file.name)}`, file); } catch (error) {
    throw error instanceof Refused ? new Refused(error.status, { ...error.facts, message: `${file.name}: ${error.message}` }) : error;
  }
}

/**
 * Send a prompt in place of the turn that started from a version: on a branch, if that turn is stored. If it cannot be sent,
 * the head is where it was, and the prompt is in the composer.
 */
export async function resend(prompt: string, baseId: string | null): Promise<void> {
  const id = currentId();
  const wasSent = id !== null && !isSending && !isRunning.value && await guarded(async () => {
    const head = open.value?.details.head;
    const moves = baseId !== null && head && baseId !== head;
    toast.value = null;
    if (moves) await server.post(`conversations/${id}/head`, { version: baseId, expected: head });
    let isSent = false;
    try {
      live.value = null;
      await refresh();
      isSent = await send(prompt, [], id);
      if (moves && isSent) offerUndo('Sent on a new branch.', id, head, null);
    } finally {
      if (moves && !isSent) {
        await server.post(`conversations/${id}/head`, { version: head, expected: baseId });
        await refresh();
      }
    }
    return isSent;
  })();
  if (!wasSent && currentId() === id) draft.value = { text: prompt };
}

/** The pause between two renderings of a streamed answer, however fast its events arrive. It leaves most frames to the person. */
const PAUSE_MS = 40;

/** Watch a run until its end, and then show the stored state; but not if the person has opened another conversation since. */
async function watchRun(id: string, runId: string, prompt: Prompt | null, base: string | null = null): Promise<void> {
  if (id !== currentId() || (live.value?.runId === runId && live.value.isRunning)) return;
  leave();
  const controller = watching = new AbortController();
  let now: Live = { runId, isRunning: true, prompt, items: [], error: null, wasStopped: false, base: base ?? open.value?.details.head ?? null };
  live.value = now;
  let isDue = false;
  const show = () => { isDue = false; if (watching === controller) live.value = now; };
  if (prompt === null) void loadDecisions(); // of the person or the program that has resumed the run
  if (prompt === null) void loadPrompt(runId).then((found) => { if (watching === controller) live.value = now = { ...now, prompt: found }; });
  try {
    for await (const event of server.watch(runId, controller.signal)) {
      if (watching !== controller) return;
      delay.value = null;
      if (event.type === 'todos') todos.value = event.todos;
      else if (event.type === 'error') now = { ...now, error: event.message, wasStopped: event.kind === 'cancelled' };
      else if (event.type === 'lost') isConnectionLost.value = true;
      else if (event.type === 'back') isConnectionLost.value = false;
      else now = { ...now, items: after(now.items, event) };
      if (!isDue) setTimeout(requestAnimationFrame, PAUSE_MS, show);
      isDue = true;
    }
  } catch (error) {
    if (watching === controller) fail(error);
  }
  if (watching !== controller) return;
  watching = null;
  isConnectionLost.value = false;
  live.value = now = { ...now, isRunning: false }; // it stays on the screen until the stored turn replaces it
  const isSeen = document.visibilityState === 'visible'; // a page that is hidden later has shown the end
  await unattended(refresh)(runId);
  const waits = cards.value.some(({ approval }) => isPending(approval) && approval.conversation_id === id);
  if (!waits && !isSeen) notify(plain(titleOf(id) ?? 'Conversation'), now.error === null ? 'The turn has ended.' : 'The turn has failed.', `#/c/${id}`);
}

/** The prompt that this tab has sent, also after a reload; or that of a run that somebody else started. */
async function loadPrompt(runId: string): Promise<Prompt | null> {
  const [sentId, sent] = JSON.parse(session.getItem('sent') ?? '[]') as [string?, Prompt?];
  if (sent && sentId === runId) return sent;
  const text = (await server.get<Run>(`runs/${runId}`).catch(() => null))?.prompt ?? null;
  const isShown = typed(open.value?.turns.at(-1)?.prompt?.text ?? '') === text; // the run continues a turn after an answer
  return text !== null && !isShown ? { text, media: [] } : null;
}

export const stop = guarded(async () => {
  if (live.value?.isRunning) await server.post(`runs/${live.value.runId}/cancel`);
});

/** Runs without an end in the store. If the conversation has moved on, a run resumes only on request, such as here. */
export const endSuspended = guarded(async (run: Run, verb: 'resume' | 'cancel') => {
  await server.post(`runs/${run.id}/${verb}`);
  live.value = null;
  await refresh();
});

// Versions

/** Move the head, and offer to move it back. */
export const moveHead = guarded(async (version: string, text: string) => {
  const from = open.value?.details.head;
  const id = currentId();
  if (!from || id === null) return;
  toast.value = null; // an earlier action must not be undone while the head moves
  await server.post(`conversations/${id}/head`, { version, expected: from });
  leave();
  await refresh();
  offerUndo(text, id, from, version);
});

/** Offer to move the head back. Without an expected head, the run that is on the screen now is stopped before. */
function offerUndo(text: string, id: string, from: string, expected: string | null): void {
  const run = live.value;
  toast.value = { text, undo: async () => { await guarded(async () => {
    if (expected === null && run !== null) await server.post(`runs/${run.runId}/cancel`);
    await server.post(`conversations/${id}/head`, { version: from, expected: expected ?? (await server.get<Conversation>(`conversations/${id}`)).head });
    leave();
    await refresh();
  })(); } };
}

export type Choices = Record<string, 'ours' | 'theirs'>;

/** Merge a version into the head. Return the conflicts, if a person has to choose. */
export const merge = guarded(async (other: Version, choices: Choices): Promise<{ path: string; kind: string }[]> => {
  const before = open.value!.details.head!;
  const id = currentId()!;
  toast.value = null;
  try {
    const merged = await server.post<Version>(`versions/${before}/merge`, { other: other.id, choices });
    await refresh();
    offerUndo(`Merged “${nameOf(other)}”.`, id, before, merged.id);
    return [];
  } catch (error) {
    const conflicts = error instanceof Refused ? error.facts['conflicts'] : undefined;
    if (!Array.isArray(conflicts)) throw error;
    return conflicts as { path: string; kind: string }[];
  }
});

export const difference = (from: string, to: string) => server.getExactly<Difference>(`versions/${from}/diff?to=${to}`);

export const download = guarded(async (version: string) => {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(await server.getBlob(`versions/${version}/archive`));
  link.download = `${version}.tar.gz`;
  link.click();
  URL.revokeObjectURL(link.href);
});

// Approvals

const keyOf = (approval: Approval) => `${approval.id} ${approval.view.digest}`;

/**
 * Load the pending calls. Those that are already shown remain in the same place, so that the focus and the pointer never move
 * to another call; new ones come last. Calls that are no longer pending remain, without buttons, until `tidy`.
 */
export const listApprovals = unattended(async () => {
  if (!may('approve')) return;
  const { items } = await server.get<Page<Approval>>('approvals?limit=200');
  const wanted = new Map(items.map((approval) => [keyOf(approval), approval]));
  const gone = cards.value.filter((card) => !wanted.delete(card.key) && isPending(card.approval));
  cards.value = [...cards.value, ...[...wanted].map(([key, approval]) => ({ key, approval }))];
  await Promise.all(gone.map(async ({ key, approval }) => { // answered by another person or program, expired, or deleted
    const now = await server.getExactly<Approval>(`approvals/${approval.id}`).catch((error: unknown) => {
      if (error instanceof Refused && error.status === 404) return null;
      throw error;
    });
    if (now === null || !isPending(now)) settle(key, now ?? { ...approval, status: 'gone' });
    else if (keyOf(now) !== key) settle(key, { ...approval, status: 'gone' }); // the new call has a card of its own
  }));
  const hasMoved = gone.some(({ approval }) => approval.conversation_id === open.value?.details.id);
  if (hasMoved && !isRunning.value) await refresh(); // the turn may have resumed
  void approveRepeats();
  for (const approval of wanted.values()) {
    if (isApproved(approval)) continue;
    notify(plain(titleOf(approval.conversation_id) ?? 'Conversation'), `A call of ${plain(approval.tool)} needs your decision.`, `#/a/${approval.id}`);
  }
});

/** The calls that this page has answered without asking, so that none is answered twice. */
const answered = new Set<string>();

/** Approve the calls that a person has approved together with an earlier one, each with its own digest. */
async function approveRepeats(): Promise<void> {
  const repeated = cards.value.filter(({ key, approval }) => isPending(approval) && !answered.has(key) && isApproved(approval));
  for (const { key } of repeated) answered.add(key);
  for (const card of repeated) {
    if (isApproved(card.approval)) await settleBy(card, card.approval.view.digest, { decision: 'approve', reason: 'Approved for this conversation.' }).catch(fail);
    else answered.delete(card.key); // the person wants to be asked again
  }
  if (repeated.length > 0) await listApprovals();
}

/** Remove answered calls. Call it only when the person turns to something else. */
export function tidy(): void {
  if (cards.value.some((card) => !isPending(card.approval))) cards.value = cards.value.filter((card) => isPending(card.approval));
}

export interface Answer { decision: 'approve' | 'deny' | 'edit' | 'respond'; reason?: string; args?: unknown; content?: unknown }

/**
 * Answer a call, and return whether the answer counts: another person may have answered first. It is for the displayed call:
 * if another call has this id, the server refuses the answer.
 */
async function settleBy(card: Card, digest: string, answer: Answer): Promise<boolean> {
  try {
    const path = `approvals/${card.approval.id}?resume=${may('run')}`;
    const done = await server.postExactly<{ approval: Approval; run_id: string | null }>(path, { ...answer, digest });
    if (done.run_id !== null) void watchRun(card.approval.conversation_id, done.run_id, null);
    settle(card.key, done.approval);
    return true;
  } catch (error) {
    if (error instanceof Refused && typeof error.facts['status'] === 'string') return false;
    throw error;
  }
}

/** Answer a call. `repeat` are later calls that are approved with it, but only if the answer counts. */
export const decide = guarded(async (card: Card, digest: string, answer: Answer, repeat: Repeat | null = null) => {
  answered.add(card.key);
  try {
    const counts = await settleBy(card, digest, answer);
    if (counts && repeat !== null) approveLater(card.approval, repeat);
    return counts;
  } finally { await listApprovals(); }
});

function settle(key: string, approval: Approval): void {
  cards.value = cards.value.map((card) => card.key === key ? { key, approval } : card);
  learn([approval]);
}

const learn = (answered: Approval[]) => {
  const id = currentId();
  const own = answered.filter((approval) => approval.conversation_id === id && approval.decided_at !== null);
  if (own.length > 0) decisions.value = new Map([...decisions.value, ...own.map((approval) => [approval.pending_id, approval] as const)]);
};

/** Load who has answered which calls of the open conversation. */
export const loadDecisions = unattended(async () => {
  const id = currentId();
  if (id === null || !may('approve')) return; // the person may have left the conversation
  const { items } = await server.getExactly<Page<Approval>>(`approvals?all=true&limit=50&conversation=${id}`);
  learn(items.reverse());
});

/** The calls of all conversations that were answered last. */
export async function latestDecisions(): Promise<Approval[]> {
  if (!may('approve')) return [];
  const { items } = await server.getExactly<Page<Approval>>('approvals?all=true&limit=10');
  return items.filter((approval) => approval.decided_at !== null);
}

/** Continue a turn whose calls are all answered, such as by a program that did not resume it. */
export const resumeTurn = guarded(async () => {
  const { id } = open.value!.details;
  const run = await server.post<Run>(`conversations/${id}/resume?wait=false`);
  void watchRun(id, run.id, null);
});

/** Show what another page or a program has done to the open conversation in the meantime. */
export const lookForChanges = unattended(async () => {
  const shown = open.value, running = live.value;
  if (running?.isRunning) {
    const { problem: reason } = await server.get<Run>(`runs/${running.runId}`);
    if (live.value === running) delay.value = reason;
    return;
  }
  if (shown === null || shown.details.id !== currentId()) return;
  const now = await server.get<Conversation>(`conversations/${shown.details.id}`).catch((error: unknown) => { if (server.isAway(error)) throw error; return null; });
  if (open.value === shown && !isRunning.value && (now?.head !== shown.details.head || now.running.length > 0)) await refresh();
});

/** The title of the conversation of an approval, if it is known here. */
export const titleOf = (id: string) => conversations.value.find((each) => each.id === id)?.name ?? null;
