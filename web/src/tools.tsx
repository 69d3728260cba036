// A tool call in one line that says what it does; opened, it shows the arguments and the result.

import { useLayoutEffect, useRef, useState } from 'preact/hooks';

import { Icon, type IconName } from './icons';
import { Code, Markdown } from './markdown';
import { memo } from './memo';
import { Outcome, resultOf, stateOf } from './outcome';
import { watch } from './server';
import { decisions, loadDecisions, open } from './state';
import { Plan } from './plan';
import { Lines, Prose, readableJson, Text } from './text';
import { after, type Call, type Item, runsOfTurn } from './transcript';
import type { Todo } from './types';

interface Summary { icon: IconName; verb: string; target: string; isCode?: boolean }

/** What a call does, for the tools of deep agents; for any other tool, its name and its first text, or else its numbers. */
export function summarize(name: string, args: Call['args']): Summary {
  const given = typeof args === 'string' ? {} : args;
  const say = (key: string) => typeof given[key] === 'string' ? given[key] : '';
  const lines = typeof given['offset'] === 'number' ? ` from line ${given['offset']}` : '';
  switch (name) {
    case 'ls': return { icon: 'folder', verb: 'List', target: say('path') || '/', isCode: true };
    case 'read_file': return { icon: 'file', verb: 'Read', target: say('path') + lines, isCode: true };
    case 'write_file': return { icon: 'file', verb: 'Write', target: say('path'), isCode: true };
    case 'edit_file': return { icon: 'edit', verb: 'Edit', target: say('path'), isCode: true };
    case 'glob': return { icon: 'search', verb: 'Find files', target: say('pattern'), isCode: true };
    case 'grep': return { icon: 'search', verb: 'Search for', target: say('pattern'), isCode: true };
    case 'execute': return { icon: 'terminal', verb: 'Run', target: say('command'), isCode: true };
    case 'write_todos': {
      const list = (Array.isArray(given['todos']) ? given['todos'] : []) as { status?: string }[];
      return { icon: 'list', verb: 'Update the plan', target: `${list.filter((todo) => todo?.status === 'completed').length} of ${list.length} done` };
    }
    case 'task': return { icon: 'person', verb: `Delegate to ${say('subagent') || 'general-purpose'}`, target: say('description') };
    case 'load_skill': return { icon: 'book', verb: 'Load skill', target: say('name') };
    case 'ask_user': return { icon: 'person', verb: 'Ask', target: say('question') };
    case 'propose_plan': return { icon: 'list', verb: 'Propose a plan', target: say('plan') };
    case 'search_history': return { icon: 'search', verb: 'Search the history', target: say('query') };
    default: {
      const values = Object.values(given);
      const text = values.find((value): value is string => typeof value === 'string');
      return { icon: 'tool', verb: name, target: text ?? values.map((value) => JSON.stringify(value)).filter((value) => !/^[[{]/.test(value)).join(', ') };
    }
  }
}

const OUTCOMES: Record<string, string> = { failed: 'failed', denied: 'denied', interrupted: 'interrupted', retried: 'called again' };

interface Props { call: Call; versionId: string | null; runId: string | null; isPending: boolean }

/** `runId` is a run of the turn, whose events have the steps of a stored delegation. */
export const CallRow = memo<Props>((props) => <CallLine {...props} />,
  (before, next) => before.call === next.call && before.isPending === next.isPending && before.versionId === next.versionId && before.runId === next.runId);

const opened = new Set<string>();

/** Whether something is open, by its id or its text. It remains open if a stored turn replaces the turn that has run. */
function useOpened(key: string) {
  const [isOpen, setOpen] = useState(opened.has(key));
  const last = useRef(key);
  useLayoutEffect(() => {
    opened.delete(last.current); // a text that has grown since
    last.current = key;
    if (isOpen) opened.add(key);
  }, [isOpen, key]);
  return { isOpen, details: { open: isOpen, onToggle: (event: { currentTarget: HTMLDetailsElement }) => setOpen(event.currentTarget.open) } };
}

function CallLine({ call, versionId, runId, isPending }: Props) {
  const { isOpen, details } = useOpened(call.id);
  const { icon, verb, target, isCode } = summarize(call.name, call.args);
  const state = call.outcome === null ? isPending ? 'running' : 'waiting' : call.outcome;
  const answered = decisionOn(call);
  const reply = call.answer ?? (answered ? resultOf(answered) : null);
  const label = call.outcome === null ? isPending ? 'running' : answered ? stateOf(answered) : 'pending' : call.outcome === 'success' ? '✓' : OUTCOMES[call.outcome] ?? call.outcome;
  return <><details class={`call ${state}`} data-call={call.id} {...details}>
    <summary>
      <Icon name={icon} />
      <span class="verb"><Text of={verb} /></span>
      <span class={isCode ? 'target code-text' : 'target'}>{isCode ? <Text of={target.split('\n')[0]!} /> : <Prose of={target.split('\n')[0]!} />}{target.includes('\n') && ' …'}
        {reply && <q class="reply"><Prose of={reply.split('\n')[0]!} />{reply.includes('\n') && ' …'}</q>}</span>
      <span class="state">{state === 'running' && <span class="spinner" aria-hidden="true" />}{label}</span>
    </summary>
    {isOpen && <div class="opened">
      <Decision call={call} />
      <Input call={call} />
      <Steps call={call} versionId={versionId} runId={runId} isPending={isPending} />
      <Output call={call} />
    </div>}
  </details>
  {!isOpen && call.outcome === null && call.steps.length > 0 && <ol class="steps">{call.steps.map((step) => <Step step={step} versionId={versionId} isPending={isPending} />)}</ol>}</>;
}

const decisionOn = ({ id, name }: Call) => {
  const found = decisions.value.get(id);
  return found?.tool === name ? found : undefined;
};

/** Who approved a call. The approvals of earlier turns are loaded when the first call is opened. */
function Decision({ call }: { call: Call }) {
  const answered = decisionOn(call);
  useLayoutEffect(() => { if (!answered && open.value?.versions.some((version) => version.state === 'awaiting_approval')) void loadDecisions(); }, []);
  return answered ? <Outcome approval={answered} /> : null;
}

const extension = (path: unknown) => typeof path === 'string' ? path.split('/').at(-1)!.split('.').slice(1).at(-1) ?? '' : '';

function Input({ call: { name, args } }: { call: Call }) {
  if (typeof args === 'string') return <Field name="Arguments" text={args} />;
  const text = (key: string) => typeof args[key] === 'string' ? args[key] : '';
  if (name === 'write_file') return <Code language={extension(args['path'])} text={text('content')} />;
  if (name === 'write_todos' && Array.isArray(args['todos'])) return <Plan todos={args['todos'] as Todo[]} />;
  if (name === 'execute') return <Code language="bash" text={text('command')} />;
  if (name === 'edit_file') {
    return <div class="diff"><table><tbody>
      {text('old_string').split('\n').map((line) => <tr class="removed"><td class="line"><Text of={line} /></td></tr>)}
      {text('new_string').split('\n').map((line) => <tr class="added"><td class="line"><Text of={line} /></td></tr>)}
    </tbody></table></div>;
  }
  return <>{Object.entries(args).map(([key, value]) => <Field name={key} text={typeof value === 'string' ? value : readableJson(value)} />)}</>;
}

const Field = ({ name, text }: { name: string; text: string }) => <div class="field"><div class="name"><Text of={name} /></div><pre tabIndex={0}><Lines of={text} /></pre></div>;

function Output({ call }: { call: Call }) {
  const isText = call.name === 'task' && call.outcome === 'success';
  return <>
    {call.outcome !== null && (call.result || call.media.length === 0) && <div class="field result">
      <div class="name">{call.outcome === 'success' ? 'Result' : `Result (${OUTCOMES[call.outcome] ?? call.outcome})`}{call.exitCode !== null && `, exit code ${call.exitCode}`}</div>
      {isText ? <Markdown text={call.result} versionId={null} /> : <pre tabIndex={0}>{call.result ? <Lines of={call.result} /> : <span class="faint">(empty)</span>}</pre>}
    </div>}
    <MediaList media={call.media} />
  </>;
}

/** Images from the transcript; other media by their type. */
export function MediaList({ media }: { media: Call['media'] }) {
  return media.length === 0 ? null : <div class="media">{media.map(({ type, data }) => data !== null && /^image\/(png|jpeg|gif|webp)$/.test(type)
    ? <img src={`data:${type};base64,${data.replaceAll('-', '+').replaceAll('_', '/')}`} alt="Attached image" /> : <span class="chip"><Icon name="clip" /><Text of={type} /></span>)}</div>;
}

/** The steps of a subagent. Those of a stored turn are read from the events of its run. */
function Steps({ call, versionId, runId, isPending }: Props) {
  const [loaded, setLoaded] = useState<Item[] | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  if (call.name !== 'task') return null;
  const load = async () => {
    try {
      let items: Item[] = [];
      for (const run of runsOfTurn(open.value?.versions ?? [], open.value?.details.head ?? null, runId!)) {
        for await (const event of watch(run)) items = after(items, event);
      }
      setLoaded(items.find((item): item is Call => item.kind === 'call' && item.id === call.id)?.steps ?? []);
    } catch (error) { setProblem(error instanceof Error ? error.message : String(error)); }
  };
  const steps = call.steps.length > 0 ? call.steps : loaded;
  if (steps === null) return runId === null ? null : <p><button type="button" class="small" onClick={load}>Show the steps</button> {problem && <span role="alert"><Lines of={problem} /></span>}</p>;
  return <ol class="steps">{steps.length === 0 ? <li class="faint">No steps are stored.</li> : steps.map((step) => <Step step={step} versionId={versionId} isPending={isPending} />)}</ol>;
}

const Step = ({ step, versionId, isPending }: { step: Item; versionId: string | null; isPending: boolean }) =>
  <li><ItemView item={step} versionId={versionId} runId={null} isPending={isPending} /></li>;

function Thinking({ text }: { text: string }) {
  const { details } = useOpened(text);
  return <details class="thinking" {...details}><summary><Icon name="thought" />Thinking</summary><div class="thought"><Prose of={text} /></div></details>;
}

/** One item of a turn. */
export const ItemView = memo<{ item: Item; versionId: string | null; runId: string | null; isPending: boolean }>(({ item, versionId, runId, isPending }) => {
  switch (item.kind) {
    case 'call': return <CallRow call={item} versionId={versionId} runId={runId} isPending={isPending} />;
    case 'text': return <Markdown text={item.text} versionId={versionId} />;
    case 'thinking': return <Thinking text={item.text} />;
    case 'void': return <p class="void" title="A text that a failed request left behind"><Lines of={item.text} /></p>;
    default: return <p class="note"><Lines of={item.text} /></p>;
  }
}, (before, next) => before.item === next.item && before.versionId === next.versionId && before.isPending === next.isPending && before.runId === next.runId);

