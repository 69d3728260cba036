// The colors: those of the system, unless the person chooses.

import { signal } from '@preact/signals';

const THEMES = ['system', 'light', 'dark'] as const;
const stored = localStorage.getItem('theme') as (typeof THEMES)[number] | null;

export const theme = signal<(typeof THEMES)[number]>(stored && THEMES.includes(stored) ? stored : 'system');

export function showTheme(): void {
  document.documentElement.dataset['theme'] = theme.value;
}

export function nextTheme(): void {
  theme.value = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length]!;
  localStorage.setItem('theme', theme.value);
  showTheme();
}
