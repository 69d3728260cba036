// What a person chooses for this browser, and notifications.

import { type Signal, signal } from '@preact/signals';

import { local } from './storage';

/** A preference that the browser keeps. The first value is the default. */
export interface Preference<T extends string> { value: Signal<T>; values: readonly T[]; choose: (value: T) => void }

function preference<T extends string>(name: string, values: readonly T[]): Preference<T> {
  const stored = local.getItem(name) as T | null;
  const value = signal(stored !== null && values.includes(stored) ? stored : values[0]!);
  return { value, values, choose: (next) => { value.value = next; local.setItem(name, next); } };
}

/** The colors: those of the system, unless the person chooses. */
export const theme = preference('theme', ['system', 'light', 'dark']);
/** What Enter does in a prompt. */
export const enter = preference('enter', ['send', 'line']);
export const notifications = preference('notifications', ['off', 'on']);

/** Return whether a key is part of a composition, in which Enter chooses a character and Escape discards it. Safari ends it before the key. */
export const isComposing = (event: KeyboardEvent) => event.isComposing || event.keyCode === 229;

/** Return whether a key sends the prompt. */
export const isSending = (event: KeyboardEvent) => enter.value.value === 'send' ? event.key === 'Enter' && !event.shiftKey && !isComposing(event) : isCtrlEnter(event);

/** Return whether a key submits a form whose fields have lines. */
export const isCtrlEnter = (event: KeyboardEvent) => event.key === 'Enter' && (event.ctrlKey || event.metaKey) && !isComposing(event);

/** The keys that send a prompt and start a line, in words. */
export const enterKeys = () => enter.value.value === 'send' ? ['Enter', 'Shift+Enter'] as const : ['Ctrl+Enter', 'Enter'] as const;

/** Switch notifications on, show one, and return whether the browser allows that. Browsers of phones need an installed page. */
export async function allowNotifications(): Promise<boolean> {
  if (!('Notification' in window) || await Notification.requestPermission() !== 'granted') return false;
  try { new Notification('Notifications are on.'); } catch { return false; }
  notifications.choose('on');
  return true;
}

/** Tell a person who looks at something else. A click opens the address. */
export function notify(title: string, body: string, address: string): void {
  if (notifications.value.value === 'off' || document.visibilityState === 'visible') return;
  const shown = new Notification(title, { body, tag: address });
  shown.onclick = () => { window.focus(); location.hash = address; shown.close(); };
}
