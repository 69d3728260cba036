// The versions of a conversation as a graph: newest at the top, a lane for each branch.

import { byId, element } from './elements.js';

const ROW = 48;
const LANE = 16;
const KINDS = {
  root: 'Beginning', step: 'Step', turn: 'Resumed after an answer', pause: 'Resumed and paused again',
  edit: 'Edited', merge: 'Merged',
};

// `acts(version)` returns the buttons of a selected version.
export function showGraph(versions, acts) {
  const lanes = laneByBranch(versions);
  const rowById = new Map(versions.map((version, row) => [version.id, row]));
  const left = LANE * (Math.max(0, ...lanes.values()) + 1) + 8;
  const x = (version) => LANE * lanes.get(version.branch) + 10;
  const y = (row) => ROW * row + ROW / 2;
  const svg = element('svg', { width: left, height: ROW * versions.length, 'aria-hidden': 'true' });
  versions.forEach((version, row) => {
    for (const parent of [version.parent_id, version.merged_from]) {
      const below = rowById.get(parent);
      if (below !== undefined) {
        const [x1, y1, x2, y2] = [x(version), y(row), x(versions[below]), y(below)];
        svg.append(element('path', { d: `M${x1} ${y1}C${x1} ${y1 + ROW / 2} ${x2} ${y2 - ROW / 2} ${x2} ${y2}` }));
      }
    }
  });
  versions.forEach((version, row) => {
    svg.append(element('circle', { cx: x(version), cy: y(row), r: 5, class: `${version.is_head ? 'head ' : ''}${version.state}` }));
  });
  const rows = versions.map((version) => {
    const button = element('button', { type: 'button', class: 'version', 'data-version': version.id, 'aria-expanded': 'false' },
      element('span', {}, firstLine(version.prompt) ?? KINDS[version.kind]),
      element('span', { class: 'faint' }, describe(version)));
    button.style.paddingLeft = `${left}px`;
    button.addEventListener('click', (event) => choose(button, version, acts, event.detail === 0));
    return button;
  });
  byId('graph').replaceChildren(svg, ...rows);
}

function laneByBranch(versions) {
  const lanes = new Map();
  for (const version of [...versions].reverse()) {
    if (!lanes.has(version.branch)) lanes.set(version.branch, lanes.size);
  }
  return lanes;
}

function firstLine(prompt) {
  const [first, ...more] = prompt?.split('\n') ?? [null];
  return more.length ? `${first} …` : first;
}

function describe(version) {
  const files = version.files_changed?.length ?? 0;
  const changed = files === 0 ? '' : files === 1 ? ', 1 file' : `, ${files} files`;
  const state = version.state === 'complete' ? '' : `, ${version.state.replace('_', ' ')}`;
  const when = new Date(version.created_at).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });
  return `${version.is_head ? 'head, ' : ''}${version.branch}, ${when}${changed}${state}`;
}

// The actions are below all versions. A selection by key moves the focus there.
function choose(button, version, acts, isByKey) {
  const wasOpen = button.getAttribute('aria-expanded') === 'true';
  for (const open of byId('graph').querySelectorAll('.version')) open.setAttribute('aria-expanded', 'false');
  byId('chosen')?.remove();
  if (wasOpen) return;
  button.setAttribute('aria-expanded', 'true');
  const label = 'Actions for this version';
  byId('graph').after(element('div', { id: 'chosen', class: 'acts', role: 'group', 'aria-label': label }, ...acts(version)));
  if (isByKey) byId('chosen').querySelector('button:enabled').focus();
}
