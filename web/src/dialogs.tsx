// Dialogs, and the notice of what was just done.

import { signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';

import { Icon } from './icons';
import { Code, imageType } from './markdown';
import { enterKeys } from './preferences';
import { getBlob, urlPath } from './server';
import { fail, toast } from './state';
import { Prose, readText, Text } from './text';
import type { FileInfo } from './types';

/** The open dialog, which Escape closes. */
export const dialog = signal<{ title: ComponentChildren; content: ComponentChildren } | null>(null);

/** Close the dialog: the focus returns to where it was before. */
export const close = () => {
  document.querySelector<HTMLDialogElement>('dialog[open]')?.close();
  dialog.value = null;
};

export function Dialog() {
  const root = useRef<HTMLDialogElement>(null);
  const shown = dialog.value;
  // Before the next paint, because a key can be pressed as soon as the dialog is seen.
  useLayoutEffect(() => { if (shown) root.current!.showModal(); }, [shown]);
  if (!shown) return null;
  return <dialog ref={root} aria-labelledby="dialog-title" onClose={() => { if (!root.current?.open) dialog.value = null; }} onClick={(event) => { if (event.target === root.current) close(); }}>
    <header><h2 id="dialog-title">{shown.title}</h2><button type="button" class="quiet" aria-label="Close" onClick={close}><Icon name="close" /></button></header>
    <div class="content">{shown.content}</div>
  </dialog>;
}

/** Ask a person who may regret what comes. */
export function confirm(title: string, text: ComponentChildren, answer: string, act: () => void): void {
  dialog.value = { title, content: <form onSubmit={(event) => { event.preventDefault(); close(); act(); }}>
    <p>{text}</p>
    <div class="acts"><button type="submit" class="main danger">{answer}</button><button type="button" class="quiet" onClick={close}>Cancel</button></div>
  </form> };
}

/** Ask for one line. */
export function askLine(title: string, label: string, value: string, answer: string, act: (text: string) => void): void {
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    close();
    act(String(new FormData(event.currentTarget as HTMLFormElement).get('text')).trim());
  };
  dialog.value = { title, content: <form onSubmit={submit}>
    <label>{label} <input name="text" required pattern=".*\S.*" title="Not only spaces" maxLength={200} defaultValue={value} autocomplete="off" /></label>
    <div class="acts"><button type="submit" class="main">{answer}</button><button type="button" class="quiet" onClick={close}>Cancel</button></div>
  </form> };
}

const keys = (): [string, string][] => [
  ['/', 'write a prompt'], [enterKeys()[0], 'send'], [enterKeys()[1], 'a new line'], ['c', 'a new conversation'], ['v', 'versions, or back to the dialogue'],
  ['a', 'go to the pending calls'], ['j, k', 'next, previous'], ['y, n, e, r', 'approve, deny, edit, respond to the focused call'], ['Shift+Y', 'approve it and calls like it in this conversation'], ['s', 'stop the run'],
  [',', 'settings'], ['?', 'these keys'], ['Esc', 'leave the prompt, in which these keys are text'],
];

export const showKeys = () => {
  dialog.value = { title: 'Keys', content: <dl class="keys">{keys().map(([key, does]) => <div><dt><kbd>{key}</kbd></dt><dd>{does}</dd></div>)}</dl> };
};

/** The limit for files that the page shows. */
const MAX_BYTES = 1_000_000;

export const showFile = (version: string, file: FileInfo) => {
  dialog.value = { title: <Text of={file.path} />, content: file.size_bytes > MAX_BYTES ? <p>More than 1 MB: download the files to read it.</p>
    : <Contents version={version} path={file.path} /> };
};

function Contents({ version, path }: { version: string; path: string }) {
  const [blob, setBlob] = useState<Blob | null>(null);
  const [text, setText] = useState<string | null>(null);
  const type = imageType(path);
  useLayoutEffect(() => {
    let isShown = true;
    const load = async () => {
      const found = await getBlob(`versions/${version}/files${urlPath(path)}`);
      if (!type) setText(readText(await found.arrayBuffer()));
      setBlob(new Blob([found], { type }));
    };
    load().catch((error: unknown) => { if (isShown) { close(); fail(error); } });
    return () => { isShown = false; };
  }, []);
  if (blob === null) return <p class="faint" role="status">Loading …</p>;
  if (type) return <Picture blob={blob} />;
  return text === null ? <p>Not a text in UTF-8.</p> : <Code language={path.split('/').at(-1)!.split('.').slice(1).at(-1) ?? ''} text={text} />;
}

function Picture({ blob }: { blob: Blob }) {
  const image = useRef<HTMLImageElement>(null);
  const [isBroken, setBroken] = useState(false);
  useLayoutEffect(() => {
    const url = image.current!.src = URL.createObjectURL(blob);
    return () => URL.revokeObjectURL(url);
  }, [blob]);
  return isBroken ? <p>Not an image that this browser can show.</p> : <img ref={image} alt="The file as an image" onError={() => setBroken(true)} />;
}

export function Toast() {
  const shown = toast.value;
  useLayoutEffect(() => {
    if (!shown) return undefined;
    const timer = setTimeout(() => { if (toast.value === shown) toast.value = null; }, 12_000);
    return () => clearTimeout(timer);
  }, [shown]);
  return <div id="toast" role="status">{shown && <div class="toast"><span><Prose of={shown.text} /></span>
    {shown.undo && <button type="button" onClick={() => { toast.value = null; void shown.undo!(); }}><Icon name="undo" />Undo</button>}
    <button type="button" class="quiet" aria-label="Dismiss" onClick={() => { toast.value = null; }}><Icon name="close" /></button></div>}</div>;
}
