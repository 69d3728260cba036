// The plan of an agent.

import { Icon } from './icons';
import { plain, Prose } from './text';
import type { Todo } from './types';

const STATES: Record<string, string> = { pending: 'to do', in_progress: 'at work', completed: 'done' };

export const Plan = ({ todos }: { todos: Todo[] }) => todos.length === 0 ? <p class="faint">No plan.</p>
  : <ul class="todos">{todos.map((todo) => <li class={todo.status}><span class="mark" role="img" aria-label={STATES[todo.status] ?? plain(String(todo.status))}>{todo.status === 'completed' && <Icon name="check" />}</span><span class="what"><Prose of={String(todo.content)} /></span></li>)}</ul>;
