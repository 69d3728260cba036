// Diffs as tables of typed lines, as the server sends them. The text of a diff is not parsed here.

import type { JSX } from 'preact';

import { count, Pieces } from './text';
import type { Diff, FileDiff, Line } from './types';

/** Rows of one table. In a longer diff, a table that is out of view costs no layout; its height is an estimate. */
const TABLE_ROWS = 200;

/** Side by side if there is enough space, unless the caller says that the space is narrow. */
export function DiffView({ diff, isNarrow = !matchMedia('(min-width: 64rem)').matches }: { diff: Diff; isNarrow?: boolean }) {
  const rows = diff.hunks.flatMap((hunk) => [
    <tr class="hunk"><td colSpan={isNarrow ? 3 : 4}>{hunk.header}</td></tr>,
    ...(isNarrow ? hunk.lines.map((line) => <tr class={line.kind}><Number value={line.before} /><Number value={line.after} /><Content line={line} kind="" /></tr>) : sideBySide(hunk.lines)),
  ]);
  const tables = Array.from({ length: Math.ceil(rows.length / TABLE_ROWS) }, (_, at) => rows.slice(at * TABLE_ROWS, (at + 1) * TABLE_ROWS));
  return <div class="diff">
    <p class="file"><Pieces of={diff.path} /><span class="faint"> {diff.kind}, +{diff.added} −{diff.removed}</span></p>
    {diff.hidden_lines > 0 && <p class="warn">This diff is not shown: it has {count(diff.hidden_lines, 'line')}.</p>}
    <div class="lines" tabIndex={0} role="group" aria-label="Changed lines">{tables.map((part) => <div class={tables.length > 1 ? 'long' : ''} style={{ containIntrinsicBlockSize: `auto ${1.5 * part.length}em` }}><table>
      <colgroup>{(isNarrow ? ['number', 'number', ''] : ['number', '', 'number', '']).map((name) => <col class={name} />)}</colgroup>
      <tbody>{part}</tbody>
    </table></div>)}</div>
  </div>;
}

function sideBySide(lines: Line[]) {
  const rows: JSX.Element[] = [];
  let removed: Line[] = [];
  let added: Line[] = [];
  const flush = () => {
    for (let at = 0; at < Math.max(removed.length, added.length); at += 1) rows.push(<tr><Side line={removed[at]} at="before" /><Side line={added[at]} at="after" /></tr>);
    [removed, added] = [[], []];
  };
  for (const line of lines) {
    if (line.kind === 'removed') removed.push(line);
    else if (line.kind === 'added') added.push(line);
    else {
      flush();
      rows.push(<tr><Side line={line} at="before" /><Side line={line} at="after" /></tr>);
    }
  }
  flush();
  return rows;
}

const Side = ({ line, at }: { line: Line | undefined; at: 'before' | 'after' }) => line
  ? <><Number value={line[at]} /><Content line={line} kind={line.kind} /></> : <><Number value={null} /><td /></>;
const Number = ({ value }: { value: number | null }) => <td class="number">{value ?? ''}</td>;
const Content = ({ line, kind }: { line: Line; kind: string }) => <td class={`line ${kind}`}><Pieces of={line.text} />
  {!line.is_ended && <span class="aside" data-says=" (no newline at the end)" />}</td>;

/** The changes of files; a file without a text to compare is named. */
export const FileDiffs = ({ files, isNarrow }: { files: FileDiff[]; isNarrow?: boolean }) => <>{files.map((file) => file.view !== null
  ? <DiffView key={file.path} diff={file.view} isNarrow={isNarrow} />
  : <p key={file.path}><Pieces of={file.shown_path} /> ({file.kind}): not a text in UTF-8, or more than 1 MB.</p>)}
  {files.length === 0 && <p class="faint">The files are the same.</p>}</>;
