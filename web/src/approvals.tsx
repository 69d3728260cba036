// Pending calls, and those that are approved without asking. A card shows the complete `view` of an approval, and an answer carries the digest of the displayed view.

import { useLayoutEffect, useRef, useState } from 'preact/hooks';

import { growing } from './composer';
import { DiffView } from './diff';
import { Icon } from './icons';
import { approved, askAgain, namesOfRepeat } from './repeats';
import { getExactly, parseExactly, Refused } from './server';
import { Outcome } from './outcome';
import { isComposing, isCtrlEnter } from './preferences';
import { type Answer, type Card, cards, decide, fail, go, guarded, isPending, latestDecisions, problem, route, tidy, titleOf } from './state';
import { ago, hasInvisible, moment, Pieces, plain, plainLines, readableJson, Text } from './text';
import { summarize } from './tools';
import type { Approval, Args, Argument, Escaped, Preview, QuestionField, Repeat, View } from './types';

export function Inbox() {
  const wanted = route.value.view === 'inbox' ? route.value.approval : null;
  const hasCards = cards.value.length > 0;
  useLayoutEffect(() => {
    const all = cardElements();
    const card = wanted === null ? all[0] : all.find((each) => each.dataset['approval'] === wanted); // a key is never for another call
    if (card && !document.activeElement?.closest('.card')) focusCard(card);
  }, [wanted, hasCards]);
  return <div class="scroller"><section id="inbox" class="column">
    <h2>Approvals</h2>
    <p class="faint">Calls that wait for your decision, in all conversations.</p>
    {wanted !== null && !cards.value.some((card) => card.approval.id === wanted) && <Wanted key={wanted} id={wanted} />}
    <ApprovedRepeats />
    <div id="approvals">{cards.value.map((card) => <ApprovalCard key={card.key} card={card} isInbox />)}</div>
    {cards.value.length === 0 && <p class="nothing">No approvals are pending.</p>}
    <Answered />
  </section></div>;
}

/** The call to which the address leads, if it is not pending any more. */
function Wanted({ id }: { id: string }) {
  const [found, setFound] = useState<Approval | null>(null);
  const [isGone, setGone] = useState(false);
  useLayoutEffect(() => {
    getExactly<Approval>(`approvals/${id}`).then(setFound, (error: unknown) => error instanceof Refused && [404, 422].includes(error.status) ? setGone(true) : fail(error));
  }, []);
  if (isGone) return <p class="warn" id="wanted">The call of this address does not exist any more.</p>;
  return found && !isPending(found) ? <ul id="wanted"><OutcomeLine approval={found} /></ul> : null;
}

/** The calls that were answered last, by whomever. Those that still have a card are not repeated. */
function Answered() {
  const [found, setFound] = useState<Approval[]>([]);
  const settled = cards.value.filter((card) => !isPending(card.approval)).length;
  useLayoutEffect(() => { latestDecisions().then(setFound, fail); }, [settled]);
  const wanted = route.value.view === 'inbox' ? route.value.approval : null;
  const shown = found.filter(({ id }) => id !== wanted && !cards.value.some((card) => card.approval.id === id));
  if (shown.length === 0) return null;
  return <section id="answered" aria-labelledby="answered-title">
    <h3 id="answered-title">Answered</h3>
    <ul>{shown.map((approval) => <OutcomeLine key={approval.id} approval={approval} />)}</ul>
  </section>;
}

/** A call with its conversation, and how it was answered. */
function OutcomeLine({ approval }: { approval: Approval }) {
  const { verb, target, isCode } = summarize(approval.tool, approval.args);
  return <li><p><Text of={verb} /> <span class={isCode ? 'code-text' : undefined}><Text of={target.split('\n')[0]!} /></span> in <a href={`#/c/${approval.conversation_id}`}><Text of={titleOf(approval.conversation_id) ?? 'a conversation'} /></a></p>
    <Outcome approval={approval} /></li>;
}

/** The calls of a conversation, or of all, that this page approves without asking, and how to end it. */
export function ApprovedRepeats({ conversation }: { conversation?: string }) {
  const shown = approved.value.filter((each) => conversation === undefined || each.conversation === conversation);
  if (shown.length === 0) return null;
  return <div class="approved">
    <span class="faint">Approved while this tab is open:</span>
    <ul>{shown.map((each) => <li class="chip" key={each.conversation + each.key}>
      <Icon name="check" /><span class="says-repeat"><Text of={each.says} />{conversation === undefined && <span class="faint"> in <Text of={titleOf(each.conversation) ?? 'another conversation'} /></span>}</span>
      <button type="button" class="quiet small" title="Ask again" aria-label={`Ask again for ${plain(each.says)}`} onClick={() => askAgain(each)}><Icon name="close" /></button>
    </li>)}</ul>
  </div>;
}

/** `data-approval` is on cards that can be answered; answered ones keep their place, without buttons. */
export function ApprovalCard({ card, isInbox = false }: { card: Card; isInbox?: boolean }) {
  const { approval } = card;
  const { view } = approval;
  const root = useRef<HTMLElement>(null);
  const [form, setForm] = useState<'deny' | 'edit' | 'respond' | null>(null);
  const [isBusy, setBusy] = useState(false);
  const [isLate, setLate] = useState(false);
  const isOpen = isPending(approval);
  const answer = async (given: Answer, repeat: Repeat | null = null) => {
    if (isBusy) return;
    root.current!.focus(); // a button may be removed
    if (!isOpen) { setForm(null); setLate(true); return; } // answered while the person filled in a form
    setBusy(true);
    const counts = await decide(card, root.current!.dataset['digest']!, given, repeat);
    setLate(counts === false);
    if (counts !== undefined) setForm(null); // what was written remains after an error
    setBusy(false);
  };
  const close = () => { setForm(null); root.current?.focus(); };
  const shownForm = isBusy && !isOpen ? null : form;
  // The second click of a double click may be meant for what was there before.
  const click = (act: () => void) => (event: MouseEvent) => { if (event.detail < 2) act(); };
  const repeated = namesOfRepeat(approval);
  const Title = isInbox ? 'h3' : 'h2'; // below the title of the inbox, or of the conversation
  const takes = (decision: string) => approval.decisions.includes(decision);
  const isQuestion = view.preview?.kind === 'question';
  const takesResult = takes('respond') && !takes('approve') && !isQuestion; // such as an external call
  return <article class={isOpen ? 'card' : 'card settled'} ref={root} tabIndex={0} aria-busy={isBusy} aria-label={`Approval of ${view.tool.join('')}`}
    data-approval={isOpen ? approval.id : undefined} data-digest={view.digest}>
    <header>
      <Title>{view.path.map((name) => <><Pieces of={name} /> › </>)}<Pieces of={view.tool} /></Title>
      <p class="faint"><Text of={approval.agent} /> asked <time dateTime={approval.created_at} title={moment(approval.created_at)}>{ago(approval.created_at)}</time>
        {approval.expires_at && <>, until {moment(approval.expires_at)}</>}
        {isInbox && <> in <a href={`#/c/${approval.conversation_id}`}><Text of={titleOf(approval.conversation_id) ?? 'its conversation'} /></a></>}</p>
    </header>
    {view.preview && isSaid(view.preview.notice) && <p class="warn"><Pieces of={view.preview.notice} /></p>}
    {view.escapes > 0 && <p class="warn">{view.escapes === 1 ? 'One character is invisible, and is shown as ' : `${view.escapes.toLocaleString('en')} characters are invisible, and are shown as `}
      <span class="escape">{view.escapes === 1 ? 'an escape' : 'escapes'}</span>.</p>}
    {view.arguments.filter((argument) => !isQuestion || !argument.in_preview).map((argument) => <ArgumentView argument={argument} preview={view.preview} />)}
    {view.preview && (isQuestion ? <Question preview={view.preview} choices={choicesOf(approval)} chosen={approval.response} canAnswer={isOpen && takes('respond')} answer={(content) => void answer({ decision: 'respond', content })} />
      : <PreviewView view={view} preview={view.preview} />)}
    {shownForm === 'deny' && <DenyForm answer={answer} close={close} />}
    {shownForm === 'edit' && <EditForm approval={approval} answer={answer} close={close} />}
    {shownForm === 'respond' && <RespondForm answer={answer} close={close} />}
    <div class="end"><div class="says" role="status">{!isOpen && <>
      <Outcome approval={approval} />
      {isLate && <p class="late">Your answer came too late, and has no effect.</p>}
    </>}</div><div class="acts" hidden={shownForm !== null}>
      {takes('approve') && <button type="button" class="main" data-act="approve" disabled={!isOpen} onClick={click(() => void answer({ decision: 'approve' }))}><Icon name="check" />Approve <kbd>y</kbd></button>}
      {takesResult && <button type="button" class="main" data-act="respond" disabled={!isOpen} onClick={click(() => setForm('respond'))}><Icon name="check" />Respond <kbd>r</kbd></button>}
      {takes('deny') && <button type="button" data-act="deny" disabled={!isOpen} onClick={click(() => setForm('deny'))}><Icon name="close" />{isQuestion ? 'Decline' : 'Deny'} <kbd>n</kbd></button>}
      {takes('edit') && <button type="button" data-act="edit" disabled={!isOpen} onClick={click(() => setForm('edit'))}><Icon name="edit" />Edit <kbd>e</kbd></button>}
      {repeated !== null && <button type="button" data-act="repeat" disabled={!isOpen} title="Later calls are approved without asking, until you close this tab or end it above the prompt." onClick={click(() => void answer({ decision: 'approve' }, approval.repeat))}>
        {approval.repeat!.kind === 'tool' ? <>Approve each <Pieces of={view.tool} /></> : `Approve this ${approval.repeat!.kind}`} in this conversation <kbd>Y</kbd></button>}
    </div></div>
  </article>;
}

const isSaid = (text: Escaped) => text.some((piece) => piece !== '');

function ArgumentView({ argument, preview }: { argument: Argument; preview: Preview | null }) {
  const { value } = argument;
  const ends = value.at(-1)!.endsWith('\n');
  const lines = value.reduce((sum, piece) => sum + piece.split('\n').length - 1, ends ? 0 : 1);
  const aside = !isSaid(value) ? '(empty)' : lines > 1 && !ends && argument.kind === 'text' ? '(no newline at its end)' : null;
  const name = <><span class="name"><Pieces of={argument.name} /></span>{argument.kind === 'json' && <span class="faint"> JSON</span>}</>;
  const shown = <pre class="value" tabIndex={0}><Pieces of={value} />{aside && <span class="aside" data-says={aside} />}</pre>;
  if (argument.in_preview && preview?.kind === 'diff') {
    return <details class="argument"><summary>{name}<span class="faint"> {lines.toLocaleString('en')} lines, all of them in the diff below</span></summary>{shown}</details>;
  }
  return <div class={lines > 1 ? 'argument' : 'argument short'}><div>{name}{lines > 20 && <span class="faint"> {lines.toLocaleString('en')} lines</span>}</div>{shown}</div>;
}

/** A command that is an argument is shown with the arguments. */
function PreviewView({ view, preview }: { view: View; preview: Preview }) {
  const isShown = preview.kind === 'command' && view.arguments.some((argument) => argument.in_preview);
  return <div class="preview">
    {isSaid(preview.text) && !isShown && <pre class="text" tabIndex={0}><Pieces of={preview.text} /></pre>}
    {preview.diff && <DiffView diff={preview.diff} isNarrow />}
  </div>;
}

interface QuestionProps { preview: Preview; choices: unknown[]; chosen: unknown; canAnswer: boolean; answer: (content: unknown) => void }

/** The suggested answers, as `ask_user` has them in its arguments. Those to a server are accepted as they are shown. */
function choicesOf({ args, view }: Approval): unknown[] {
  const isArgument = view.arguments.some(({ name, in_preview }) => in_preview && name.join('') === 'choices');
  return isArgument ? args['choices'] as unknown[] : view.preview!.choices.map((choice) => choice.join(''));
}

/** A question to the person: each suggested answer is a button, and any other answer can be written. A question with several values has a field for each. */
function Question({ preview, choices, chosen, canAnswer, answer }: QuestionProps) {
  const { fields, link } = preview;
  const hasForm = fields.length > 1 || (fields.length === 1 && preview.choices.length === 0);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget as HTMLFormElement);
    if (hasForm) answer(valuesOf(fields, given));
    else if (String(given.get('answer')).trim()) answer(String(given.get('answer')).trim());
  };
  const click = (at: number) => (event: MouseEvent) => { if (event.detail < 2) answer(String(choices[at])); };
  return <div class="question">
    <p><Pieces of={preview.text} /></p>
    {isSaid(link) && <p>{link.length === 1 && /^https?:/.test(link[0]!) ? <a href={link[0]} target="_blank" rel="noopener noreferrer">{link[0]}</a> : <Pieces of={link} />}</p>}
    {preview.choices.length > 0 && <div class="acts" role="group" aria-label="Suggested answers">{preview.choices.map((choice, at) =>
      <button type="button" class={String(choices[at]) === chosen ? 'chosen' : undefined} disabled={!canAnswer} onClick={click(at)}><Pieces of={choice} /></button>)}</div>}
    {hasForm ? <form class="answer-form fields" onSubmit={submit}>
      {fields.map((field, at) => <label><span class="name"><Pieces of={field.label} /></span> {isSaid(field.hint) && <span class="faint"><Pieces of={field.hint} /></span>}<FieldInput field={field} name={String(at)} isDisabled={!canAnswer} /></label>)}
      <div class="acts"><button type="submit" class="main" disabled={!canAnswer}>Answer</button></div>
    </form> : <form class="acts" onSubmit={submit}><input name="answer" required autocomplete="off" disabled={!canAnswer} aria-label="Your answer" placeholder={preview.choices.length > 0 ? 'Another answer' : 'Your answer'} />
      <button type="submit" class="main" disabled={!canAnswer}>Answer</button></form>}
  </div>;
}

function FieldInput({ field, name, isDisabled }: { field: QuestionField; name: string; isDisabled: boolean }) {
  const choices = field.kind === 'flag' ? ['Yes', 'No'] : field.choices.map((choice) => choice.join(''));
  if (choices.length === 0) return <input name={name} autocomplete="off" disabled={isDisabled} />;
  const isMultiple = field.kind === 'choices';
  return <select name={name} multiple={isMultiple} disabled={isDisabled}>{!isMultiple && <option />}{choices.map((choice) => <option>{choice}</option>)}</select>;
}

/** Empty fields are left out, so that the server's default applies. What is missing or wrong, the server says. */
const valuesOf = (fields: QuestionField[], given: FormData) => Object.fromEntries(fields.flatMap((field, at) => {
  const values = given.getAll(String(at)).map(String).filter((value) => value !== '');
  return values.length === 0 ? [] : [[field.name.join(''), field.kind === 'choices' ? values : values[0]]];
}));

interface FormProps { answer: (given: Answer) => void; close: () => void }

const closing = (close: () => void) => (event: KeyboardEvent) => { if (event.key === 'Escape' && !isComposing(event)) { event.stopPropagation(); close(); } };

function DenyForm({ answer, close }: FormProps) {
  const field = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => field.current!.select(), []);
  return <form class="answer-form" onKeyDown={closing(close)} onSubmit={(event) => { event.preventDefault(); answer({ decision: 'deny', reason: field.current!.value }); }}>
    <label>Reason for the agent <input ref={field} name="reason" required autocomplete="off" defaultValue="A person denied this call." /></label>
    <div class="acts"><button type="submit" class="main">Deny</button><button type="button" class="quiet" onClick={close}>Cancel</button></div>
  </form>;
}

/** The result of a call that does not run here: a text, or any JSON. */
function RespondForm({ answer, close }: FormProps) {
  const form = useRef<HTMLFormElement>(null);
  useLayoutEffect(() => form.current!.querySelector('textarea')!.focus(), []);
  const submit = guarded(async () => {
    const given = new FormData(form.current!);
    const text = String(given.get('result')).replaceAll('\r\n', '\n'); // a form sends the line breaks of its platform
    answer({ decision: 'respond', content: parse('Result', given.get('kind') as 'text' | 'json', text) });
  });
  const onKey = (event: KeyboardEvent) => { if (isCtrlEnter(event)) form.current!.requestSubmit(); };
  return <form class="answer-form" ref={form} onKeyDown={closing(close)} onSubmit={(event) => { event.preventDefault(); void submit(); }}>
    <p>The call does not run; the model gets this as its result.</p>
    <label><span class="name">Result</span><textarea name="result" rows={3} required spellcheck={false} onInput={(event) => growing(event.currentTarget)} onKeyDown={onKey} /></label>
    <div class="options" role="group" aria-label="Kind of result">
      <label class="option"><input type="radio" name="kind" value="text" defaultChecked />Text</label>
      <label class="option"><input type="radio" name="kind" value="json" />JSON</label></div>
    <div class="acts"><button type="submit" class="main">Respond <kbd>Ctrl+Enter</kbd></button><button type="button" class="quiet" onClick={close}>Cancel</button></div>
  </form>;
}

interface Field { name: string; value: unknown; kind: 'text' | 'flag' | 'json'; shown: string }

/** A text that a field would not show as it is, such as one with a carriage return, is edited as JSON. */
function fieldsOf(args: Args): Field[] {
  return Object.entries(args).map(([name, value]) => {
    if (typeof value === 'string' && !hasInvisible(value)) return { name, value, kind: 'text', shown: value };
    if (typeof value === 'boolean') return { name, value, kind: 'flag', shown: String(value) };
    return { name, value, kind: 'json', shown: readableJson(value) };
  });
}

function EditForm({ approval, answer, close }: FormProps & { approval: Approval }) {
  const form = useRef<HTMLFormElement>(null);
  const [fields, setFields] = useState<Field[] | null>(null);
  useLayoutEffect(() => {
    getExactly<Approval>(`approvals/${approval.id}`).then(({ args }) => setFields(fieldsOf(args)), (error: unknown) => { fail(error); close(); });
  }, []);
  // Before the next paint, because a key can be pressed as soon as the fields are seen.
  useLayoutEffect(() => {
    if (fields === null) return;
    for (const field of form.current!.querySelectorAll('textarea')) growing(field);
    form.current!.querySelector<HTMLElement>('[name]')?.focus();
  }, [fields]);
  const submit = guarded(async () => {
    const given = new FormData(form.current!);
    const args = Object.fromEntries(fields!.map((field, at) => {
      const text = String(given.get(String(at))).replaceAll('\r\n', '\n'); // a form sends the line breaks of its platform
      return [field.name, text === field.shown ? field.value : parse(field.name, field.kind, text)];
    }));
    answer({ decision: 'edit', args });
  });
  // Enter starts a line, also in a text of one line: it must not run a call that the person is still changing.
  const onKey = (event: KeyboardEvent) => { if (isCtrlEnter(event)) form.current!.requestSubmit(); };
  return <form class="answer-form" ref={form} onKeyDown={closing(close)} onSubmit={(event) => { event.preventDefault(); void submit(); }}>
    <p>The call runs with these arguments instead.</p>
    {fields?.map(({ name, kind, shown }, at) => <label><span class="name"><Text of={name} />{kind === 'json' && <span class="faint"> JSON</span>}</span>
      {kind === 'flag' ? <select name={String(at)}>{['true', 'false'].map((each) => <option selected={each === shown}>{each}</option>)}</select>
        : <textarea name={String(at)} rows={1} spellcheck={false} defaultValue={shown} onInput={(event) => growing(event.currentTarget)} onKeyDown={onKey} />}</label>)}
    <div class="acts"><button type="submit" class="main" disabled={fields === null}>Run with these <kbd>Ctrl+Enter</kbd></button><button type="button" class="quiet" onClick={close}>Cancel</button></div>
  </form>;
}

function parse(name: string, kind: Field['kind'], text: string): unknown {
  if (kind === 'text') return text;
  try { return parseExactly(text); } catch (error) {
    throw new Refused(0, { message: `“${plainLines(name)}” is not valid JSON: ${(error as Error).message}` });
  }
}

// Keys: only a focused, visible call is answered. On a phone, something else may cover it.

export const cardElements = () => [...document.querySelectorAll<HTMLElement>('[data-approval]')].filter((card) => card.getClientRects().length > 0);

export function pressOnCard(act: 'approve' | 'repeat' | 'deny' | 'edit' | 'respond'): void {
  const card = cardElements().find((each) => each === document.activeElement || each.contains(document.activeElement));
  if (document.activeElement?.closest('.card.settled')) problem.value = 'This call is already answered. Press j to go to the next one.';
  else if (!card) problem.value = 'No call is focused. Press a to go to the pending calls.';
  else if ((act === 'approve' || act === 'repeat') && !showEnd(card)) problem.value = 'This call continues below. Read on, and press the key again at its end.';
  else card.querySelector<HTMLButtonElement>(`[data-act="${act}"]:enabled`)?.click();
}

/** Return whether the end of a card is visible. If it is not, scroll to the next part. */
function showEnd(card: HTMLElement): boolean {
  const scroller = card.closest<HTMLElement>('.scroller')!;
  const box = scroller.getBoundingClientRect();
  const end = card.querySelector('.end')!.getBoundingClientRect();
  const isSeen = end.top >= box.top && end.bottom <= box.bottom + 1;
  if (end.bottom > box.bottom) scroller.scrollBy({ top: Math.min(box.height * 0.8, end.bottom - box.bottom + 8) });
  else if (!isSeen) card.scrollIntoView({ block: 'end' });
  return isSeen;
}

/** Focus a card. One that is taller than its list is scrolled to its beginning. */
export function focusCard(card: HTMLElement): void {
  card.focus({ preventScroll: true });
  card.scrollIntoView({ block: card.offsetHeight > card.closest<HTMLElement>('.scroller')!.clientHeight ? 'start' : 'nearest' });
}

/** Go to the next or the previous call. Answered ones disappear then. */
export function stepCards(by: number): void {
  const all = cardElements();
  const current = document.activeElement?.closest<HTMLElement>('.card') ?? null;
  const order = [...document.querySelectorAll<HTMLElement>('.card')].filter((card) => card === current || all.includes(card));
  const at = current ? order.indexOf(current) : -1;
  const next = order[Math.min(Math.max(at + by, 0), order.length - 1)];
  if (next) focusCard(next);
  tidy();
}

export const goToInbox = () => {
  if (cardElements().length > 0) focusCard(cardElements()[0]!);
  else go('#/a');
};
