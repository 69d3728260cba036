// Markdown as elements. The text is parsed into tokens, and tokens become elements: HTML in the text is shown as text.

import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { MarkedToken, Token, Tokens } from 'marked';

import { type Parsed, parseBlocks } from './blocks';
import type { Node } from './highlight';
import { Icon } from './icons';
import { memo } from './memo';
import { getBlob, Refused, urlPath } from './server';
import { guarded } from './state';
import { Lines, plain, Prose, Text } from './text';

/** `versionId` is the version whose files images may show. */
export function Markdown({ text, versionId }: { text: string; versionId: string | null }) {
  const parsed = useRef<Parsed | null>(null);
  parsed.current = parseBlocks(text, parsed.current);
  return <div class="markdown">{parsed.current.blocks.map((token, at) => <Block key={at} token={token} versionId={versionId} />)}</div>;
}

// While a text is streamed, only its last block changes.
const Block = memo<{ token: Token; versionId: string | null }>(
  ({ token, versionId }) => <>{block(token as MarkedToken, versionId)}</>,
  (before, next) => (before.token === next.token || before.token.raw === next.token.raw) && before.versionId === next.versionId);

const blocks = (tokens: Token[], versionId: string | null) => tokens.map((token) => block(token as MarkedToken, versionId));
const inlines = (tokens: Token[] | undefined, versionId: string | null): ComponentChildren => tokens?.map((token) => inline(token as MarkedToken, versionId));

function block(token: MarkedToken, versionId: string | null): ComponentChildren {
  switch (token.type) {
    case 'space': case 'def': return null;
    case 'heading': {
      const Tag = `h${Math.min(token.depth + 1, 6)}` as 'h2'; // the page has one level above
      return <Tag>{inlines(token.tokens, versionId)}</Tag>;
    }
    case 'paragraph': return <p>{inlines(token.tokens, versionId)}</p>;
    case 'text': return token.tokens ? inlines(token.tokens, versionId) : <Prose of={decode(token.text)} />;
    case 'blockquote': return <blockquote dir="auto">{blocks(token.tokens, versionId)}</blockquote>;
    case 'code': return <Code language={token.lang?.split(/\s/)[0] ?? ''} text={token.text} />;
    case 'hr': return <hr />;
    case 'list': {
      const items = token.items.map((item) => <li class={item.task ? 'task' : undefined}>
        {item.task && <input type="checkbox" disabled checked={item.checked} aria-label={item.checked ? 'Done' : 'Open'} />}
        {blocks(item.tokens.filter((each) => each.type !== 'checkbox'), versionId)}</li>);
      return token.ordered ? <ol dir="auto" start={Number(token.start) || 1}>{items}</ol> : <ul dir="auto">{items}</ul>;
    }
    case 'table': return <Table token={token} versionId={versionId} />;
    default: return <p><Lines of={token.raw} /></p>; // HTML, as text
  }
}

function Table({ token, versionId }: { token: Tokens.Table; versionId: string | null }) {
  const side = (cell: Tokens.TableCell) => cell.align ? `to-${cell.align}` : undefined;
  return <div class="table" tabIndex={0} role="group" aria-label="Table"><table dir="auto">
    <thead><tr>{token.header.map((cell) => <th scope="col" class={side(cell)}>{inlines(cell.tokens, versionId)}</th>)}</tr></thead>
    <tbody>{token.rows.map((row) => <tr>{row.map((cell) => <td class={side(cell)}>{inlines(cell.tokens, versionId)}</td>)}</tr>)}</tbody>
  </table></div>;
}

function inline(token: MarkedToken, versionId: string | null): ComponentChildren {
  switch (token.type) {
    case 'strong': return <strong>{inlines(token.tokens, versionId)}</strong>;
    case 'em': return <em>{inlines(token.tokens, versionId)}</em>;
    case 'del': return <del>{inlines(token.tokens, versionId)}</del>;
    case 'codespan': return <code><Lines of={token.text} /></code>;
    case 'br': return <br />;
    case 'text': return token.tokens ? inlines(token.tokens, versionId) : <Prose of={decode(token.text)} />;
    case 'escape': return <Lines of={token.text} />;
    case 'link': return <Link href={token.href} text={token.text}>{inlines(token.tokens, versionId)}</Link>;
    case 'image': return <Image href={token.href} text={token.text} versionId={versionId} />;
    default: return /^<br ?\/?>$/i.test(token.raw) ? <br /> : <Lines of={token.raw} />; // a cell of a table has no other line break
  }
}

const ENTITIES: Record<string, string> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: '\xa0', hellip: '…', mdash: '—', ndash: '–', copy: '©', times: '×', rarr: '→', larr: '←' };

/** Decode character references. The result is text, in which invisible characters are escaped like in any other. */
const decode = (text: string) => text.replace(/&(?:#(\d{1,7})|#[xX]([\da-fA-F]{1,6})|([a-z]{2,8}));/g, (whole, decimal, hexadecimal, name) => {
  const code = decimal ? Number(decimal) : hexadecimal ? Number.parseInt(hexadecimal, 16) : null;
  if (code === null) return ENTITIES[name] ?? whole;
  return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : whole;
});

/** Links to other sites only by these schemes, and with the host if the text names another one. */
function Link({ href, text, children }: { href: string; text: string; children: ComponentChildren }) {
  const url = /^(https?|mailto):/i.test(href) && URL.canParse(href) ? new URL(href) : null;
  if (!url) return <span class="link">{children} (<Text of={href} />)</span>;
  const names = [...text.toLowerCase().matchAll(/([\p{L}\p{N}_-]+(?:\.[\p{L}\p{N}_-]+)+)(?:[/?#:@]\S*)?/gu)].map((found) => found[1]);
  return <><a href={url.href} target="_blank" rel="noopener noreferrer nofollow" title={plain(url.href)}>{children}</a>
    {url.host !== '' && names.some((name) => name !== url.hostname) && <span class="faint"> ({plain(url.host)})</span>}</>;
}

const IMAGES: Record<string, string> = { png: 'image/png', jpg: 'image/jpeg', jpeg: 'image/jpeg', gif: 'image/gif', webp: 'image/webp' };

/** The type of an image that the page shows; undefined for any other file. SVG is no such type: it may contain scripts. */
export const imageType = (path: string) => IMAGES[path.split('.').at(-1)!.toLowerCase()];

/** A path as it is named in a link, such as with `%20` for a space. */
function decodeUrl(href: string): string {
  try { return decodeURIComponent(href); } catch { return href; }
}

/** An image from the files of a version. Images of other sites are links: loading them would tell those who reads what. */
function Image({ href, text, versionId }: { href: string; text: string; versionId: string | null }) {
  const [url, setUrl] = useState<string | null>(null);
  const path = /^[a-z][a-z\d+.-]*:|^\/\//i.test(href) ? null : `/${decodeUrl(href).replace(/^\.?\//, '')}`;
  const type = path === null ? undefined : imageType(path);
  useLayoutEffect(() => {
    if (!type || path === null || versionId === null) return undefined;
    let made: string | null = null;
    getBlob(`versions/${versionId}/files${urlPath(path)}`).then((blob) => setUrl(made = URL.createObjectURL(new Blob([blob], { type }))), () => {});
    return () => { if (made !== null) URL.revokeObjectURL(made); };
  }, [path, type, versionId]);
  if (url !== null) return <img src={url} alt={plain(text)} />;
  return path === null ? <Link href={href} text={text}>Image: <Text of={text || href} /></Link> : <span class="faint">Image: <Text of={text || href} /></span>;
}

/** Code with a button that copies it. It is highlighted as soon as the highlighter is loaded. */
export function Code({ language, text }: { language: string; text: string }) {
  const { pieces, rest } = useHighlighted(language, text);
  const [isCopied, setCopied] = useState(false);
  const copy = guarded(async () => {
    if (!('clipboard' in navigator)) throw new Refused(0, { message: 'The browser copies only for pages opened by HTTPS. Select the code, and copy it by keys.' });
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  });
  const rests = rest.match(PIECES) ?? [''];
  return <div class="code">
    <div class="head"><span>{plain(language) || 'text'}</span>
      <button type="button" class="quiet small" onClick={copy}><Icon name={isCopied ? 'check' : 'copy'} />{isCopied ? 'Copied' : 'Copy'}</button></div>
    <pre tabIndex={0}><code>
      {pieces.map((nodes, at) => <Piece key={at} nodes={nodes} rest={at === pieces.length - 1 ? rests[0]! : ''} />)}
      {rests.slice(1).map((each, at) => <Piece key={pieces.length + at} nodes={NONE} rest={each} />)}
    </code></pre>
  </div>;
}

/** Lines of code in a block of their own, so that new lines lay out only the last block. */
const PIECE_LINES = 40;
const PIECES = new RegExp(`(?:[^\\n]*\\n){${PIECE_LINES}}|(?:[^\\n]*\\n)*[^\\n]*`, 'gu'); // `.` matches no `\r`
const NONE: Node[] = [];

const Piece = memo<{ nodes: Node[]; rest: string }>(({ nodes, rest }) => <span class="lines">{nodes.map(highlighted)}<Lines of={rest} /></span>,
  (before, next) => before.nodes === next.nodes && before.rest === next.rest);

/** Growing code of more characters is highlighted at its end only. */
const MAX_GROWING = 10_000;

/**
 * Return the highlighted beginning of a text in pieces of whole lines, and the rest. Of a growing text, only complete lines are
 * highlighted, and again after it has grown by an eighth, so that the work is proportional to its length.
 */
function useHighlighted(language: string, text: string): { pieces: Node[][]; rest: string } {
  const [done, setDone] = useState({ text: '', pieces: [NONE] });
  const isFirst = useRef(true);
  const isBegin = text.startsWith(done.text);
  useLayoutEffect(() => {
    if (!language || text.length >= 100_000 || done.text === text) return undefined;
    let isCurrent = true;
    const highlightTo = async (end: number) => {
      const { highlight } = await import('./highlight');
      const nodes = isCurrent ? highlight(language.toLowerCase(), text.slice(0, end)) : null;
      if (nodes !== null) setDone({ text: text.slice(0, end), pieces: piecesOf(nodes) });
    };
    const isDue = text.length < MAX_GROWING && (text.length - (isBegin ? done.text.length : 0)) * 8 > text.length;
    if (!isFirst.current && isDue) void highlightTo(text.lastIndexOf('\n') + 1);
    const timer = setTimeout(() => void highlightTo(text.length), isFirst.current ? 0 : 400);
    isFirst.current = false;
    return () => { isCurrent = false; clearTimeout(timer); };
  }, [language, text]);
  return isBegin ? { pieces: done.pieces, rest: text.slice(done.text.length) } : { pieces: [NONE], rest: text };
}

/** Divide nodes at line ends. Only texts outside of all spans are divided, so a long comment is in one piece. */
function piecesOf(nodes: Node[]): Node[][] {
  const pieces: Node[][] = [[]];
  let lines = 0;
  for (const node of nodes) {
    const value = node.value ?? '';
    lines += value.split('\n').length - 1;
    const end = value.lastIndexOf('\n') + 1;
    if (lines < PIECE_LINES || end === 0) pieces.at(-1)!.push(node);
    else {
      pieces.at(-1)!.push({ type: 'text', value: value.slice(0, end) });
      pieces.push([{ type: 'text', value: value.slice(end) }]);
      lines = 0;
    }
  }
  return pieces;
}

const highlighted = (node: Node): ComponentChildren => node.type === 'text' ? <Lines of={node.value ?? ''} />
  : <span class={node.properties?.className?.join(' ')}>{node.children?.map(highlighted)}</span>;
