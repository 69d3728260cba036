// How a call was answered: by whom, when, and why.

import { Icon, type IconName } from './icons';
import { ago, moment, Text } from './text';
import type { Approval } from './types';

const OUTCOMES: Record<string, [IconName, string]> = {
  approved: ['check', 'Approved'], edited: ['edit', 'Approved with other arguments'], denied: ['close', 'Denied'], responded: ['check', 'Answered'],
  expired: ['close', 'Expired'], superseded: ['retry', 'Asked again in a later version'], gone: ['close', 'No longer pending'],
};

/** The state of an answered call in its line of the dialogue, before the turn resumes. */
export const stateOf = ({ status }: Approval) => ({ edited: 'approved', responded: 'answered' } as Record<string, string>)[status] ?? status;

/** `content` is the answer to a question, which only the page that sent it knows. */
export function Outcome({ approval: { status, view, decided_by, decided_at, reason }, content = null }: { approval: Approval; content?: string | null }) {
  const says = content ?? reason;
  const [icon, verb] = OUTCOMES[status] ?? ['check', status];
  const isDeclined = status === 'denied' && view.preview?.kind === 'question';
  return <span class="outcome" data-status={status}><Icon name={icon} /><span>
    <b>{isDeclined ? 'Declined' : verb}</b>{decided_by !== null && <> by <Text of={decided_by} /></>}{decided_at !== null && <>, <time dateTime={decided_at} title={moment(decided_at)}>{ago(decided_at)}</time></>}
    {says && <>: <q><Text of={says} /></q></>}</span></span>;
}
