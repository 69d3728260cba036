// The dialogue: its turns, the running one, and the calls that are pending in it.

import { computed } from '@preact/signals';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';

import { ApprovalCard } from './approvals';
import { growing } from './composer';
import { Icon } from './icons';
import { memo } from './memo';
import { isComposing, isSending } from './preferences';
import { type Card, cards, decisions, delay, draft, endSuspended, isConnectionLost, isPending, isRunning, live, may, moveHead, open, resend, resumeTurn } from './state';
import { count, Lines, moment, Prose, Text } from './text';
import { ItemView, MediaList } from './tools';
import { nameOf, newestBelow, type Place, placesOf, type Turn, typed } from './transcript';
import type { Version } from './types';

/** How many turns are shown at first, and added each time the person reads upwards. */
const PAGE = 30;

/** At the end of the dialogue, earlier turns are removed again if there are more. */
const MAX_SHOWN = 4 * PAGE;

// While an answer is streamed, these remain the same, so that only the answer is rendered.
const places = computed(() => placesOf(open.value?.versions ?? [], open.value?.details.head ?? null));
const hasLive = computed(() => live.value !== null);
const liveCalls = computed(() => JSON.stringify(live.value?.items.flatMap((item) => item.kind === 'call' ? [item.id] : []) ?? []));

export function Dialogue() {
  const scroller = useRef<HTMLDivElement>(null);
  const top = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  const content = useRef<HTMLDivElement>(null);
  const lastTop = useRef(0);
  const heightBefore = useRef<number | null>(null);
  const [shown, setShown] = useState(PAGE);
  const conversation = open.value;
  const turns = conversation?.turns ?? [];
  const from = Math.max(0, turns.length - shown);
  const id = conversation?.details.id;
  const cardsHere = cards.value.filter((card) => card.approval.conversation_id === id);
  const isShown = ({ approval }: Card) => !isPending(approval) || approval.version_id === conversation?.details.head;
  const own = cardsHere.filter(isShown);
  const elsewhere = cardsHere.filter((card) => !isShown(card));
  const isAnswered = !hasLive.value && may('run') && !own.some((card) => isPending(card.approval)) && conversation?.details.state === 'awaiting_approval'
    && [...decisions.value.values()].some((approval) => approval.version_id === conversation.details.head);

  useLayoutEffect(() => { setShown(PAGE); isAtEnd.current = true; }, [id]);
  useLayoutEffect(() => {
    if (from === 0) return undefined;
    const box = scroller.current!;
    const observer = new IntersectionObserver((entries) => {
      if (!entries.at(-1)!.isIntersecting) return; // a busy page gets several entries at once, and the last one is true
      heightBefore.current = box.scrollHeight;
      setShown((now) => now + PAGE);
    }, { root: box, rootMargin: '400px' });
    observer.observe(top.current!);
    return () => observer.disconnect();
  }, [from]);
  useLayoutEffect(() => {
    const box = scroller.current!;
    if (heightBefore.current !== null) box.scrollTop += box.scrollHeight - heightBefore.current; // what was read stays where it is
    heightBefore.current = null;
  });
  useLayoutEffect(() => {
    const box = scroller.current!;
    // A call is read from its beginning: the end of a long one would show buttons without the call that they approve.
    const observer = new ResizeObserver(() => {
      if (!isAtEnd.current) return;
      box.scrollTop = box.scrollHeight;
      const above = box.getBoundingClientRect().top - (box.querySelector('.pending .card:not(.settled)')?.getBoundingClientRect().top ?? Infinity);
      if (above > 0) box.scrollTop -= above + 8;
    });
    for (const each of [box, content.current!]) observer.observe(each);
    return () => observer.disconnect();
  }, []);
  // Whoever reads upwards is not pulled down by new text.
  const onScroll = ({ currentTarget: box }: { currentTarget: HTMLElement }) => { // also after another view is shown
    const isNear = box.scrollHeight - box.scrollTop - box.clientHeight < 80;
    isAtEnd.current = isNear || (isAtEnd.current && box.scrollTop >= lastTop.current); // text that has just come pushes the end down
    lastTop.current = box.scrollTop;
    if (isNear && shown > MAX_SHOWN) setShown(PAGE);
  };

  return <div class="scroller" ref={scroller} onScroll={onScroll}><div ref={content}>
    <div ref={top} />
    {from > 0 && <p class="note center">{count(from, 'earlier turn')} above</p>}
    <ol id="dialogue" aria-label="Dialogue">
      {turns.slice(from).map((turn) => <TurnView key={turn.key} turn={turn} place={places.value.at(turn.at)} versionId={conversation!.details.head}
        hidden={turn === turns.at(-1) ? liveCalls.value : NONE} canChange={!isRunning.value && may('run')} />)}
      {hasLive.value && <LiveTurn versionId={conversation?.details.head ?? null} />}
    </ol>
    <Suspended />
    {own.length > 0 && <section aria-label="Calls that wait for your decision" class="pending">{own.map((card) => <ApprovalCard key={card.key} card={card} />)}</section>}
    {isAnswered && <p class="note center">All calls are answered. <button type="button" class="small" id="resume" onClick={resumeTurn}>Resume the turn</button></p>}
    {elsewhere.length > 0 && <p class="note center elsewhere"><a href={`#/a/${elsewhere[0]!.approval.id}`}>
      {count(elsewhere.length, 'call')} on other branches {elsewhere.length === 1 ? 'waits' : 'wait'} for your decision</a></p>}
    <Protected version={conversation?.versions.find((version) => version.is_head)} />
  </div></div>;
}

const NONE = '[]';

/** The running turn, which alone is rendered for each event. */
function LiveTurn({ versionId }: { versionId: string | null }) {
  const running = live.value;
  if (running === null) return null;
  return <><Failures base={running.base} runId={running.runId} prompt={running.prompt?.text ?? null} /><li class="turn" data-live={String(running.isRunning)}>
    {running.prompt && <PromptView text={running.prompt.text} media={running.prompt.media} files={running.prompt.files ?? []} />}
    <div class="answer" role="group" aria-label="Answer" aria-live="polite" aria-busy={running.isRunning}>
      {running.items.map((item, at) => <ItemView key={at} item={item} versionId={versionId} runId={null} isPending={running.isRunning} />)}
      {running.isRunning && <p class="working" role="status"><span class="spinner" aria-hidden="true" />
        {isConnectionLost.value ? 'The connection is lost. The run continues; this page is reconnecting.' : delay.value ?? 'Working'}</p>}
      {running.error !== null && <div class="failure" role="alert">
        <p><Lines of={running.error} /></p>
        <Retry />
      </div>}
    </div>
  </li></>;
}

/** The turns that failed without any output before a turn from the same version. */
function Failures({ base, runId, prompt }: { base: string | null; runId: string | null; prompt: string | null }) {
  return <>{places.value.failures(base, runId, prompt && typed(prompt)).map((version) => <li class="turn" key={version.id}>
    <PromptView text={version.prompt!} media={[]} files={[]} />
    <p class="note">This turn failed. <a href={`#/v/${version.id}`}>Why it failed</a></p>
  </li>)}</>;
}

function Retry() {
  const last = open.value?.turns.at(-1);
  const { prompt } = live.value!;
  const text = prompt?.text ?? last?.prompt?.text;
  // The steps of a turn may be stored: the prompt is sent again in its place.
  const base = prompt === null && last ? places.value.at(last.at)?.base.id ?? null : live.value!.base;
  if (text === undefined || !may('run')) return null;
  return <div class="acts">
    <button type="button" onClick={() => resend(text, base)}><Icon name="retry" />Try again</button>
    <button type="button" class="quiet" onClick={() => { draft.value = { text }; }}><Icon name="edit" />Change the prompt</button>
  </div>;
}

interface TurnProps { turn: Turn; place: Place | null; versionId: string | null; hidden: string; canChange: boolean }

const TurnView = memo<TurnProps>((props) => <TurnItem {...props} />, (before, next) => before.turn === next.turn && before.hidden === next.hidden
  && before.versionId === next.versionId && before.canChange === next.canChange && before.place?.own === next.place?.own && before.place?.last === next.place?.last
  && before.place?.alternatives.length === next.place?.alternatives.length);

function TurnItem({ turn, place, versionId, hidden, canChange }: TurnProps) {
  const [isEditing, setEditing] = useState(false);
  const edit = canChange && place ? () => setEditing(true) : null;
  const hiddenCalls = JSON.parse(hidden) as string[];
  return <>{place && <Failures base={place.base.id} runId={place.own.run_id} prompt={place.own.prompt} />}<li class="turn">
    {turn.prompt && (isEditing && place ? <PromptForm text={turn.prompt.text} base={place.base.id} close={() => setEditing(false)} />
      : <PromptView text={turn.prompt.text} media={turn.prompt.media} files={place?.files ?? []} edit={edit} place={canChange ? place : null} />)}
    <div class="answer" role="group" aria-label="Answer">
      {turn.items.filter((item) => item.kind !== 'call' || item.outcome !== null || !hiddenCalls.includes(item.id)).map((item, at) =>
        <ItemView key={at} item={item} versionId={versionId} runId={place?.own.run_id ?? null} isPending={false} />)}
      {place?.last.state === 'interrupted' && <p class="note">This turn was interrupted. What was done is kept.</p>}
      {place?.last.state === 'failed' && place.last.id !== versionId && <p class="note">This turn failed. What was done is kept.</p>}
    </div>
  </li></>;
}

interface PromptProps { text: string; media: { type: string; data: string | null }[]; files: string[]; edit?: (() => void) | null; place?: Place | null }

export function PromptView({ text, media, files, edit = null, place = null }: PromptProps) {
  return <div class="prompt" role="group" aria-label="Prompt">
    <div class="bubble"><Prose of={typed(text)} />
      <MediaList media={media} />
      {files.length > 0 && <div class="media">{files.map((name) => <span class="chip"><Icon name="clip" /><Text of={name} /></span>)}</div>}
    </div>
    {(edit || place) && <div class="under">
      {place && place.alternatives.length > 1 && <BranchPicker place={place} />}
      {edit && <button type="button" class="quiet small edit" onClick={edit} title="Change this prompt and send it again, on a branch"><Icon name="edit" />Edit</button>}
    </div>}
  </div>;
}

/** The other turns from the same version. Choosing one moves the head to the newest version that continues it. */
function BranchPicker({ place }: { place: Place }) {
  const at = place.alternatives.findIndex((version) => version.id === place.own.id);
  const choose = (version: Version | undefined) => version && moveHead(newestBelow(open.value!.versions, version.id), `Switched to “${nameOf(version)}”.`);
  return <div class="picker" role="group" aria-label="Branches at this prompt">
    <button type="button" class="quiet small" disabled={at <= 0} aria-label="Previous branch" onClick={() => choose(place.alternatives[at - 1])}><Icon name="left" /></button>
    <span>{at + 1} / {place.alternatives.length}</span>
    <button type="button" class="quiet small" disabled={at >= place.alternatives.length - 1} aria-label="Next branch" onClick={() => choose(place.alternatives[at + 1])}><Icon name="right" /></button>
  </div>;
}

function PromptForm({ text, base, close }: { text: string; base: string; close: () => void }) {
  const field = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => { growing(field.current!); field.current!.focus(); }, []);
  const submit = () => { const prompt = field.current!.value.trim(); if (prompt) { close(); void resend(prompt, base); } };
  const onKey = (event: KeyboardEvent) => {
    if (event.key === 'Escape' && !isComposing(event)) close();
    else if (isSending(event)) { event.preventDefault(); submit(); }
  };
  return <form class="prompt-form" onSubmit={(event) => { event.preventDefault(); submit(); }}>
    <textarea ref={field} dir="auto" defaultValue={text} aria-label="Change the prompt" onKeyDown={onKey} onInput={(event) => growing(event.currentTarget)} />
    <div class="acts"><span class="faint">The earlier answer stays on its own branch.</span>
      <button type="button" class="quiet" onClick={close}>Cancel</button><button type="submit" class="main">Send</button></div>
  </form>;
}

function Suspended() {
  const runs = open.value?.suspended ?? [];
  if (runs.length === 0) return null;
  return <ul id="suspended" aria-label="Suspended runs">{runs.map((run) => <li key={run.id} data-run={run.id}>
    <span>A run of {moment(run.started_at)} is suspended.{run.has_moved_on && ' The conversation has continued since: resume the run on a new branch?'}</span>
    <button type="button" onClick={() => endSuspended(run, 'resume')}>Resume</button>
    <button type="button" class="quiet" onClick={() => endSuspended(run, 'cancel')}>Discard</button>
  </li>)}</ul>;
}

/** Changed files that programs of this machine run or read as configuration, in versions or not: no diff shows `.git/config`. */
export function Protected({ version }: { version: Version | undefined }) {
  const changes = version?.protected_changes ?? [];
  if (changes.length === 0) return null;
  return <div class="warn protected" role="status">This turn changed files that programs of this machine run or obey:
    <ul>{changes.map((each) => <li><Text of={`${each.path} (${each.change})`} /></li>)}</ul></div>;
}
