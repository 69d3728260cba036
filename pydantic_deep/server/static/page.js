// The page: which conversation is shown, what is done with it, and which keys do it.

import { showDiff } from './diff.js';
import { ask, byId, element } from './elements.js';
import { showGraph } from './graph.js';
import * as server from './server.js';
import * as talk from './talk.js';

const shown = { id: null, head: null, runId: null, cursor: null, watching: null, isSending: false };
let begun = null; // what the page begins with, a promise
let scopes = new Set(); // of the key: what it may not do is not asked for

const KEYS = [
  ['/', 'say something'], ['Ctrl+Enter', 'send'], ['c', 'a new conversation'], ['a', 'to the approvals'],
  ['v', 'to the versions'], ['j, k', 'next, previous'],
  ['y, n, e', 'approve, deny, edit what waits'], ['s', 'stop the run'], ['?', 'these keys'],
];

function showProblem(text) {
  byId('problem').textContent = text;
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
  const question = element('p', {}, 'This server wants an API key. It is kept until this tab is closed. Make one with ',
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
  }, each.name ?? 'Without a name', element('div', { class: 'faint' }, `${each.agent}, ${moment(each.created_at)}`))));
  if (cursor) byId('conversations').append(...rows);
  else byId('conversations').replaceChildren(...rows);
  shown.cursor = page.cursor;
  byId('more').hidden = page.cursor === null;
});

const moment = (text) => new Date(text).toLocaleString([], { dateStyle: 'medium', timeStyle: 'short' });

// A conversation is made with its first words, which name it.
function prepareNew() {
  leave();
  Object.assign(shown, { id: null, head: null });
  talk.showMessages([]);
  for (const id of ['todos', 'files', 'graph']) byId(id).replaceChildren();
  byId('problem').hidden = true;
  byId('chosen')?.remove();
  markCurrent();
  go('talk');
  byId('prompt').focus();
}

async function create(prompt) {
  const name = prompt.split('\n')[0].slice(0, 60);
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

// Watch no run any more; it goes on.
function leave() {
  shown.watching?.abort();
  shown.watching = null;
  setRunning(null);
}

async function refresh() {
  const id = shown.id;
  const conversation = await server.get(`conversations/${id}`);
  const [transcript, history, files] = await Promise.all([
    server.get(`conversations/${id}/messages`),
    server.get(`conversations/${id}/versions?limit=200`),
    server.get(`versions/${conversation.head}/files`),
  ]);
  if (shown.id !== id) return; // another one was opened meanwhile
  shown.head = conversation.head;
  showTodos(conversation.todos);
  talk.showMessages(transcript.messages);
  byId('chosen')?.remove();
  showGraph(history.items, actsOn);
  showFiles(files.items);
  await listApprovals();
  if (conversation.running.length > 0) follow(conversation.running[0]);
  else setRunning(null);
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
  const text = await server.getText(`versions/${shown.head}/files${file.path.split('/').map(encodeURIComponent).join('/')}`);
  showDialog(element('h2', {}, file.path), element('pre', {}, text));
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
  shown.isSending = true; // twice the same key would say it twice
  let run;
  try {
    await begun; // who is faster than the list of agents waits for it
    if (shown.id === null) await create(prompt);
    run = await server.post(`conversations/${shown.id}/turns?wait=false`, { prompt });
  } finally {
    shown.isSending = false;
  }
  byId('prompt').value = '';
  talk.showPrompt(prompt);
  const { id, head } = shown;
  const hasFailed = await follow(run.id);
  const isGone = hasFailed && shown.id === id && shown.head === head; // the head did not come along
  if (isGone && byId('prompt').value === '') byId('prompt').value = prompt;
});

// Returns whether it has failed.
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
      else if (event.type === 'lost') showProblem('The connection is lost. The run goes on; this page tries to come back.');
      else if (event.type === 'back') byId('problem').hidden = true;
    }
  } finally {
    if (shown.watching === watching) leave(); // also where it cannot be watched any more: something else can be said
  }
  if (shown.id !== of) return false;
  await refresh();
  if (problem !== null) showProblem(problem); // the transcript does not have it
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
    act('Compare with head', () => showChanges({ ...version, parent_id: version.id, id: shown.head }), version.is_head),
    act('Rewind to here', () => rewind(version), version.is_head),
    act('Branch from here', () => branch(version)),
    act('Merge into head', () => merge(version), version.is_head),
    act('Download files', () => download(version)),
  ];
}

async function showChanges(version) {
  const diff = await server.get(`versions/${version.parent_id}/diff?to=${version.id}`);
  const files = diff.files.flatMap((file) => [
    element('h2', {}, `${file.path} (${file.kind})`),
    file.diff === null ? element('p', { class: 'faint' }, 'No text that could be compared.') : showDiff(file.diff),
  ]);
  const nothing = element('p', {}, 'The files are the same.');
  const said = `${diff.messages_removed.length} messages fewer, ${diff.messages_added.length} more`;
  showDialog(element('p', { class: 'faint' }, said), ...(files.length ? files : [nothing]));
}

async function rewind(version) {
  await server.post(`conversations/${shown.id}/head`, { version: version.id, expected: shown.head });
  await refresh();
}

async function branch(version) {
  const given = await ask('A new branch: the version and all that came after it stay as they are.',
    { prompt: { label: 'What you say there', rows: 3 } }, 'Branch');
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
    showDialog(element('p', {}, 'Both changed the same, and nothing was merged:'),
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
  const rows = items.map(showApproval);
  byId('approvals').replaceChildren(...(rows.length ? rows : [element('li', { class: 'faint' }, 'Nothing waits.')]));
});

function showApproval(approval) {
  const act = (label, does, name = '') => element('button', { type: 'button', class: name, onclick: guarded(does) }, label);
  const preview = approval.preview?.kind === 'diff' ? showDiff(approval.preview.text, { isNarrow: true })
    : element('pre', {}, approval.preview?.text || JSON.stringify(approval.args, null, 2));
  return element('li', { tabindex: 0, 'data-approval': approval.id },
    element('strong', {}, [...approval.path, approval.tool].join(' › ')),
    element('div', { class: 'faint' }, `${approval.agent}, ${moment(approval.created_at)}`),
    preview,
    element('div', { class: 'acts' },
      act('Approve (y)', () => decide(approval, { decision: 'approve' }), 'main'),
      act('Deny (n)', () => deny(approval)),
      act('Edit (e)', () => edit(approval)),
      act('Open', () => open(approval.conversation_id))));
}

async function decide(approval, answer) {
  let runId;
  try {
    runId = (await server.post(`approvals/${approval.id}?resume=${may('run')}`, answer)).run_id;
  } finally {
    await listApprovals(); // where somebody else was faster it does not wait any more
  }
  if (runId !== null && approval.conversation_id === shown.id) await follow(runId);
}

async function deny(approval) {
  const given = await ask('The call does not run.', { reason: { label: 'What the agent is told', value: 'A person denied this call.' } }, 'Deny');
  if (given) await decide(approval, { decision: 'deny', reason: given.reason });
}

async function edit(approval) {
  const given = await ask(`The call of ${approval.tool} runs with these arguments instead.`,
    { args: { label: 'Arguments, as JSON', value: JSON.stringify(approval.args, null, 2), rows: 12 } }, 'Run it so');
  if (!given) return;
  let args;
  try { args = JSON.parse(given.args); } catch (error) { throw new server.Refused(0, { message: `That is no JSON: ${error.message}` }); }
  await decide(approval, { decision: 'edit', args });
}

// Keys and views

function go(view) {
  document.body.dataset.view = view;
  for (const each of document.querySelectorAll('nav button')) {
    each.setAttribute('aria-current', String(each.dataset.goes === view));
  }
}

function step(by) {
  const inbox = document.activeElement.closest('#approvals');
  const items = [...(inbox ? byId('approvals').children : byId('graph').querySelectorAll('.version'))];
  if (items.length === 0) return;
  const at = items.indexOf(document.activeElement.closest('[data-approval], .version'));
  items[Math.min(Math.max(at + by, 0), items.length - 1)].focus();
}

// Only what is seen is answered: on a phone, the approvals may be behind another view.
function pressOnApproval(label) {
  if (byId('inbox').getClientRects().length === 0) return;
  const item = document.activeElement.closest('[data-approval]') ?? byId('approvals').querySelector('[data-approval]');
  [...(item?.querySelectorAll('button') ?? [])].find((each) => each.textContent.startsWith(label))?.click();
}

const DOES = {
  '/': () => { go('talk'); byId('prompt').focus(); },
  c: prepareNew,
  a: () => { go('inbox'); byId('approvals').firstElementChild?.focus(); },
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
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || !(event.key in DOES)) return;
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

byId('new').addEventListener('submit', (event) => { event.preventDefault(); prepareNew(); });
byId('say').addEventListener('submit', say);
byId('stop').addEventListener('click', stop);
byId('more').addEventListener('click', () => listConversations(shown.cursor));
byId('keys').addEventListener('click', DOES['?']);
document.addEventListener('keydown', onKey);
for (const button of document.querySelectorAll('nav button')) button.addEventListener('click', () => go(button.dataset.goes));
go('talk');
server.takeKeyFromAddress();
if (server.hasKey()) begun = begin();
else askForKey();
