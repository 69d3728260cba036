// Cards for pending calls, in an order that new cards do not disturb. A card shows the complete `view` of an approval, and
// an answer carries the digest of the displayed view.

import { showDiff } from './diff.js';
import { byId, element, escaped, moment } from './elements.js';

// Show these approvals. Cards that are already shown remain the same elements in the same place, so that the focus and the
// pointer never move to another call; new ones come last. Cards that are no longer pending remain, without buttons, until
// `tidy`.
export function showApprovals(approvals, answersTo) {
  const list = byId('approvals');
  const wanted = new Map(approvals.map((approval) => [keyOf(approval), approval]));
  list.querySelector('.nothing')?.remove();
  for (const card of list.querySelectorAll('[data-approval]')) {
    if (!wanted.delete(card.dataset.key)) settle(card, 'No longer pending.');
  }
  for (const approval of wanted.values()) list.append(makeCard(approval, answersTo(approval)));
  if (list.childElementCount === 0) list.append(element('li', { class: 'nothing faint' }, 'No approvals are pending.'));
}

const keyOf = (approval) => `${approval.id} ${approval.view.digest}`;

export const cards = () => [...byId('approvals').querySelectorAll('[data-approval]')];

// Return the focused card if it is visible: keys answer no other card.
export function focusedCard() {
  const card = document.activeElement?.closest?.('[data-approval]');
  return card && card.getClientRects().length > 0 ? card : null;
}

// Return whether the end of a card is visible. If it is not, scroll to the next part.
export function showEnd(card) {
  const list = byId('inbox').getBoundingClientRect();
  const end = card.querySelector('.acts').getBoundingClientRect();
  const isSeen = end.top >= list.top && end.bottom <= list.bottom + 1;
  if (end.bottom > list.bottom) byId('inbox').scrollBy({ top: Math.min(list.height * 0.8, end.bottom - list.bottom + 8) });
  else if (!isSeen) card.scrollIntoView({ block: 'end' });
  return isSeen;
}

// Disable an answered card, but leave it in place: another card that moved there could receive a second click.
export function settle(card, text) {
  delete card.dataset.approval;
  card.classList.add('settled');
  if (card.contains(document.activeElement)) card.focus(); // a disabled button loses the focus to the page
  for (const button of card.querySelectorAll('button')) button.disabled = true;
  card.querySelector('.says').textContent = text;
}

// Remove answered cards. Call it only when the person turns to something else.
export function tidy() {
  for (const card of byId('approvals').querySelectorAll('.settled')) card.remove();
  if (byId('approvals').childElementCount === 0) showApprovals([]);
}

function makeCard(approval, answers) {
  const { view } = approval;
  const buttons = answers.map(({ label, name = '', act }) => element('button', { type: 'button', class: name, onclick: () => act(card) }, label));
  const card = element('li', { tabindex: 0, 'data-approval': approval.id, 'data-key': keyOf(approval), 'data-digest': view.digest },
    element('h3', {}, view.path.map((name) => [escaped(name), ' › ']), escaped(view.tool)),
    element('div', { class: 'faint' }, `${approval.agent}, ${moment(approval.created_at)}`),
    view.preview && isSaid(view.preview.notice) && element('p', { class: 'warn' }, escaped(view.preview.notice)),
    view.escapes > 0 && element('p', { class: 'warn' },
      view.escapes === 1 ? 'One character is invisible, and is shown as ' : `${view.escapes.toLocaleString('en')} characters are invisible, and are shown as `,
      element('span', { class: 'escape' }, view.escapes === 1 ? 'an escape' : 'escapes'), '.'),
    view.arguments.map((argument) => showArgument(argument, view.preview)),
    view.preview && showPreview(view),
    element('p', { class: 'says', role: 'status' }),
    element('div', { class: 'acts' }, buttons));
  return card;
}

const isSaid = (text) => text.some((piece) => piece !== '');

function showArgument(argument, preview) {
  const name = [element('span', { class: 'name' }, escaped(argument.name)), argument.kind === 'json' && element('span', { class: 'faint' }, ' JSON')];
  const ends = argument.value.at(-1).endsWith('\n');
  const lines = argument.value.reduce((count, piece) => count + piece.split('\n').length - 1, ends ? 0 : 1);
  const asides = !isSaid(argument.value) ? '(empty)'
    : lines > 1 && !ends && argument.kind === 'text' ? '(no newline at its end)' : null;
  const value = element('pre', { class: 'value' }, escaped(argument.value), asides && element('span', { class: 'aside', 'data-says': asides }));
  if (argument.in_preview && preview.kind === 'diff') {
    return element('details', { class: 'argument' },
      element('summary', {}, name, element('span', { class: 'faint' }, ` ${lines.toLocaleString('en')} lines, all of them in the diff below`)), value);
  }
  const size = lines > 20 ? element('span', { class: 'faint' }, ` ${lines.toLocaleString('en')} lines`) : null;
  return element('div', { class: 'argument' }, element('div', {}, name, size), value);
}

// A command that is an argument is shown with the arguments.
function showPreview({ preview, arguments: args }) {
  const isShown = preview.kind === 'command' && args.some((argument) => argument.in_preview);
  return element('div', { class: 'preview' },
    isSaid(preview.text) && !isShown && element('pre', { class: 'text' }, escaped(preview.text)),
    preview.diff && showDiff(preview.diff, { isNarrow: true }));
}
