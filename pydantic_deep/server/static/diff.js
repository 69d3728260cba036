// Diffs as tables of typed lines, as the server sends them. The text of a diff is not parsed here.

import { element, escaped } from './elements.js';

// Side by side if there is enough space, unless the caller says that the space is narrow.
export function showDiff(diff, { isNarrow = !matchMedia('(min-width: 48rem)').matches } = {}) {
  const columns = isNarrow ? ['number', 'number', ''] : ['number', '', 'number', ''];
  const rows = diff.hunks.map((hunk) => [
    element('tr', { class: 'hunk' }, element('td', { colspan: columns.length }, hunk.header)),
    isNarrow ? oneBelowTheOther(hunk.lines) : sideBySide(hunk.lines),
  ]);
  return element('div', { class: 'diff' },
    element('p', { class: 'file' }, escaped(diff.path),
      element('span', { class: 'faint' }, ` ${diff.kind}, +${diff.added} −${diff.removed}`)),
    diff.hidden_lines > 0 && element('p', { class: 'warn' },
      `This diff is not shown: it has ${diff.hidden_lines.toLocaleString('en')} lines.`),
    element('table', {},
      element('colgroup', {}, columns.map((name) => element('col', { class: name }))),
      element('tbody', {}, rows)));
}

function sideBySide(lines) {
  const rows = [];
  let removed = [];
  let added = [];
  const flush = () => {
    for (let at = 0; at < Math.max(removed.length, added.length); at += 1) {
      rows.push(element('tr', {}, ...side(removed[at], 'before'), ...side(added[at], 'after')));
    }
    [removed, added] = [[], []];
  };
  for (const line of lines) {
    if (line.kind === 'removed') removed.push(line);
    else if (line.kind === 'added') added.push(line);
    else {
      flush();
      rows.push(element('tr', {}, ...side(line, 'before'), ...side(line, 'after')));
    }
  }
  flush();
  return rows;
}

const oneBelowTheOther = (lines) => lines.map((line) => element('tr', { class: line.kind },
  number(line.before), number(line.after), content(line, '')));

const side = (line, at) => line ? [number(line[at]), content(line, line.kind)] : [number(null), element('td')];
const number = (value) => element('td', { class: 'number' }, value === null ? '' : String(value));

const content = (line, kind) => element('td', { class: `line ${kind}` }, escaped(line.text),
  !line.is_ended && element('span', { class: 'aside', 'data-says': ' (no newline at the end)' }));
