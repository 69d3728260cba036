// What the chosen agent remembers: its files, who wrote them, and undo.

import { useLayoutEffect, useState } from 'preact/hooks';

import { close, dialog } from './dialogs';
import { Icon } from './icons';
import { get, post } from './server';
import { agent, guarded, titleOf } from './state';
import { ago, Lines, moment, Text } from './text';
import type { Memory, Revision } from './types';

const pathOf = (name: string) => `agents/${encodeURIComponent(name)}/memory`;
const pathOfFile = (name: string, file: string) => `${pathOf(name)}/${file.split('/').map(encodeURIComponent).join('/')}`;

export const loadMemory = (name: string) => get<Memory>(pathOf(name));

export const showMemory = guarded(async () => {
  const name = agent.value;
  const { items } = await loadMemory(name);
  dialog.value = { title: <>What <Text of={name} /> remembers</>, content: items.length === 0
    ? <p>Nothing yet. The agent writes down what it should know in later conversations.</p>
    : <div class="memory">{items.map((item) => <File key={item.file} name={name} latest={item} />)}</div> };
});

/** A file with its content, and its revisions, newest first. */
function File({ name, latest }: { name: string; latest: Revision }) {
  const [revisions, setRevisions] = useState<Revision[] | null>(null);
  const [isOpen, setOpen] = useState(false);
  const path = pathOfFile(name, latest.file);
  const load = guarded(async () => { setRevisions((await get<{ items: Revision[] }>(path)).items); });
  useLayoutEffect(() => { if (isOpen) void load(); }, [isOpen]);
  const restore = guarded(async (number: number) => {
    await post(path, { number });
    await load();
  });
  const shown = revisions?.[0] ?? latest;
  return <section>
    <h3><Icon name="file" /><Text of={latest.file} /></h3>
    {shown.is_deleted ? <p class="faint">The file is deleted.</p> : <pre tabIndex={0}><Lines of={shown.content} /></pre>}
    <p class="faint"><Writer revision={shown} /></p>
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Revisions</summary>
      {revisions === null ? <p class="faint" role="status">Loading …</p> : <ol>
        {revisions.map((each, at) => <li key={each.number}>
          <span class="faint">{each.number}. <Writer revision={each} /></span>
          {at > 0 && <button type="button" class="small" onClick={() => restore(each.number)}><Icon name="undo" />Restore</button>}
          {each.is_deleted ? <p class="faint">Deleted</p> : at > 0 && <pre tabIndex={0}><Lines of={each.content} /></pre>}
        </li>)}
        {!shown.is_deleted && <li><span class="faint">Before the first</span> <button type="button" class="small" onClick={() => restore(0)}><Icon name="trash" />Delete the file</button></li>}
      </ol>}
    </details>
  </section>;
}

function Writer({ revision: { by, conversation_id, written_at } }: { revision: Revision }) {
  const time = <time dateTime={written_at} title={moment(written_at)}>{ago(written_at)}</time>;
  if (conversation_id === null) return <>restored by <Text of={by ?? 'the owner'} />, {time}</>;
  return <>written in <a href={`#/c/${conversation_id}`} onClick={close}><Text of={titleOf(conversation_id) ?? 'a conversation'} /></a>, {time}</>;
}
