// Elements from plain values. Text is never parsed as HTML, and hidden characters in it become visible.

import { IN_LINE, IN_LINES } from './unseen.js';

export function element(tag, attributes = {}, ...children) {
  const made = tag === 'svg' || svgTags.has(tag)
    ? document.createElementNS('http://www.w3.org/2000/svg', tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, '');
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  fill(made, children);
  return made;
}

// Children may be nested lists; `null` and `false` are ignored. A string is a single line: pass text of several lines as
// `lines`.
export function fill(made, children) {
  for (const child of children) { // one by one: there may be more children than a call accepts arguments
    if (Array.isArray(child)) fill(made, child);
    else if (typeof child === 'string') fill(made, escaped(split(child, IN_LINE)));
    else if (child !== null && child !== undefined && child !== false) made.append(child);
  }
}

// Text of one or more lines, with invisible characters escaped.
export const lines = (text) => escaped(split(text, IN_LINES));

// Split a text at invisible characters, like `escape` of the server.
export const split = (text, unseen) => text.split(unseen).map((piece, at) => at % 2 ? written(piece) : piece);

// Escapes as Python writes them: `\n`, `\x00`, `\u202e`, `\U000e0041`.
function written(character) {
  const code = character.codePointAt(0);
  const [letter, width] = code < 0x100 ? ['x', 2] : code < 0x10000 ? ['u', 4] : ['U', 8];
  return { '\t': '\\t', '\n': '\\n', '\r': '\\r' }[character] ?? `\\${letter}${code.toString(16).padStart(width, '0')}`;
}

// Text that is already escaped: every second piece is the escape of an invisible character.
export function escaped(pieces) {
  const made = [];
  let escapes = '';
  for (const [at, piece] of pieces.entries()) {
    if (at % 2) escapes += piece;
    else if (piece !== '' || at === pieces.length - 1) {
      if (escapes !== '') made.push(element('span', { class: 'escape', title: 'Invisible character' }, escapes));
      if (piece !== '') made.push(document.createTextNode(piece));
      escapes = '';
    }
  }
  return made;
}

export const moment = (text) => new Date(text).toLocaleString([], { dateStyle: 'medium', timeStyle: 'short' });

const svgTags = new Set(['path', 'circle']);

export const byId = (id) => document.getElementById(id);

// Show a form with the fields {name: {label, value, rows}}. Return its values, or null if it was cancelled.
export function ask(question, fields = {}, answer = 'OK') {
  const dialog = byId('asked');
  const form = dialog.querySelector('form');
  const inputs = Object.entries(fields).map(([name, { label, value = '', rows, type = 'text' }]) => {
    const input = rows
      ? element('textarea', { name, rows, required: true })
      : element('input', { name, type, required: true, autocomplete: 'off' });
    input.value = value;
    return element('label', {}, label, input);
  });
  form.replaceChildren(
    element('div', {}, ...[question].flat()),
    ...inputs,
    element('div', { class: 'acts' },
      element('button', { type: 'submit', value: 'yes' }, answer),
      element('button', { value: 'no', formnovalidate: true }, 'Cancel')),
  );
  dialog.returnValue = '';
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => {
      resolve(dialog.returnValue === 'yes' ? Object.fromEntries(new FormData(form)) : null);
    }, { once: true });
  });
}
