// How a call was answered: by whom, when, and why, or with which result.

import { Icon, type IconName } from './icons';
import { ago, Lines, moment, Text } from './text';
import { inOneLine } from './transcript';
import type { Approval } from './types';

const OUTCOMES: Record<string, [IconName, string]> = {
  approved: ['check', 'Approved'], edited: ['edit', 'Approved with other arguments'], denied: ['close', 'Denied'], responded: ['check', 'Answered'],
  expired: ['close', 'Expired'], superseded: ['retry', 'Asked again in a later version'], gone: ['close', 'No longer pending'],
};

/** The state of an answered call in its line of the dialogue, before the turn resumes. */
export const stateOf = ({ status }: Approval) => ({ edited: 'approved', responded: 'answered' } as Record<string, string>)[status] ?? status;

/** The result that a person gave to a call, such as the answer to a question; null after other decisions. */
export function resultOf({ status, response, view }: Approval): string | null {
  if (status !== 'responded') return null;
  if (typeof response !== 'object' || response === null || view.preview?.kind !== 'question') return inOneLine(response);
  return Object.entries(response).map(([name, value]) => `${name}: ${inOneLine(value)}`).join(', ');
}

export function Outcome({ approval }: { approval: Approval }) {
  const { status, view, decided_by, decided_at, reason } = approval;
  const says = resultOf(approval) ?? reason;
  const [icon, verb] = OUTCOMES[status] ?? ['check', status];
  const isDeclined = status === 'denied' && view.preview?.kind === 'question';
  return <div class="outcome" data-status={status}><Icon name={icon} /><div>
    <b>{isDeclined ? 'Declined' : verb}</b>{decided_by !== null && <> by <Text of={decided_by} /></>}{decided_at !== null && <>, <time dateTime={decided_at} title={moment(decided_at)}>{ago(decided_at)}</time></>}
    {says && <>: <Quote of={says} /></>}</div></div>;
}

/** How many characters of a text are shown until the person opens it. */
const MAX_SHOWN = 60;

/** A text in one line, so that an answered card keeps its size. A longer one can be opened. */
function Quote({ of }: { of: string }) {
  const start = [...of.split('\n', 1)[0]!].slice(0, MAX_SHOWN).join('');
  if (start === of) return <q><Text of={of} /></q>;
  return <details class="quote"><summary><q><Text of={start} /> …</q></summary><pre class="text" tabIndex={0}><Lines of={of} /></pre></details>;
}
