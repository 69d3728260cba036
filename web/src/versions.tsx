// The versions of a conversation as a graph, what each contains, and how two of them differ.

import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useState } from 'preact/hooks';

import { close, dialog, showFile } from './dialogs';
import { FileDiffs } from './diff';
import { PromptView, Protected } from './dialogue';
import { Icon } from './icons';
import { Plan } from './plan';
import { isComposing, isSending } from './preferences';
import { get, getExactly } from './server';
import { type Choices, difference, download, fail, go, isRunning, may, merge, moveHead, open, refresh, resend, route } from './state';
import { count, moment, Prose, size, Text } from './text';
import { ItemView } from './tools';
import { isWithin, nameOf, turnsOf } from './transcript';
import type { Conflict, Difference, FileInfo, Message, StoredRequest, Version, VersionDetails } from './types';

export function Versions() {
  const at = route.value;
  const [linked, setLinked] = useState<Version[]>([]); // those of the address that are not in the graph, such as steps
  const wanted = at.view !== 'versions' || open.value === null ? '' : [at.version, at.other].filter((id) => id && !open.value!.versions.some((version) => version.id === id)).join();
  useLayoutEffect(() => { if (wanted) Promise.all(wanted.split(',').map((id) => get<Version>(`versions/${id}`))).then(setLinked, fail); }, [wanted]);
  if (at.view !== 'versions' || open.value === null) return null;
  const { versions, details } = open.value;
  const known = [...versions, ...linked];
  const chosen = known.find((version) => version.id === (at.version ?? details.head));
  const other = known.find((version) => version.id === at.other);
  return <div class={at.version === null ? 'versions' : 'versions chosen'}>
    <section class="graph-pane" aria-label="Versions">
      <Graph versions={versions} chosen={chosen?.id ?? null} />
    </section>
    <section class="version-pane" aria-label="Chosen version">
      {chosen && (at.other === null || other) && (other ? <Comparison key={`${chosen.id} ${other.id}`} before={chosen} after={other} /> : <Details key={`${chosen.id} ${details.head}`} version={chosen} />)}
    </section>
  </div>;
}

const ROW = 56;
/** The width of a lane, and of all of them: many branches are closer to each other, so that the names have space. */
const LANE = 18;
const LANES = 108;

/** Newest at the top, a lane for each branch. */
function Graph({ versions, chosen }: { versions: Version[]; chosen: string | null }) {
  const lanes = new Map<string, number>();
  for (const version of [...versions].reverse()) if (!lanes.has(version.branch)) lanes.set(version.branch, lanes.size);
  const rowById = new Map(versions.map((version, row) => [version.id, row]));
  const lane = Math.min(LANE, LANES / lanes.size);
  const left = lane * (lanes.size - 1) + LANE + 14;
  const x = (version: Version) => lane * lanes.get(version.branch)! + 14;
  const y = (row: number) => ROW * row + ROW / 2;
  const edges = versions.flatMap((version, row) => [version.parent_id, version.merged_from].flatMap((parent) => {
    const below = rowById.get(parent ?? '');
    if (below === undefined) return [];
    const [x1, y1, x2, y2] = [x(version), y(row), x(versions[below]!), y(below)];
    return [<path class={`lane-${lanes.get(version.branch)! % 6}`} d={x1 === x2 ? `M${x1} ${y1}V${y2}` : `M${x1} ${y1}C${x1} ${y1 + ROW} ${x2} ${y2 - ROW} ${x2} ${y2}`} />];
  }));
  return <div id="graph">
    <svg width={left} height={ROW * versions.length} aria-hidden="true">{edges}
      {versions.map((version, row) => <circle cx={x(version)} cy={y(row)} r={version.is_head ? 6 : 4.5}
        class={`lane-${lanes.get(version.branch)! % 6} ${version.is_head ? 'head ' : ''}${version.state}`} />)}</svg>
    <ol>{versions.map((version) => <li key={version.id}>
      <button type="button" class="version" data-version={version.id} aria-current={version.id === chosen} style={{ paddingLeft: `${left + 6}px` }} onClick={() => go(`#/v/${version.id}`)}>
        <span class="name"><Prose of={nameOf(version)} /></span>
        <span class="faint">{version.is_head && <span class="badge">current</span>}<Text of={describe(version)} /></span>
      </button></li>)}</ol>
  </div>;
}

function describe(version: Version): string {
  const files = version.files_changed?.length ?? 0;
  const when = new Date(version.created_at).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });
  return [version.branch, when, files > 0 && count(files, 'file'), version.state !== 'complete' && version.state.replace('_', ' ')].filter(Boolean).join(' · ');
}

interface Loaded { details: VersionDetails; messages: Message[]; files: FileInfo[] }
const TABS = ['Dialogue', 'Changes', 'Files', 'Plan', 'Cost'] as const;

function Details({ version }: { version: Version }) {
  const [loaded, setLoaded] = useState<Loaded | null>(null);
  const [tab, setTab] = useState<(typeof TABS)[number]>('Dialogue');
  const [isBranching, setBranching] = useState(false);
  useLayoutEffect(() => {
    Promise.all([
      get<VersionDetails>(`versions/${version.id}`), getExactly<{ messages: Message[] }>(`conversations/${version.conversation_id}/messages?version=${version.id}`),
      get<{ items: FileInfo[] }>(`versions/${version.id}/files`),
    ]).then(([details, { messages }, { items }]) => setLoaded({ details, messages, files: items }), fail);
  }, [version.id]);
  const canChange = may('run') && !isRunning.value;
  const isMerged = isWithin(open.value!.versions, version.id, open.value!.details.head);
  const onKey = (event: KeyboardEvent) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const next = TABS[(TABS.indexOf(tab) + by + TABS.length) % TABS.length]!;
    setTab(next);
    document.getElementById(`tab-${next}`)?.focus();
  };
  return <>
    <header>
      <button type="button" class="quiet back" onClick={() => go(`#/c/${version.conversation_id}/versions`)}><Icon name="left" />All versions</button>
      <h2><Prose of={nameOf(version)} /></h2>
      <p class="faint"><Text of={`Branch ${version.branch}, ${moment(version.created_at)}${version.model ? `, ${version.model}` : ''}`} /></p>
      <div class="acts" role="group" aria-label="Actions for this version">
        <button type="button" disabled={version.is_head || !canChange} onClick={() => moveHead(version.id, `Rewound to “${nameOf(version)}”.`)}><Icon name="undo" />Rewind to here</button>
        <button type="button" disabled={!canChange} aria-expanded={isBranching} onClick={() => setBranching(!isBranching)}><Icon name="branch" />Branch from here</button>
        <button type="button" disabled={isMerged || !canChange} title={isMerged ? 'The current version contains this one.' : undefined} onClick={() => startMerge(version)}>Merge into current</button>
        <Compare from={version} />
        <button type="button" class="quiet" onClick={() => download(version.id)}><Icon name="download" />Download files</button>
      </div>
      {isBranching && <BranchForm version={version} close={() => setBranching(false)} />}
    </header>
    <div role="tablist" aria-label="Contents of this version" onKeyDown={onKey}>{TABS.map((name) => <button type="button" role="tab" id={`tab-${name}`} aria-selected={name === tab}
      aria-controls="tab-panel" tabIndex={name === tab ? 0 : -1} onClick={() => setTab(name)}>{name}</button>)}</div>
    <div role="tabpanel" id="tab-panel" aria-labelledby={`tab-${tab}`} tabIndex={0}>{loaded === null ? <p class="faint" role="status">Loading …</p> : <Contents tab={tab} loaded={loaded} />}</div>
  </>;
}

function Contents({ tab, loaded: { details, messages, files } }: { tab: (typeof TABS)[number]; loaded: Loaded }) {
  switch (tab) {
    case 'Dialogue': return <>
      <Messages messages={messages} version={details} runId={details.run_id} />
      {details.error !== null && <div class="failure"><p>The turn failed: <Text of={details.error} /></p></div>}
    </>;
    case 'Changes': return <div class="changes"><Protected version={details} /><FileDiffs files={details.files} /></div>;
    case 'Files': return <Files files={files} versionId={details.id} />;
    case 'Plan': return <Plan todos={details.todos} />;
    default: return <Cost details={details} />;
  }
}

const LAST_TURNS = 20;

function Messages({ messages, version: { id: versionId, state }, runId }: { messages: Message[]; version: Version; runId: string | null }) {
  const [isWhole, setWhole] = useState(false);
  const turns = turnsOf(messages, state);
  const shown = isWhole ? turns : turns.slice(-LAST_TURNS);
  if (turns.length === 0) return <p class="faint">No messages.</p>;
  return <>
    {shown.length < turns.length && <p><button type="button" class="small" onClick={() => setWhole(true)}>Show {count(turns.length - shown.length, 'earlier turn')}</button></p>}
    <ol class="dialogue">{shown.map((turn) => <li class="turn" key={turn.key}>
      {turn.prompt && <PromptView text={turn.prompt.text} media={turn.prompt.media} files={[]} />}
      <div class="answer" role="group" aria-label="Answer">{turn.items.map((item) => <ItemView item={item} versionId={versionId} runId={turn === turns.at(-1) ? runId : null} isPending={false} />)}</div>
    </li>)}</ol>
  </>;
}

export const Files = ({ files, versionId }: { files: FileInfo[]; versionId: string }) => files.length === 0 ? <p class="faint">No files.</p>
  : <ul class="files">{files.map((file) => <li key={file.path}><button type="button" class="file" onClick={() => showFile(versionId, file)}><Icon name="file" /><span><Text of={file.path} /></span></button>
    <span class="faint">{size(file.size_bytes)}</span></li>)}</ul>;

function Cost({ details }: { details: VersionDetails }) {
  const { requests } = details;
  if (requests.length === 0) return <p class="faint">This version made no requests.</p>;
  return <div class="table cost" tabIndex={0} role="group" aria-label="Requests"><table>
    <thead><tr><th scope="col">Request</th><th scope="col">Model</th><th scope="col" class="to-right">Input</th><th scope="col" class="to-right">Output</th><th scope="col" class="to-right">Time</th><th scope="col" class="to-right">Cost</th></tr></thead>
    <tbody>{requests.map((request) => <tr><td>{request.number}</td><td><Text of={request.model} /></td><td class="to-right">{request.input_tokens.toLocaleString('en')}</td>
      <td class="to-right">{request.output_tokens.toLocaleString('en')}</td><td class="to-right">{request.seconds.toFixed(1)} s</td><td class="to-right">{request.cost === null ? 'unknown' : `$${Number(request.cost).toFixed(4)}`}</td></tr>)}</tbody>
    <tfoot><tr><th scope="row" colSpan={2}>This turn</th><td class="to-right">{sum(requests.map((each) => each.input_tokens))}</td><td class="to-right">{sum(requests.map((each) => each.output_tokens))}</td>
      <td class="to-right">{requests.reduce((total, each) => total + each.seconds, 0).toFixed(1)} s</td><td class="to-right">{totalCost(requests)}</td></tr></tfoot>
  </table></div>;
}

const totalCost = (requests: StoredRequest[]) => requests.some(({ cost }) => cost === null) ? 'unknown' : `$${requests.reduce((total, { cost }) => total + Number(cost), 0).toFixed(4)}`;

const sum = (numbers: number[]) => numbers.reduce((total, each) => total + each, 0).toLocaleString('en');

const focusOnce = (field: HTMLTextAreaElement | null) => field?.focus();

function BranchForm({ version, close }: { version: Version; close: () => void }) {
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const prompt = String(new FormData(event.currentTarget as HTMLFormElement).get('prompt')).trim();
    if (!prompt) return;
    go(`#/c/${version.conversation_id}`);
    void resend(prompt, version.id);
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.key === 'Escape' && !isComposing(event)) close();
    else if (isSending(event)) { event.preventDefault(); (event.currentTarget as HTMLTextAreaElement).form!.requestSubmit(); }
  };
  return <form class="branch-form" onSubmit={submit}>
    <label>Prompt of the new branch <textarea name="prompt" rows={3} required ref={focusOnce} onKeyDown={onKey} /></label>
    <div class="acts"><span class="faint">This version and all later ones remain unchanged.</span><button type="submit" class="main">Branch</button></div>
  </form>;
}

/** Choose the version to compare with, by its name. */
function Compare({ from }: { from: Version }) {
  const others = open.value!.versions.filter((version) => version.id !== from.id);
  if (others.length === 0) return null;
  return <label class="compare"><span>Compare with</span>
    <select value="" onChange={(event) => go(`#/v/${from.id}/${event.currentTarget.value}`)}>
      <option value="">…</option>
      {others.map((version) => <option value={version.id}>{optionText(version)}</option>)}
    </select></label>;
}

const optionText = (version: Version) => <Prose of={`${[...nameOf(version)].slice(0, 50).join('')} (${version.is_head ? 'current' : version.branch})`} />;

function Comparison({ before, after }: { before: Version; after: Version }) {
  const [found, setFound] = useState<Difference & { costs: string[] } | null>(null);
  useLayoutEffect(() => {
    Promise.all([difference(before.id, after.id), ...[before, after].map(({ id }) => get<VersionDetails>(`versions/${id}`))] as const)
      .then(([made, ...details]) => setFound({ ...made, costs: details.map(({ requests }) => totalCost(requests)) }), fail);
  }, []);
  return <>
    <header>
      <button type="button" class="quiet back" onClick={() => go(`#/v/${before.id}`)}><Icon name="left" />Back to the version</button>
      <h2>Comparison</h2>
      <p class="sides"><span class="badge removed">from</span> <a href={`#/v/${before.id}`}><Prose of={nameOf(before)} /></a> <span class="badge added">to</span> <a href={`#/v/${after.id}`}><Prose of={nameOf(after)} /></a></p>
      <div class="acts"><button type="button" onClick={() => go(`#/v/${after.id}/${before.id}`)}>Swap</button></div>
    </header>
    {found === null ? <p class="faint" role="status">Loading …</p> : <div id="difference">
      <h3>Files</h3>
      <Protected version={after} />
      <FileDiffs files={found.files} />
      <h3>Dialogue</h3>
      <p class="faint">{count(found.messages_common, 'message')} in both, {found.messages_removed.length} only in the first, {found.messages_added.length} only in the second.</p>
      <Two before={<Messages messages={found.messages_removed} version={before} runId={null} />} after={<Messages messages={found.messages_added} version={after} runId={null} />} />
      <h3>Plan</h3>
      <Two before={<Plan todos={found.todos_before} />} after={<Plan todos={found.todos_after} />} />
      <h3>Usage</h3>
      <div class="table" tabIndex={0} role="group" aria-label="Usage"><table><thead><tr><td /><th scope="col" class="to-right">First</th><th scope="col" class="to-right">Second</th><th scope="col" class="to-right">Difference</th></tr></thead><tbody>
        {(['input_tokens', 'output_tokens', 'requests', 'tool_calls'] as const).map((name) => <tr><th scope="row">{name[0]!.toUpperCase() + name.slice(1).replace('_', ' ')}</th>
          <td class="to-right">{before.usage[name].toLocaleString('en')}</td><td class="to-right">{after.usage[name].toLocaleString('en')}</td>
          <td class="to-right">{(found.usage[name] > 0 ? '+' : '') + found.usage[name].toLocaleString('en')}</td></tr>)}
        <tr><th scope="row">Cost of the turn</th>{found.costs.map((cost) => <td class="to-right">{cost}</td>)}<td /></tr></tbody></table></div>
    </div>}
  </>;
}

const Two = ({ before, after }: { before: ComponentChildren; after: ComponentChildren }) => <div class="two"><div class="side before">{before}</div><div class="side after">{after}</div></div>;

// Merges

async function startMerge(other: Version): Promise<void> {
  const { hash } = location;
  const conflicts = await merge(other, {});
  if (conflicts?.length && location.hash === hash) dialog.value = { title: 'Merge', content: <Conflicts other={other} conflicts={conflicts} /> };
}

const REASONS: Record<string, string> = {
  content: 'both changed the same lines', 'add/add': 'both created the file', 'modify/delete': 'changed here, removed there', 'delete/modify': 'removed here, changed there',
};

/** A person chooses a side for each file that cannot be merged. */
function Conflicts({ other, conflicts }: { other: Version; conflicts: Conflict[] }) {
  const [choices, setChoices] = useState<Choices>({});
  const [diff, setDiff] = useState<Difference | null>(null);
  const head = open.value!.details.head!;
  useLayoutEffect(() => { difference(head, other.id).then(setDiff, fail); }, []);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    close();
    const left = await merge(other, choices);
    if (left?.length) { await refresh(); dialog.value = { title: 'Merge', content: <Conflicts other={other} conflicts={left} /> }; }
  };
  return <form class="conflicts" onSubmit={submit}>
    <p>Both versions changed the same {conflicts.length === 1 ? 'file' : 'files'}. Choose which to keep; everything else is merged.</p>
    {conflicts.map(({ path, kind }) => <fieldset key={path}>
      <legend><Text of={path} /> <span class="faint"><Text of={REASONS[kind] ?? kind} /></span></legend>
      {([['ours', 'Keep the current file'], ['theirs', `Take the file of “${nameOf(other)}”`]] as const).map(([side, label]) => <label>
        <input type="radio" required name={path} checked={choices[path] === side} onChange={() => setChoices({ ...choices, [path]: side })} /> <Text of={label} /></label>)}
      {diff && <FileDiffs files={diff.files.filter((file) => file.path === path)} isNarrow />}
    </fieldset>)}
    <div class="acts"><button type="submit" class="main" disabled={Object.keys(choices).length < conflicts.length}>Merge</button><button type="button" class="quiet" onClick={close}>Cancel</button></div>
  </form>;
}

