/** Matches characters that are invisible within a line, including line breaks. */
export const IN_LINE: RegExp;
/** Matches characters that are invisible in a text of several lines. */
export const IN_LINES: RegExp;
/** Matches characters that are invisible in prose of several lines. */
export const IN_PROSE: RegExp;
