// The settings: colors, keys, notifications, and the account.

import { signal } from '@preact/signals';
import { useLayoutEffect, useState } from 'preact/hooks';

import { dialog } from './dialogs';
import { Icon } from './icons';
import { loadMemory, showMemory } from './memory';
import { allowNotifications, enter, notifications, type Preference, theme } from './preferences';
import { useKey } from './server';
import { agent, may, me } from './state';
import { Text } from './text';

const areRefused = signal(false);

export const showSettings = () => {
  areRefused.value = false;
  dialog.value = { title: 'Settings', content: <Settings /> };
};

function Choices<T extends string>({ title, of, labels }: { title: string; of: Preference<T>; labels: Record<T, string> }) {
  return <fieldset><legend>{title}</legend>{of.values.map((value) => <label class="option">
    <input type="radio" name={title} value={value} checked={value === of.value.value} onChange={() => of.choose(value)} />{labels[value]}</label>)}</fieldset>;
}

function Settings() {
  const [hasMemory, setMemory] = useState(false);
  useLayoutEffect(() => { if (may('run') && agent.value) loadMemory(agent.value).then((found) => setMemory(found.has_memory), () => {}); }, []);
  const areOn = notifications.value.value === 'on';
  const toggle = async (event: Event) => {
    const field = event.currentTarget as HTMLInputElement;
    if (field.checked) areRefused.value = !await allowNotifications();
    else notifications.choose('off');
    field.checked = notifications.value.value === 'on';
  };
  return <div class="settings">
    <Choices title="Colors" of={theme} labels={{ system: 'Those of the system', light: 'Light', dark: 'Dark' }} />
    <Choices title="In a prompt" of={enter} labels={{ send: 'Enter sends, Shift+Enter starts a new line', line: 'Enter starts a new line, Ctrl+Enter sends' }} />
    <fieldset><legend>Notifications</legend>
      <label class="option"><input type="checkbox" checked={areOn} onChange={toggle} />When a call needs your decision or a turn ends, and this page is in the background</label>
      {areRefused.value && <p class="warn" role="alert">This browser refuses notifications of this page. Allow them in its settings, and open the page by HTTPS. Browsers of phones may have none.</p>}
    </fieldset>
    {hasMemory && <fieldset><legend>Memory across conversations</legend>
      <button type="button" id="to-memory" onClick={showMemory}><Icon name="book" />What <Text of={agent.value} /> remembers</button>
    </fieldset>}
    <fieldset><legend>Account</legend>
      <p><Icon name="person" /> <Text of={me.value!.owner} /> <span class="faint">{me.value!.scopes.join(', ')}</span></p>
      {me.value!.has_key && <button type="button" id="sign-out" onClick={() => { useKey(''); location.assign(location.pathname); }}><Icon name="out" />Sign out</button>}
      {me.value!.logout_url !== null && <a class="button" id="sign-out" href={me.value!.logout_url} onClick={() => useKey('')}><Icon name="out" />Sign out</a>}
    </fieldset>
  </div>;
}
