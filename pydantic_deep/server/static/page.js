// The page: the displayed conversation, its actions, and the keys for them.

import { cards, focusedCard, settle, showApprovals, showEnd, tidy } from './approvals.js';
import { showDiff } from './diff.js';
import { ask, byId, element, escaped, lines, moment } from './elements.js';
import { showGraph } from './graph.js';
import * as server from './server.js';
import * as talk from './talk.js';
import { IN_LINES } from './unseen.js';

const shown = { id: null, head: null, runId: null, cursor: null, watching: null, isSending: false };
let begun = null; // the promise of the initial loading
let scopes = new Set(); // the scopes of the key: requests that they do not allow are not sent

const MAX_SHOWN_BYTES = 1_000_000; // the limit for files and diffs

const KEYS = [
  ['/', 'write a prompt'], ['Ctrl+Enter', 'send'], ['c', 'a new conversation'], ['a', 'go to the approvals'],
  ['v', 'go to the versions'], ['j, k', 'next, previous'],
  ['y, n, e', 'approve, deny, edit the focused call'], ['s', 'stop the run'], ['?', 'these keys'],
];

function showProblem(text) {
  byId('problem').replaceChildren(...lines(text));
  byId('problem').hidden = false;
}

function fail(error) {
  if (error.name === 'AbortError') return;
  showProblem(error.message);
  if (error instanceof server.Refused && error.status === 401) askForKey();
  else if (!(error instanceof server.Refused)) throw error;
}

function guarded(act) {
  return async (...given) => {
    byId('problem').hidden = true;
    try { return await act(...given); } catch (error) { return fail(error); }
  };
}

async function askForKey() {
  const question = element('p', {}, 'This server requires an API key. It is stored until this tab is closed. Create one with ',
    element('code', {}, 'pydantic-deep keys create'), '.');
  const given = await ask(question, { key: { label: 'API key', type: 'password' } }, 'Use it');
  if (given) {
    server.useKey(given.key);
    begun = begin();
    await begun;
  }
}

// Conversations

const listConversations = guarded(async (cursor = null) => {
  const page = await server.get(`conversations?limit=30${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ''}`);
  const rows = page.items.map((each) => element('li', {}, element('button', {
    type: 'button', 'data-conversation': each.id, 'aria-current': String(each.id === shown.id),
    onclick: () => open(each.id),
  }, each.name ?? 'Untitled', element('div', { class: 'faint' }, `${each.agent}, ${moment(each.created_at)}`))));
  if (cursor) byId('conversations').append(...rows);
  else byId('conversations').replaceChildren(...rows);
  shown.cursor = page.cursor;
  byId('more').hidden = page.cursor === null;
});

// A conversation is created with its first prompt, which becomes its name.
function prepareNew() {
  leave();
  Object.assign(shown, { id: null, head: null });
  talk.showMessages([]);
  for (const id of ['todos', 'files', 'graph', 'suspended', 'protected']) byId(id).replaceChildren();
  byId('problem').hidden = true;
  byId('chosen')?.remove();
  markCurrent();
  go('talk');
  byId('prompt').focus();
}

async function create(prompt) {
  const name = [...prompt.split('\n')[0]].slice(0, 60).join('');
  const made = await server.post('conversations', { agent: byId('agents').value, name });
  Object.assign(shown, { id: made.id, head: made.head });
  await listConversations();
}

function markCurrent() {
  for (const each of byId('conversations').querySelectorAll('button')) {
    each.setAttribute('aria-current', String(each.dataset.conversation === shown.id));
  }
}

const open = guarded(async (id) => {
  leave();
  shown.id = id;
  go('talk');
  markCurrent();
  await refresh();
});

// Stop watching the run. The run itself continues.
function leave() {
  shown.watching?.abort();
  shown.watching = null;
  setRunning(null);
}

async function refresh() {
  const id = shown.id;
  const conversation = await server.get(`conversations/${id}`);
  const [transcript, history, files] = await Promise.all([
    server.getExactly(`conversations/${id}/messages`),
    server.get(`conversations/${id}/versions?limit=200`),
    server.get(`versions/${conversation.head}/files`),
  ]);
  if (shown.id !== id) return; // another conversation was opened in the meantime
  shown.head = conversation.head;
  showTodos(conversation.todos);
  await showSuspended(conversation.suspended);
  talk.showMessages(transcript.messages);
  byId('chosen')?.remove();
  showGraph(history.items, actsOn);
  byId('protected').replaceChildren(...showProtected(history.items.find((version) => version.is_head)));
  showFiles(files.items);
  await listApprovals();
  if (conversation.running.length > 0) follow(conversation.running[0]);
  else setRunning(null);
}

// Runs without an end in the store. If the conversation has moved on, a run resumes only on request, such as here.
async function showSuspended(ids) {
  const runs = await Promise.all(ids.map((id) => server.get(`runs/${id}`)));
  byId('suspended').replaceChildren(...runs.map((run) => {
    const act = (label, verb) => element('button', { type: 'button', onclick: guarded(async () => {
      await server.post(`runs/${run.id}/${verb}`);
      await refresh();
    }) }, label);
    const why = run.has_moved_on ? ' The conversation has continued since: resume the run on a new branch?' : '';
    return element('li', { 'data-run': run.id }, `A run of ${moment(run.started_at)} is suspended.${why} `,
      act('Resume', 'resume'), ' ', act('Discard', 'cancel'));
  }));
}

function showTodos(todos) {
  byId('todos').replaceChildren(...todos.map((todo) => element('li', { class: todo.status }, todo.content)));
}

function showFiles(files) {
  byId('files').replaceChildren(...files.map((file) => element('li', {}, element('button', {
    type: 'button', onclick: guarded(() => showFile(file)),
  }, file.path), ' ', element('span', { class: 'faint' }, `${file.size_bytes} B`))));
}

async function showFile(file) {
  const about = element('h2', {}, file.path);
  if (file.size_bytes > MAX_SHOWN_BYTES) return showDialog(about, element('p', {}, 'More than 1 MB: download the files to read it.'));
  const blob = await server.getBlob(`versions/${shown.head}/files${file.path.split('/').map(encodeURIComponent).join('/')}`);
  const text = readText(await blob.arrayBuffer());
  showDialog(about, text === null ? element('p', {}, 'Not a text in UTF-8.') : element('pre', {}, lines(text)));
}

// Returns null unless the bytes are valid UTF-8. A byte order mark is a character like any other.
function readText(bytes) {
  try { return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes); } catch { return null; }
}

function showDialog(...content) {
  byId('difference').replaceChildren(...content);
  byId('shown').showModal();
}

// Turns

const say = guarded(async (event) => {
  event.preventDefault();
  const prompt = byId('prompt').value.trim();
  if (!prompt || shown.isSending || shown.runId !== null) return;
  shown.isSending = true; // pressing the key twice must not send the prompt twice
  let run;
  try {
    await begun; // the list of agents may still be loading
    if (shown.id === null) await create(prompt);
    run = await server.post(`conversations/${shown.id}/turns?wait=false`, { prompt });
  } finally {
    shown.isSending = false;
  }
  byId('prompt').value = '';
  talk.showPrompt(prompt);
  const { id, head } = shown;
  const hasFailed = await follow(run.id);
  const isGone = hasFailed && shown.id === id && shown.head === head; // the head did not move
  if (isGone && byId('prompt').value === '') byId('prompt').value = prompt;
});

// Returns whether the run has failed.
const follow = guarded(async (runId) => {
  if (shown.runId === runId) return false;
  leave();
  const watching = new AbortController();
  shown.watching = watching;
  setRunning(runId);
  const of = shown.id;
  talk.beginRun();
  let problem = null;
  try {
    for await (const event of server.watch(runId, watching.signal)) {
      if (shown.watching !== watching) return false;
      talk.showEvent(event);
      if (event.type === 'todos') showTodos(event.todos);
      else if (event.type === 'error') problem = event.message;
      else if (event.type === 'lost') showProblem('The connection is lost. The run continues; this page is reconnecting.');
      else if (event.type === 'back') byId('problem').hidden = true;
    }
  } finally {
    if (shown.watching === watching) leave(); // even if the run cannot be watched any more, so that another prompt can be sent
  }
  if (shown.id !== of) return false;
  await refresh();
  if (problem !== null) showProblem(problem); // the transcript does not contain it
  return problem !== null;
});

function setRunning(runId) {
  shown.runId = runId;
  byId('stop').hidden = runId === null;
  byId('say').querySelector('[type=submit]').disabled = runId !== null;
}

const stop = guarded(async () => {
  if (shown.runId !== null) await server.post(`runs/${shown.runId}/cancel`);
});

// Versions

function actsOn(version) {
  const act = (label, does, off = false) => element('button', { type: 'button', onclick: guarded(does), disabled: off }, label);
  return [
    act('What changed', () => showChanges(version), version.parent_id === null),
    act('Compare with head', () => showChanges({ id: shown.head, parent_id: version.id }), version.is_head),
    act('Rewind to here', () => rewind(version), version.is_head),
    act('Branch from here', () => branch(version)),
    act('Merge into head', () => merge(version), version.is_head),
    act('Download files', () => download(version)),
  ];
}

async function showChanges(version) {
  const diff = await server.get(`versions/${version.parent_id}/diff?to=${version.id}`);
  const files = diff.files.flatMap((file) => [
    file.view !== null ? showDiff(file.view)
      : element('p', {}, escaped(file.shown_path), ` (${file.kind}): not a text in UTF-8, or more than 1 MB.`),
  ]);
  const nothing = element('p', {}, 'The files are the same.');
  const counts = `${diff.messages_removed.length} messages fewer, ${diff.messages_added.length} more`;
  showDialog(...showProtected(version), element('p', { class: 'faint' }, counts), ...(files.length ? files : [nothing]));
}

// Changed files that programs of this machine run or read as configuration, in versions or not: no diff shows `.git/config`.
function showProtected(version) {
  const changes = version?.protected_changes ?? [];
  return changes.length === 0 ? [] : [element('div', { class: 'warn protected', role: 'status' },
    'This turn changed files that programs of this machine run or obey:',
    element('ul', {}, changes.map((each) => element('li', {}, `${each.path} (${each.change})`))))];
}

async function rewind(version) {
  await server.post(`conversations/${shown.id}/head`, { version: version.id, expected: shown.head });
  await refresh();
}

async function branch(version) {
  const given = await ask('A new branch. The version and all later versions remain unchanged.',
    { prompt: { label: 'Prompt', rows: 3 } }, 'Branch');
  if (!given) return;
  await server.post(`conversations/${shown.id}/head`, { version: version.id, expected: shown.head });
  const run = await server.post(`conversations/${shown.id}/turns?wait=false`, { prompt: given.prompt });
  await refresh();
  await follow(run.id);
}

async function merge(version) {
  try {
    await server.post(`versions/${shown.head}/merge`, { other: version.id });
  } catch (error) {
    const conflicts = error.facts?.conflicts;
    if (!conflicts) throw error;
    showDialog(element('p', {}, 'Both versions changed the same files, so nothing was merged:'),
      element('ul', {}, ...conflicts.map((each) => element('li', {}, `${each.path}: ${each.kind}`))));
    return;
  }
  await refresh();
}

async function download(version) {
  const link = element('a', { href: URL.createObjectURL(await server.getBlob(`versions/${version.id}/archive`)), download: `${version.id}.tar.gz` });
  link.click();
  URL.revokeObjectURL(link.href);
}

// Approvals

const listApprovals = guarded(async () => {
  if (!may('approve')) return;
  const { items } = await server.get('approvals?limit=50');
  byId('waiting').textContent = String(items.length);
  byId('waiting').hidden = items.length === 0;
  showApprovals(items, answersTo);
});

function answersTo(approval) {
  const takes = (decision) => approval.decisions.includes(decision);
  return [
    takes('approve') && { label: 'Approve (y)', name: 'main', act: guarded((card) => decide(card, approval, { decision: 'approve' })) },
    takes('deny') && { label: 'Deny (n)', act: guarded((card) => deny(card, approval)) },
    takes('edit') && { label: 'Edit (e)', act: guarded((card) => edit(card, approval)) },
    { label: 'Open', act: () => open(approval.conversation_id) },
  ].filter(Boolean);
}

// The answer is for the displayed call: if another call has this id, the server refuses the answer.
async function decide(card, approval, answer) {
  if (!card.dataset.approval || card.ariaBusy) return; // already answered, or being answered
  card.focus(); // a button may be removed
  card.ariaBusy = 'true';
  let runId;
  try {
    const path = `approvals/${approval.id}?resume=${may('run')}`;
    const done = await server.post(path, { ...answer, digest: card.dataset.digest });
    settle(card, `Answered: ${done.approval.status}.`);
    runId = done.run_id;
  } finally {
    card.ariaBusy = null;
    await listApprovals(); // another person may have answered it first
  }
  if (runId !== null && approval.conversation_id === shown.id) await follow(runId);
}

async function deny(card, approval) {
  const given = await ask('The call does not run.', { reason: { label: 'Reason for the agent', value: 'A person denied this call.' } }, 'Deny');
  if (given) await decide(card, approval, { decision: 'deny', reason: given.reason });
}

async function edit(card, approval) {
  const asked = await server.getExactly(`approvals/${approval.id}`);
  const given = await ask(`The call of ${approval.tool} runs with these arguments instead.`,
    { args: { label: 'Arguments, as JSON', value: readableJson(asked.args), rows: 12 } }, 'Run with these');
  if (!given) return;
  let args;
  try { args = server.parseExactly(given.args); } catch (error) { throw new server.Refused(0, { message: `Invalid JSON: ${error.message}` }); }
  await decide(card, approval, { decision: 'edit', args });
}

// JSON with invisible characters as JSON escapes.
const readableJson = (value) => JSON.stringify(value, null, 2).split(IN_LINES).map((piece, at) => at % 2
  ? piece.split('').map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`).join('') : piece).join('');

// Keys and views

function go(view) {
  tidy();
  document.body.dataset.view = view;
  for (const each of document.querySelectorAll('nav button')) {
    each.setAttribute('aria-current', String(each.dataset.goes === view));
  }
}

function step(by) {
  const card = document.activeElement.closest('#approvals > li');
  const items = card ? [...byId('approvals').children].filter((each) => each === card || each.dataset.approval) : [...byId('graph').querySelectorAll('.version')];
  const at = items.indexOf(card ?? document.activeElement.closest('.version'));
  const next = at + by >= 0 && at + by < items.length ? items[at + by] : items[Math.max(at, 0)];
  if (next) goTo(next);
  if (card) tidy();
}

// An item taller than its list is scrolled to its beginning.
function goTo(item) {
  item.focus({ preventScroll: true });
  item.scrollIntoView({ block: item.offsetHeight > item.closest('section').clientHeight ? 'start' : 'nearest' });
}

// Only a focused, visible call is answered: on a phone, another view may cover the approvals.
function pressOnApproval(label) {
  const card = focusedCard();
  if (card === null) showProblem('No call is focused. Press a to go to the pending calls.');
  else if (label === 'Approve' && !showEnd(card)) showProblem('This call continues below. Read on, and press y at its end.');
  else [...card.querySelectorAll('button:enabled')].find((each) => each.textContent.startsWith(label))?.click();
}

const DOES = {
  '/': () => { go('talk'); byId('prompt').focus(); },
  c: prepareNew,
  a: () => { go('inbox'); if (cards().length > 0) goTo(cards()[0]); },
  v: () => { go('history'); byId('graph').querySelector('.version')?.focus(); },
  j: () => step(1),
  k: () => step(-1),
  y: () => pressOnApproval('Approve'),
  n: () => pressOnApproval('Deny'),
  e: () => pressOnApproval('Edit'),
  s: () => stop(),
  '?': () => showDialog(element('h2', {}, 'Keys'), element('ul', {},
    ...KEYS.map(([key, does]) => element('li', {}, element('kbd', {}, key), ` ${does}`)))),
};

function onKey(event) {
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey) && event.target === byId('prompt')) {
    byId('say').requestSubmit();
    return;
  }
  const isTyping = event.target.closest('input, textarea, select') || document.querySelector('dialog[open]');
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || event.repeat || !(event.key in DOES)) return;
  event.preventDefault();
  DOES[event.key]();
}

const may = (scope) => scopes.has(scope) || scopes.has('admin');

const begin = guarded(async () => {
  const [me, { items }] = await Promise.all([server.get('me'), server.get('agents')]);
  scopes = new Set(me.scopes);
  for (const each of [byId('inbox'), document.querySelector('[data-goes="inbox"]')]) each.hidden = !may('approve');
  byId('agents').replaceChildren(...items.map((agent) => element('option', { value: agent.name }, agent.name)));
  await listConversations();
  await listApprovals();
  const newest = byId('conversations').querySelector('button');
  if (newest) await open(newest.dataset.conversation);
});

// A link from another person must not silently change the API key, and thereby the owner of the conversations.
async function start() {
  const key = server.takeKeyFromAddress();
  const isOther = key !== null && server.hasKey() && !server.isKey(key);
  if (key !== null && (!isOther || await ask('The link has another API key than the one in use. Everything that you send '
    + 'will belong to the owner of that key.', {}, 'Use the key of the link'))) server.useKey(key);
  if (server.hasKey()) begun = begin();
  else askForKey();
}

byId('new').addEventListener('submit', (event) => { event.preventDefault(); prepareNew(); });
byId('say').addEventListener('submit', say);
byId('stop').addEventListener('click', stop);
byId('more').addEventListener('click', () => listConversations(shown.cursor));
byId('keys').addEventListener('click', DOES['?']);
document.addEventListener('keydown', onKey);
document.addEventListener('pointerdown', (event) => { if (!event.target.closest('#inbox, dialog')) tidy(); });
window.addEventListener('hashchange', () => { if (location.hash.startsWith('#key=')) start(); });
for (const button of document.querySelectorAll('nav button')) button.addEventListener('click', () => go(button.dataset.goes));
go('talk');
start();
