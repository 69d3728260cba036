// What the browser keeps. Where it refuses, such as with all cookies blocked, values last until the page is left.

interface Kept { getItem: (name: string) => string | null; setItem: (name: string, value: string) => void; removeItem: (name: string) => void; clear: () => void }

function find(name: 'localStorage' | 'sessionStorage'): Kept {
  try { return window[name]; } catch { /* the browser refuses */ }
  const kept = new Map<string, string>();
  return { getItem: (key) => kept.get(key) ?? null, setItem: (key, value) => { kept.set(key, value); }, removeItem: (key) => { kept.delete(key); }, clear: () => kept.clear() };
}

/** Of this browser. */
export const local = find('localStorage');
/** Of this tab. */
export const session = find('sessionStorage');

/** Keep a text in this tab, if there is space. The server knows what has to be known. */
export function keep(name: string, text: string): void {
  try { session.setItem(name, text); } catch { session.removeItem(name); }
}
