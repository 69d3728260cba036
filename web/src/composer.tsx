// The composer: the prompt, its attachments, and the buttons that send and stop.

import { useEffect, useRef, useState } from 'preact/hooks';

import { Icon } from './icons';
import { draft, live, open, send, stop } from './state';
import { count, plain, size, Text } from './text';

/** Make a field as high as its text, up to the limit of the style sheet. */
export function growing(field: HTMLTextAreaElement): void {
  field.style.height = 'auto';
  field.style.height = `${field.scrollHeight + 2}px`;
}

export function Composer({ placeholder }: { placeholder: string }) {
  const field = useRef<HTMLTextAreaElement>(null);
  const chooser = useRef<HTMLInputElement>(null);
  const [files, setFiles] = useState<File[]>([]);
  const [isOver, setOver] = useState(false);
  const [isSending, setSending] = useState(false);
  const isRunning = live.value?.isRunning ?? false;
  const id = open.value?.details.id;

  useEffect(() => { if (matchMedia('(pointer: fine)').matches) field.current!.focus(); }, [id]);
  useEffect(() => {
    if (draft.value === null) return;
    field.current!.value = draft.value.text;
    growing(field.current!);
    field.current!.focus();
    draft.value = null;
  }, [draft.value]);

  const attach = (list: Iterable<File>) => setFiles((now) => {
    const added = [...list];
    return [...now.filter((file) => !added.some((each) => each.name === file.name)), ...added]; // a later file of a name replaces an earlier one
  });
  const submit = async () => {
    const prompt = field.current!.value.trim();
    if ((!prompt && files.length === 0) || isRunning || isSending) return;
    setSending(true);
    const wasSent = await send(prompt || `Look at ${count(files.length, 'attached file')}.`, files);
    setSending(false);
    if (!wasSent) return;
    setFiles([]);
    if (field.current) { field.current.value = ''; growing(field.current); }
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return; // the Enter that ends a composition chooses a character
    event.preventDefault();
    void submit();
  };
  const onPaste = (event: ClipboardEvent) => {
    const pasted = [...event.clipboardData?.files ?? []];
    if (pasted.length === 0) return;
    event.preventDefault();
    const moment = new Date().toISOString().replace(/\D/g, '').slice(0, 14);
    attach(pasted.map((file) => file.name === 'image.png' ? new File([file], `pasted-${moment}.png`, { type: file.type }) : file));
  };
  const onDrop = (event: DragEvent) => { event.preventDefault(); setOver(false); attach(event.dataTransfer?.files ?? []); };
  const hasFiles = (event: DragEvent) => event.dataTransfer?.types.includes('Files') ?? false;

  return <form id="say" class={isOver ? 'over' : undefined} onSubmit={(event) => { event.preventDefault(); void submit(); }}
    onDragOver={(event) => { if (hasFiles(event)) { event.preventDefault(); setOver(true); } }} onDragLeave={() => setOver(false)} onDrop={onDrop}>
    {files.length > 0 && <ul class="attached" aria-label="Attached files">{files.map((file) => <li class="chip" key={file.name}>
      <Icon name="clip" /><Text of={file.name} /> <span class="faint">{size(file.size)}</span>
      <button type="button" class="quiet small" aria-label={`Remove ${plain(file.name)}`} onClick={() => setFiles(files.filter((each) => each !== file))}><Icon name="close" /></button>
    </li>)}</ul>}
    <textarea id="prompt" ref={field} rows={1} placeholder={placeholder} aria-label="Prompt" onKeyDown={onKey} onPaste={onPaste} onInput={(event) => growing(event.currentTarget)} />
    <div class="row">
      <input type="file" multiple hidden ref={chooser} aria-label="Files to attach" onChange={(event) => { attach(event.currentTarget.files ?? []); event.currentTarget.value = ''; }} />
      <button type="button" class="quiet" title="Attach files" aria-label="Attach files" onClick={() => chooser.current!.click()}><Icon name="clip" /></button>
      <span class="faint hint">Enter sends, Shift+Enter starts a new line</span>
      {isRunning ? <button type="button" id="stop" class="main round" onClick={stop} title="Stop (s)" aria-label="Stop"><Icon name="stop" /></button>
        : <button type="submit" class="main round" disabled={isSending} title="Send" aria-label="Send"><Icon name="send" /></button>}
    </div>
  </form>;
}
