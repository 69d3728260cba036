// The dialogue: its messages, and the events of a running run.

import { byId, element, fill, lines } from './elements.js';
import { parseExactly } from './server.js';

let speaking = null; // the item that text is appended to
let callById = new Map();
let first = null; // the first item of the active run: a `reset` removes it and all later items

export function showMessages(messages) {
  const list = byId('dialogue');
  list.replaceChildren();
  callById = new Map();
  speaking = null;
  for (const message of messages) {
    for (const part of message.parts) showPart(part);
  }
  toTheEnd();
}

function showPart(part) {
  switch (part.part_kind) {
    case 'user-prompt': showPrompt(words(part.content)); break;
    case 'text': if (part.content) add('text', part.content); break;
    case 'tool-call': showCall(part.tool_call_id, part.tool_name, part.args, []); break;
    case 'tool-return': showResult(part.tool_call_id, part.outcome ?? 'success', asText(part.content)); break;
    case 'compaction': add('note', 'A summary replaced the messages above. The agent can search them.'); break;
    default: break; // parts for models only
  }
}

const words = (content) => typeof content === 'string' ? content
  : content.map((each) => typeof each === 'string' ? each : `[${each.media_type ?? each.kind ?? 'file'}]`).join('\n');
const asText = (value) => typeof value === 'string' ? value : JSON.stringify(value, null, 2);

export function showPrompt(text) { add('user', text); speaking = null; }

export function beginRun() { first = null; speaking = null; }

export function showEvent(event) {
  const stays = byId('dialogue').scrollHeight - byId('dialogue').scrollTop - byId('dialogue').clientHeight < 80;
  switch (event.type) {
    case 'reset': forget(); break;
    case 'text': if (event.path.length === 0) say(event.text); break;
    case 'tool_call': showCall(event.id, event.name, event.args, event.path); break;
    case 'tool_result': showResult(event.id, event.outcome, event.content); break;
    case 'summarized': add('note', summaryNote(event)); break;
    case 'retried': showRetry(event); break;
    case 'budget': add('note', budgetNote(event)); break;
    case 'status': add('note', event.text); break;
    case 'error': add('error', event.message); break;
    default: break;
  }
  if (stays) toTheEnd();
}

function add(kind, text) {
  const item = element('li', { class: kind }, lines(text));
  byId('dialogue').append(item);
  first ??= item;
  return item;
}

function say(text) {
  speaking ??= add('text', '');
  fill(speaking, lines(text));
}

function showCall(id, name, args, path) {
  speaking = null;
  const before = callById.get(id);
  if (before && waits(before) && isOfEarlierRun(before)) before.remove(); // a resumed run announces its pending calls again
  const shown = typeof args === 'string' ? tidy(args) : asText(args ?? {});
  const item = element('li', { class: 'call' }, element('details', {},
    element('summary', {}, [...path, name].join(' › '), element('span', { class: 'state' }, ' …')),
    element('pre', {}, lines(shown))));
  byId('dialogue').append(item);
  first ??= item;
  callById.set(id, item);
}

const waits = (item) => item.querySelectorAll('pre').length === 1;
const isOfEarlierRun = (item) => first === null || (first.compareDocumentPosition(item) & Node.DOCUMENT_POSITION_PRECEDING) !== 0;

function tidy(args) {
  try { return JSON.stringify(parseExactly(args), null, 2); } catch { return args; }
}

function showResult(id, outcome, content) {
  const item = callById.get(id);
  if (!item) return;
  const summary = item.querySelector('summary');
  summary.querySelector('.state').textContent = outcome === 'success' ? ' ✓' : ` ${outcome}`;
  summary.classList.toggle('bad', outcome === 'failed');
  item.querySelector('details').append(element('pre', {}, lines(content)));
}

function showRetry(event) {
  if (event.void_text && speaking && event.path.length === 0) {
    speaking.className = 'void';
    speaking = null;
  }
  const delay = event.delay_seconds ? ` in ${event.delay_seconds.toFixed(1)} s` : '';
  add('note', `Attempt ${event.attempt} of ${event.attempts}${delay}: ${event.reason}.`);
}

function summaryNote(event) {
  const size = `${event.tokens_before.toLocaleString('en')} to ${event.tokens_after.toLocaleString('en')} tokens`;
  const plain = event.is_plain ? ' No model could write the summary.' : '';
  return `Messages summarized: ${event.replaced_messages}, ${size}.${plain}`;
}

function budgetNote(event) {
  if (event.kind === 'unknown') return `The ${event.measure} of a response of ${event.model ?? 'a model'} is unknown: the budget does not count it.`;
  const amount = (number) => event.measure === 'cost' ? `$${number.toFixed(4)}` : `${number.toLocaleString('en')} ${event.measure}`;
  return `Budget of the ${event.scope}: ${amount(event.used)} of ${amount(event.limit)} used.${event.kind === 'last_answer' ? ' One more response is allowed.' : ''}`;
}

function forget() {
  for (let item = first; item; ) {
    const next = item.nextElementSibling;
    item.remove();
    item = next;
  }
  beginRun();
}

function toTheEnd() { byId('dialogue').scrollTop = byId('dialogue').scrollHeight; }
