// Markdown of a growing text: only its end is parsed again.

import { Marked, type Token } from 'marked';

const marked = new Marked({ gfm: true, breaks: true });

/** A parsed text. */
export interface Parsed {
  text: string;
  blocks: Token[];
  /** Whether the text can grow at its end: its blocks are the whole text, and none defines links for others. */
  canGrow: boolean;
}

/**
 * Parse a text. Blocks of the text before it remain the same objects, except for the last two, because a list continues after an
 * empty line, and those that no empty line separates from them, because a paragraph may become a heading or a table.
 */
export function parseBlocks(text: string, before: Parsed | null): Parsed {
  if (before?.text === text) return before;
  let kept = 0;
  let from = 0;
  if (before?.canGrow && text.startsWith(before.text)) {
    kept = before.blocks.length;
    from = before.text.length;
    for (let left = 2; kept > 0 && (left > 0 || !before.blocks[kept - 1]!.raw.endsWith('\n\n'));) {
      kept -= 1;
      from -= before.blocks[kept]!.raw.length;
      if (before.blocks[kept]!.type !== 'space') left -= 1;
    }
  }
  const end = text.slice(from);
  const blocks = marked.lexer(end);
  const size = blocks.reduce((sum, block) => sum + block.raw.length, 0);
  const canGrow = size === end.length && Object.keys(blocks.links).length === 0;
  if (from > 0 && !canGrow) return parseBlocks(text, null);
  return { text, blocks: [...before?.blocks.slice(0, kept) ?? [], ...blocks], canGrow };
}
