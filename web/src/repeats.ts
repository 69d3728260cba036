// Calls that a person has approved together with another one, until the tab is closed.

import { signal } from '@preact/signals';

import { keep, session } from './storage';
import type { Approval, Repeat } from './types';

/** Calls of a conversation that this page approves; `says` names them. */
export interface Approved { conversation: string; key: string; says: string }

const stored = session.getItem('approved');

export const approved = signal<Approved[]>(stored === null ? [] : JSON.parse(stored) as Approved[]);

function store(list: Approved[]): void {
  approved.value = list;
  keep('approved', JSON.stringify(list));
}

const isSame = (each: Approved, conversation: string, key: string) => each.conversation === conversation && each.key === key;

/** Return the calls that would be approved together with this one, in words; null if each needs a decision of its own. */
export function namesOfRepeat({ tool, args, repeat, decisions }: Approval): string | null {
  if (repeat === null || !decisions.includes('approve')) return null;
  if (repeat.kind === 'tool') return tool;
  return repeat.kind === 'command' ? `${tool}: ${String(args['command'])}` : `${tool}, this very call`;
}

export function approveLater(approval: Approval, { key }: Repeat): void {
  const { conversation_id: conversation } = approval;
  if (!approved.value.some((each) => isSame(each, conversation, key))) store([...approved.value, { conversation, key, says: namesOfRepeat(approval)! }]);
}

export const askAgain = (gone: Approved) => store(approved.value.filter((each) => each !== gone));

export const isApproved = ({ conversation_id, repeat, decisions }: Approval) =>
  repeat !== null && decisions.includes('approve') && approved.value.some((each) => isSame(each, conversation_id, repeat.key));
