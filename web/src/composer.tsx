// The composer: the prompt, its attachments, and the buttons that send and stop.

import { useLayoutEffect, useRef, useState } from 'preact/hooks';

import { Icon } from './icons';
import { enterKeys, isSending } from './preferences';
import { draft, isRunning, live, me, open, route, send, stop } from './state';
import { keep, session } from './storage';
import { count, plain, size, Text, tokens } from './text';

const growsItself = CSS.supports('field-sizing', 'content');

/** Make a field as high as its text, up to the limit of the style sheet, in browsers without `field-sizing`. Measuring it lays out the page. */
export function growing(field: HTMLTextAreaElement): void {
  if (growsItself) return;
  field.style.height = 'auto';
  field.style.height = `${field.scrollHeight + 2}px`;
}

export const hasFiles = (event: DragEvent) => event.dataTransfer?.types.includes('Files') ?? false;

interface Draft { text: string; files: File[]; lost: string[] }

/** What is written and attached in a conversation and not sent. The empty id is that of a new one. */
const drafts = new Map<string, Draft>();
const keyOf = (id: string) => `draft ${me.value!.owner} ${id}`;

/** The browser keeps the text of a draft when the page is loaded again, and the names of its files, which are lost. */
function draftOf(id: string): Draft {
  const known = drafts.get(id);
  if (known) return known;
  const [text, ...lost] = JSON.parse(session.getItem(keyOf(id)) ?? '[""]') as [string, ...string[]];
  const found = { text, files: [], lost };
  drafts.set(id, found);
  return found;
}

function setDraft(id: string, text: string, files: File[] = [], lost: string[] = []): void {
  drafts.set(id, { text, files, lost });
  if (text || files.length > 0) keep(keyOf(id), JSON.stringify([text, ...files.map(({ name }) => name), ...lost]));
  else session.removeItem(keyOf(id));
}

export function Composer({ placeholder }: { placeholder: string }) {
  const id = route.value.view === 'chat' ? route.value.id : '';
  return <Field key={id} id={id} placeholder={placeholder} />;
}

function Field({ id, placeholder }: { id: string; placeholder: string }) {
  const kept = draftOf(id);
  const field = useRef<HTMLTextAreaElement>(null);
  const chooser = useRef<HTMLInputElement>(null);
  const [files, setFiles] = useState(kept.files);
  const [isOver, setOver] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const put = useRef('');

  const onInput = () => { setDraft(id, field.current!.value, files, kept.lost); growing(field.current!); };
  useLayoutEffect(() => { growing(field.current!); if (matchMedia('(pointer: fine)').matches) field.current!.focus(); }, []);
  useLayoutEffect(() => { if (files !== draftOf(id).files) setDraft(id, field.current!.value, files, kept.lost); }, [files]);
  useLayoutEffect(() => {
    if (draft.value === null) return;
    const { text } = draft.value;
    const written = field.current!.value;
    const isPut = written === '' || written === put.current || written === text;
    field.current!.value = isPut ? text : `${text}${text.endsWith(' ') ? '' : '\n'}${written}`; // nothing that is written is lost
    put.current = text;
    onInput();
    field.current!.focus();
    draft.value = null;
  }, [draft.value]);

  // Files may be dropped anywhere on the page.
  useLayoutEffect(() => {
    const onDrag = (event: DragEvent) => {
      if (!hasFiles(event) || (event.type === 'dragleave' && event.relatedTarget !== null)) return; // still on the page
      setOver(event.type === 'dragover');
      if (event.type === 'drop') attach(event.dataTransfer!.files);
    };
    const mounted = new AbortController();
    for (const type of ['dragover', 'dragleave', 'drop'] as const) document.addEventListener(type, onDrag, mounted);
    return () => mounted.abort();
  }, []);
  // A later file of a name replaces an earlier one.
  const attach = (list: Iterable<File>) => setFiles((now) => [...new Map([...now, ...list].map((file) => [file.name, file])).values()]);
  const submit = async () => {
    const text = field.current!.value;
    if ((!text.trim() && files.length === 0) || isRunning.value || isBusy) return;
    setBusy(true);
    const prompt = text.trim() || `Look at ${count(files.length, 'attached file')}.`;
    const wasSent = await send(prompt, files);
    setBusy(false);
    if (!wasSent) return;
    const written = field.current?.value ?? draftOf(id).text;
    const rest = written.startsWith(text) ? written.slice(text.length).trimStart() : written; // the next prompt
    setDraft(id, rest);
    setFiles((now) => now.filter((file) => !files.includes(file)));
    if (field.current) {
      field.current.value = rest;
      growing(field.current);
    } else if (rest && live.value?.prompt?.text === prompt) { // the new conversation is open
      setDraft(id, '');
      draft.value = { text: rest };
    }
  };
  const onKey = (event: KeyboardEvent) => {
    if (!isSending(event)) return;
    event.preventDefault();
    void submit();
  };
  const onPaste = (event: ClipboardEvent) => {
    const pasted = [...event.clipboardData?.files ?? []];
    if (pasted.length === 0) return;
    event.preventDefault();
    const moment = new Date().toISOString().replace(/\D/g, '');
    attach(pasted.map((file, at) => file.name === 'image.png' ? new File([file], `pasted-${moment}${at || ''}.png`, { type: file.type }) : file));
  };
  const missing = kept.lost.filter((name) => !files.some((file) => file.name === name));

  return <form id="say" class={isOver ? 'over' : undefined} onSubmit={(event) => { event.preventDefault(); void submit(); }}>
    {files.length > 0 && <ul class="attached" aria-label="Attached files">{files.map((file) => <li class="chip" key={file.name}>
      <Icon name="clip" /><Text of={file.name} /> <span class="faint">{size(file.size)}</span>
      <button type="button" class="quiet small" aria-label={`Remove ${plain(file.name)}`} onClick={() => setFiles(files.filter((each) => each !== file))}><Icon name="close" /></button>
    </li>)}</ul>}
    {missing.length > 0 && <p class="note" role="status">Files are not kept when this page is loaded again. Attach them again: <Text of={missing.join(', ')} /></p>}
    <textarea id="prompt" ref={field} rows={1} dir="auto" defaultValue={kept.text} placeholder={placeholder} aria-label="Prompt" onKeyDown={onKey} onPaste={onPaste} onInput={onInput} />
    <div class="row">
      <input type="file" multiple hidden ref={chooser} aria-label="Files to attach" onChange={(event) => { attach(event.currentTarget.files ?? []); event.currentTarget.value = ''; }} />
      <button type="button" class="quiet" title="Attach files" aria-label="Attach files" onClick={() => chooser.current!.click()}><Icon name="clip" /></button>
      <Context />
      <span class="faint hint">{enterKeys()[0]} sends, {enterKeys()[1]} starts a new line</span>
      {isRunning.value ? <button type="button" id="stop" class="main round" onClick={stop} title="Stop (s)" aria-label="Stop"><Icon name="stop" /></button>
        : <button type="submit" class="main round" disabled={isBusy} title="Send" aria-label="Send"><Icon name="send" /></button>}
    </div>
  </form>;
}

/** How full the context of the model is after the last response. Without a known context window, only the tokens. */
function Context() {
  const size = open.value?.details.context;
  if (!size) return null;
  const exact = size.tokens.toLocaleString('en');
  if (size.window === null) return <span class="faint context" title={`The last request and its response had ${exact} tokens. The context window of the model is unknown.`}>{tokens(size.tokens)} tokens</span>;
  const share = Math.round(size.tokens / size.window * 100);
  return <span class="faint context" title={`${exact} of ${size.window.toLocaleString('en')} tokens: the last request and its response`}>
    <meter min={0} max={size.window} high={size.window * 0.8} optimum={0} value={size.tokens} aria-label="Context in use" />{share} % of context</span>;
}
