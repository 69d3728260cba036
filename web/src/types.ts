// The JSON of the server, as far as the page reads it. The reference of the API describes each field.

/** Without a key, the login of the host application says who the owner is. */
export interface Me { owner: string; scopes: string[]; has_key: boolean; logout_url: string | null }
export interface Agent { name: string; description: string | null; model: string | null; examples: string[] }
export interface Skill { name: string; description: string }
export interface Usage { input_tokens: number; output_tokens: number; cache_read_tokens: number; requests: number; tool_calls: number }
export interface Revision {
  file: string; number: number; content: string; is_deleted: boolean; conversation_id: string | null; by: string | null; written_at: string;
}
export interface Memory { has_memory: boolean; items: Revision[] }
export interface Todo { content: string; status: 'pending' | 'in_progress' | 'completed' }
export interface FileInfo { path: string; size_bytes: number }
export interface Summary { id: string; agent: string; name: string | null; head: string | null; created_at: string }
export interface Page<T> { items: T[]; cursor: string | null }

/** A text in pieces: those at odd positions are escapes of invisible characters. */
export type Escaped = string[];

export interface Line { kind: 'same' | 'added' | 'removed'; before: number | null; after: number | null; text: Escaped; is_ended: boolean }
export interface Diff { path: Escaped; kind: string; hunks: { header: string; lines: Line[] }[]; hidden_lines: number; added: number; removed: number }
export interface FileDiff { path: string; shown_path: Escaped; kind: string; view: Diff | null; size_before: number | null; size_after: number | null }
export interface Argument { name: Escaped; kind: 'text' | 'json'; value: Escaped; in_preview: boolean }
export interface QuestionField { name: Escaped; label: Escaped; hint: Escaped; kind: 'text' | 'integer' | 'number' | 'flag' | 'choice' | 'choices'; choices: Escaped[]; is_required: boolean }
export interface Preview { kind: 'diff' | 'command' | 'call' | 'question'; notice: Escaped; text: Escaped; choices: Escaped[]; fields: QuestionField[]; link: Escaped; diff: Diff | null }
export interface View { path: Escaped[]; tool: Escaped; arguments: Argument[]; preview: Preview | null; escapes: number; digest: string }
export type Args = Record<string, unknown>;
/** The later calls of a conversation that can be approved together with one: those with the same key. */
export interface Repeat { kind: 'tool' | 'command' | 'call'; key: string }
export interface Approval {
  id: string; pending_id: string; version_id: string; conversation_id: string; agent: string; tool: string; args: Args; view: View;
  decisions: string[]; repeat: Repeat | null; status: string; decided_by: string | null; reason: string | null; response: unknown; decided_at: string | null;
  created_at: string; expires_at: string | null;
}

export interface Conversation extends Summary {
  state: string | null; branch: string | null; running: string[]; suspended: string[]; todos: Todo[]; usage: Usage;
  context: { tokens: number; window: number | null } | null;
}
export type Kind = 'root' | 'step' | 'turn' | 'pause' | 'edit' | 'merge';
export interface Version {
  id: string; parent_id: string | null; merged_from: string | null; conversation_id: string; agent: string; kind: Kind; state: string;
  branch: string; prompt: string | null; run_id: string | null; message_count: number; model: string | null; usage: Usage;
  files_changed: string[] | null; protected_changes: { path: string; change: string }[]; is_head: boolean; created_at: string;
}
export interface StoredRequest { number: number; model: string; input_tokens: number; output_tokens: number; cost: string | null; seconds: number }
export interface VersionDetails extends Version { error: string | null; requests: StoredRequest[]; files: FileDiff[]; todos: Todo[] }
export interface Difference {
  messages_common: number; messages_removed: Message[]; messages_added: Message[]; files: FileDiff[];
  todos_before: Todo[]; todos_after: Todo[]; usage: Usage;
}
export interface Run { id: string; state: string; prompt: string | null; has_moved_on: boolean; problem: string | null; started_at: string; version_id: string | null }
export interface Conflict { path: string; kind: string }

export type Content = string | { kind?: string; content?: unknown; media_type?: string; data?: string; metadata?: { origin?: string } | null };
export interface Part {
  part_kind: string; content?: unknown; tool_name?: string; tool_call_id?: string; args?: unknown; outcome?: string;
  metadata?: { sub_agent_thread_id?: string; exit_code?: number; pydantic_deep?: { kind?: string } } | null;
}
export interface Message { kind: 'request' | 'response'; parts: Part[]; timestamp?: string }

export type Event = { path?: string[] } & (
  | { type: 'reset' | 'lost' | 'back' }
  | { type: 'text' | 'thinking'; text: string }
  | { type: 'tool_call'; id: string; name: string; args: string; intent?: string | null }
  | { type: 'tool_result'; id: string; outcome: string; content: string; exit_code: number | null }
  | { type: 'todos'; todos: Todo[] }
  | { type: 'summarized'; replaced_messages: number; tokens_before: number; tokens_after: number; is_plain: boolean }
  | { type: 'retried'; attempt: number; attempts: number; reason: string; delay_seconds: number; void_text: string }
  | { type: 'budget'; kind: string; measure: string; scope: string | null; limit: number | null; used: number | null; model: string | null }
  | { type: 'status'; text: string }
  | { type: 'usage' } & Usage
  | { type: 'error'; kind: string; message: string }
  | { type: 'end'; status: string | null; version_id: string | null }
);
