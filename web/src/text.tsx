// Text from people, models and tools. Text is never parsed as HTML, and invisible characters in it become visible.

import type { ComponentChildren } from 'preact';

import type { Escaped } from './types';
import { IN_LINE, IN_LINES, IN_PROSE } from './unseen.js';

/** Split a text at invisible characters, like `escape` of the server. */
export const split = (text: string, unseen: RegExp): Escaped => text.split(unseen).map((piece, at) => at % 2 ? written(piece) : piece);

/** Escapes as Python writes them: `\n`, `\x00`, `\u202e`, `\U000e0041`. */
function written(character: string): string {
  const code = character.codePointAt(0)!;
  const [letter, width] = code < 0x100 ? ['x', 2] as const : code < 0x10000 ? ['u', 4] as const : ['U', 8] as const;
  return ({ '\t': '\\t', '\n': '\\n', '\r': '\\r' } as Record<string, string>)[character] ?? `\\${letter}${code.toString(16).padStart(width, '0')}`;
}

/** Text that is already escaped: every second piece is the escape of an invisible character. */
export function Pieces({ of }: { of: Escaped }) {
  if (of.length === 1) return <>{of[0]}</>;
  const made: ComponentChildren[] = [];
  let escapes = '';
  of.forEach((piece, at) => {
    if (at % 2) escapes += piece;
    else if (piece !== '' || at === of.length - 1) {
      if (escapes !== '') made.push(<span class="escape" title="Invisible character">{escapes}</span>);
      if (piece !== '') made.push(piece);
      escapes = '';
    }
  });
  return <>{made}</>;
}

/** Text of a single line. */
export const Text = ({ of }: { of: string }) => <Pieces of={split(of, IN_LINE)} />;

/** Text of one or more lines. */
export const Lines = ({ of }: { of: string }) => <Pieces of={split(of, IN_LINES)} />;

/** What people and models write to each other: joiners in emoji and in words, and unusual spaces, are shown as they are meant. */
export const Prose = ({ of }: { of: string }) => <Pieces of={split(of, IN_PROSE)} />;

/** Prose as a string, for attributes. */
export const plain = (text: string) => split(text, IN_PROSE).join('');

/** Text of one or more lines as a string, for fields and for JSON. */
export const plainLines = (text: string) => split(text, IN_LINES).join('');

export const hasInvisible = (text: string) => IN_LINES.test(text);

/** JSON with invisible characters as JSON escapes. */
export const readableJson = (value: unknown) => (JSON.stringify(value, null, 2) ?? 'null').split(IN_LINES).map((piece, at) => at % 2
  ? piece.split('').map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`).join('') : piece).join('');

export const count = (number: number, one: string, many = `${one}s`) => `${number.toLocaleString('en')} ${number === 1 ? one : many}`;

export const moment = (text: string) => new Date(text).toLocaleString([], { dateStyle: 'medium', timeStyle: 'short' });

/** A duration until now, such as `5 min ago`. */
export function ago(text: string): string {
  const seconds = (Date.now() - Date.parse(text)) / 1000;
  if (seconds < 60) return 'just now';
  const [unit, size] = seconds < 3600 ? ['minute', 60] as const : seconds < 86_400 ? ['hour', 3600] as const : ['day', 86_400] as const;
  return new Intl.RelativeTimeFormat('en', { numeric: 'auto' }).format(-Math.round(seconds / size), unit);
}

export const size = (bytes: number) => bytes < 1000 ? `${bytes} B` : bytes < 1e6 ? `${(bytes / 1000).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;

export const tokens = (number: number) => number < 1000 ? String(number) : number < 1e6 ? `${(number / 1000).toFixed(1)}k` : `${(number / 1e6).toFixed(1)}M`;

/** Return null unless the bytes are valid UTF-8. A byte order mark is a character like any other. */
export function readText(bytes: ArrayBuffer): string | null {
  try { return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes); } catch { return null; }
}
