// Unified diffs as tables.

import { element } from './elements.js';

// Side by side where there is room, unless that is known to be narrow.
export function showDiff(text, { isNarrow = !matchMedia('(min-width: 48rem)').matches } = {}) {
  const isWide = !isNarrow;
  const rows = isWide ? sideBySide(text) : oneBelowTheOther(text);
  const columns = isWide ? ['number', '', 'number', ''] : ['number', 'number', ''];
  return element('div', { class: 'diff' }, element('table', {},
    element('colgroup', {}, ...columns.map((name) => element('col', { class: name }))),
    element('tbody', {}, ...rows)));
}

// Read a unified diff into {kind, before, after, text}; hunks carry their header.
export function readDiff(text) {
  const lines = [];
  let before = 0;
  let after = 0;
  for (const line of text.split('\n')) {
    const hunk = /^@@ -(\d+)(?:,\d+)? \+(\d+)/.exec(line);
    if (hunk) {
      [before, after] = [Number(hunk[1]), Number(hunk[2])];
      lines.push({ kind: 'hunk', text: line });
    } else if (line.startsWith('--- ') || line.startsWith('+++ ') || line.startsWith('\\') || line === '') {
      continue;
    } else if (line.startsWith('-')) lines.push({ kind: 'removed', before: before++, text: line.slice(1) });
    else if (line.startsWith('+')) lines.push({ kind: 'added', after: after++, text: line.slice(1) });
    else lines.push({ kind: 'same', before: before++, after: after++, text: line.slice(1) });
  }
  return lines;
}

function sideBySide(text) {
  const rows = [];
  let removed = [];
  let added = [];
  const flush = () => {
    for (let at = 0; at < Math.max(removed.length, added.length); at += 1) {
      rows.push(element('tr', {}, ...cells(removed[at], 'before', 'removed'), ...cells(added[at], 'after', 'added')));
    }
    [removed, added] = [[], []];
  };
  for (const line of readDiff(text)) {
    if (line.kind === 'removed') removed.push(line);
    else if (line.kind === 'added') added.push(line);
    else {
      flush();
      rows.push(line.kind === 'hunk' ? hunkRow(line, 4)
        : element('tr', {}, ...cells(line, 'before', ''), ...cells(line, 'after', '')));
    }
  }
  flush();
  return rows;
}

function oneBelowTheOther(text) {
  return readDiff(text).map((line) => line.kind === 'hunk' ? hunkRow(line, 3)
    : element('tr', { class: line.kind },
      number(line.before), number(line.after), element('td', {}, line.text)));
}

const hunkRow = (line, span) => element('tr', { class: 'hunk' }, element('td', { colspan: span }, line.text));
const number = (value) => element('td', { class: 'number' }, value === undefined ? '' : String(value));

function cells(line, side, kind) {
  if (!line) return [number(), element('td')];
  return [number(line[side]), element('td', { class: kind }, line.text)];
}
