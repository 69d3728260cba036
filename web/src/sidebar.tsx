// The list of conversations.

import { useLayoutEffect, useRef } from 'preact/hooks';

import { askLine, confirm, showKeys } from './dialogs';
import { Icon } from './icons';
import { isComposing } from './preferences';
import { showSettings } from './settings';
import { conversations, cursor, listConversations, may, me, pendingCount, removeConversation, rename, route, search } from './state';
import { plain, Prose, Text } from './text';
import type { Summary } from './types';

export function Sidebar({ close }: { close: () => void }) {
  const timer = useRef(0);
  const onSearch = (event: Event) => {
    search.value = (event.currentTarget as HTMLInputElement).value;
    clearTimeout(timer.current);
    timer.current = setTimeout(() => void listConversations(), 200);
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.key !== 'Enter' || isComposing(event)) return;
    clearTimeout(timer.current);
    void listConversations();
  };
  useLayoutEffect(() => () => clearTimeout(timer.current), []);
  const current = route.value.view === 'chat' || route.value.view === 'versions' ? route.value.id : null;
  return <nav id="list" aria-label="Conversations">
    <a class="brand" href="#/" onClick={close}><img src="static/icon.svg" alt="" width={20} height={20} />pydantic-deep</a>
    <a class="button main" id="new" href="#/" onClick={close}><Icon name="plus" />New conversation</a>
    {may('approve') && <a class={route.value.view === 'inbox' ? 'entry current' : 'entry'} id="to-inbox" href="#/a" onClick={close}><Icon name="inbox" />Approvals
      {pendingCount.value > 0 && <span id="waiting" class="count">{pendingCount.value}</span>}</a>}
    <div class="search"><Icon name="search" /><input type="search" placeholder="Search" aria-label="Search conversations" maxLength={200} value={search.value} onInput={onSearch} onKeyDown={onKey} /></div>
    <ul id="conversations">{conversations.value.map((each) => <Entry key={each.id} conversation={each} isCurrent={each.id === current} close={close} />)}</ul>
    {conversations.value.length === 0 && <p class="faint nothing">{!search.value ? 'Your conversations appear here.' : cursor.value === null ? 'No conversation has this text.' : 'Not in your latest conversations.'}</p>}
    {cursor.value !== null && <button type="button" class="quiet" id="more" onClick={() => listConversations(true)}>Older conversations</button>}
    <footer>
      <span class="faint owner"><Icon name="person" /><Text of={me.value?.owner ?? ''} /></span>
      <button type="button" class="quiet" title="Settings (,)" aria-label="Settings" id="settings" onClick={showSettings}><Icon name="sliders" /></button>
      <button type="button" class="quiet" title="Keys (?)" aria-label="Keys" id="keys" onClick={showKeys}>?</button>
    </footer>
  </nav>;
}

function Entry({ conversation: { id, name, agent }, isCurrent, close }: { conversation: Summary; isCurrent: boolean; close: () => void }) {
  const title = name ?? 'Untitled';
  return <li class={isCurrent ? 'current' : undefined}>
    <a href={`#/c/${id}`} data-conversation={id} aria-current={isCurrent ? 'page' : undefined} onClick={close}><span class="name"><Prose of={title} /></span><span class="faint"><Text of={agent} /></span></a>
    <span class="entry-acts">
      <button type="button" class="quiet small" aria-label={`Rename ${plain(title)}`} title="Rename" onClick={() => askLine('Rename the conversation', 'Name', plain(title), 'Rename', (text) => void rename(id, text))}><Icon name="edit" /></button>
      <button type="button" class="quiet small" aria-label={`Delete ${plain(title)}`} title="Delete" onClick={() => confirm('Delete the conversation?', <>“<Text of={title} />” is deleted with all its versions and files. This cannot be undone.</>, 'Delete', () => void removeConversation(id))}><Icon name="trash" /></button>
    </span>
  </li>;
}

