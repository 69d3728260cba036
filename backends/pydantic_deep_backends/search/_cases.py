"""Test cases of globs and regular expressions, with the results that every backend must return.

Paths are relative to an initially empty directory of the backend; `.` in a case is that directory. The tests of the
dialect and the conformance suite of the backends run the same cases.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass

FoundLines = tuple[tuple[str, int, str], ...]
"""Path, line number and text of each line."""

GLOB_FILES = (
    '.env',
    '.github/CODEOWNERS',
    '.github/workflows/ci.yml',
    'B.PY',
    'README.md',
    'a.py',
    'b.py',
    'docs/..dots.md',
    'docs/[x].md',
    'docs/a*b.md',
    'docs/a-b.md',
    'docs/index.md',
    'docs/naïve.md',
    'docs/with space.md',
    'docs/x..y',
    'docs/{y}.md',
    'src/.hidden.py',
    'src/a.py',
    'src/b.py',
    'src/data.json',
    'src/pkg/.cache/e.py',
    'src/pkg/__init__.py',
    'src/pkg/c.py',
    'src/pkg/deep/.env',
    'src/pkg/deep/d.py',
    'test/t10.py',
    'test/unit/t1.py',
    'test/unit/t2.js',
    'test/unit/src/x.py',
)
"""The files that the glob cases search."""


@dataclass(frozen=True, kw_only=True)
class GlobCase:
    """A glob and its expected result."""

    pattern: str
    """The glob pattern to test."""
    expected: tuple[str, ...]
    """The expected files, sorted."""
    path: str = '.'
    """The directory to search."""


@dataclass(frozen=True, kw_only=True)
class GrepCase:
    """A regular expression and its expected result."""

    pattern: str
    """The regular expression to test."""
    expected: FoundLines
    """The expected lines, sorted."""
    path: str = '.'
    """The file or directory to search."""
    glob: str | None = None
    """The glob of the files to search."""


def _glob(pattern: str, *expected: str, path: str = '.') -> GlobCase:
    return GlobCase(pattern=pattern, expected=expected, path=path)


def _grep(pattern: str, *expected: tuple[str, int, str], path: str = '.', glob: str | None = None) -> GrepCase:
    return GrepCase(pattern=pattern, expected=expected, path=path, glob=glob)


_TOP_PY = ('a.py', 'b.py')
_SRC_PY = ('src/a.py', 'src/b.py', 'src/pkg/__init__.py', 'src/pkg/c.py', 'src/pkg/deep/d.py')
_TEST_PY = ('test/t10.py', 'test/unit/src/x.py', 'test/unit/t1.py')
_DOCS_MD = (
    'docs/[x].md',
    'docs/a*b.md',
    'docs/a-b.md',
    'docs/index.md',
    'docs/naïve.md',
    'docs/with space.md',
    'docs/{y}.md',
)
_VISIBLE = tuple(path for path in sorted(GLOB_FILES) if not any(part.startswith('.') for part in path.split('/')))

GLOB_CASES = (
    # Anchoring: the whole relative path must match, as in the shell.
    _glob('*.py', *_TOP_PY),
    _glob('/*.py', *_TOP_PY),
    _glob('./*.py', *_TOP_PY),
    _glob('a.py', 'a.py'),
    _glob('*', 'B.PY', 'README.md', 'a.py', 'b.py'),
    _glob('*.py', 'src/a.py', 'src/b.py', path='src'),
    _glob('*/*.py', 'src/a.py', 'src/b.py', 'test/t10.py'),
    _glob('src/*', 'src/a.py', 'src/b.py', 'src/data.json'),
    _glob('src//a.py', 'src/a.py'),
    _glob('src/./a.py', 'src/a.py'),
    _glob('pkg/c.py'),
    _glob('rc/a.py'),
    _glob('src/a'),
    _glob('src'),
    _glob('missing/*.py'),
    _glob('a.py/*'),
    # `**` as a whole component: any number of directories.
    _glob('**', *_VISIBLE),
    _glob('**/*', *_VISIBLE),
    _glob('**/*.py', *_TOP_PY, *_SRC_PY, *_TEST_PY),
    _glob('/**/*.py', *_TOP_PY, *_SRC_PY, *_TEST_PY),
    _glob('src/**/*.py', *_SRC_PY),
    _glob('src/**/b.py', 'src/b.py'),
    _glob('src/**', 'src/a.py', 'src/b.py', 'src/data.json', *_SRC_PY[2:]),
    _glob('**/src/**/*.py', *_SRC_PY, 'test/unit/src/x.py'),
    _glob('**/**/**/d.py', 'src/pkg/deep/d.py'),
    _glob('**/unit/*', 'test/unit/t1.py', 'test/unit/t2.js'),
    _glob('**/deep/**', 'src/pkg/deep/d.py'),
    _glob('**/a.py', 'a.py', 'src/a.py'),
    _glob('**/pkg/**/*.py', *_SRC_PY[2:]),
    _glob('**', 'src/pkg/deep/d.py', path='src/pkg/deep'),
    _glob('**/*.py', *_SRC_PY[2:], path='src/pkg'),
    # `**` next to other characters is `*`.
    _glob('src/**.py', 'src/a.py', 'src/b.py'),
    _glob('a**', 'a.py'),
    _glob('***/a.py', 'src/a.py'),
    _glob('src/p**/c.py', 'src/pkg/c.py'),
    # `?` and sets.
    _glob('?.py', *_TOP_PY),
    _glob('test/t??.py', 'test/t10.py'),
    _glob('test?t10.py'),
    _glob('docs/na?ve.md', 'docs/naïve.md'),
    _glob('[a-z].py', *_TOP_PY),
    _glob('[ab].py', *_TOP_PY),
    _glob('[!a].py', 'b.py'),
    _glob('[^a].py', 'b.py'),
    _glob('[A-Z].PY', 'B.PY'),
    _glob('[b-]*', 'b.py'),
    _glob('test/unit/t[0-9].*', 'test/unit/t1.py', 'test/unit/t2.js'),
    _glob('test[/]t10.py'),
    _glob('test[!a]t10.py'),
    _glob('test[+-9]t10.py'),
    _glob('docs/[[]x].md', 'docs/[x].md'),
    _glob('docs/[[]x[]].md', 'docs/[x].md'),
    _glob('docs/a[*]b.md', 'docs/a*b.md'),
    _glob('docs/a[!*]b.md', 'docs/a-b.md'),
    _glob('docs/[{]y[}].md', 'docs/{y}.md'),
    # Alternatives.
    _glob('{a,b}.py', *_TOP_PY),
    _glob('{a,zzz}.py', 'a.py'),
    _glob('{src,test}/*.py', 'src/a.py', 'src/b.py', 'test/t10.py'),
    _glob('{src,test/unit}/*.{py,js}', 'src/a.py', 'src/b.py', 'test/unit/t1.py', 'test/unit/t2.js'),
    _glob('{src/,}a.py', 'a.py', 'src/a.py'),
    _glob('src/{a,pkg/{c,deep/d}}.py', 'src/a.py', 'src/pkg/c.py', 'src/pkg/deep/d.py'),
    _glob('**/*.{js,json}', 'src/data.json', 'test/unit/t2.js'),
    _glob('{**,docs}/a.py', 'a.py', 'src/a.py'),
    _glob('{**/,}a.py', 'a.py', 'src/a.py'),
    _glob('src{/**,}/b.py', 'src/b.py'),
    _glob('{a}.py', 'a.py'),
    _glob('x{**,a}'),
    _glob('{[ab],c}.py', *_TOP_PY),
    _glob('{a.py,**/deep/*.py}', 'a.py', 'src/pkg/deep/d.py'),
    # Hidden files: only a literal dot matches them.
    _glob('.*', '.env'),
    _glob('.env', '.env'),
    _glob('?env'),
    _glob('[.]env'),
    _glob('[!a]env'),
    _glob('*env'),
    _glob('**/.env', '.env', 'src/pkg/deep/.env'),
    _glob('{.env,a.py}', '.env', 'a.py'),
    _glob('{src/pkg/deep/,}.env', '.env', 'src/pkg/deep/.env'),
    _glob('{*,}.env', '.env'),
    _glob('.github/**', '.github/CODEOWNERS', '.github/workflows/ci.yml'),
    _glob('.github/*', '.github/CODEOWNERS'),
    _glob('.*/**/*.yml', '.github/workflows/ci.yml'),
    _glob('**/*.yml'),
    _glob('**/*.yml', '.github/workflows/ci.yml', path='.github'),
    _glob('src/.*.py', 'src/.hidden.py'),
    _glob('src/**/.cache/*.py', 'src/pkg/.cache/e.py'),
    _glob('**/.*/*.py', 'src/pkg/.cache/e.py'),
    _glob('docs/..*', 'docs/..dots.md'),
    _glob('docs/x..y', 'docs/x..y'),
    # Characters without special meaning, and case.
    _glob('docs/*.md', *_DOCS_MD),
    _glob('docs/with space.md', 'docs/with space.md'),
    _glob('docs/a-b.md', 'docs/a-b.md'),
    _glob('*.PY', 'B.PY'),
    _glob('readme.md'),
    _glob('A.py'),
    _glob('a.p.'),
    _glob('(a|b).py'),
    _glob('a.py$'),
    _glob('}{a,b}.py'),
)
"""Glob cases over `GLOB_FILES`."""

GREP_FILES: Mapping[str, bytes] = {
    '.env': b'TOKEN=alpha\n',
    '.git/config': b'alpha in hidden directory\n',
    'anchors.txt': b'first\n\nx first\nlast',
    'binary.bin': b'alpha\0beta\nalpha\n',
    'bom.txt': codecs.BOM_UTF8 + b'start alpha\nsecond\n',
    'crlf.txt': b'one\r\ntwo\r\n\r\nthree\r\n',
    'empty.txt': b'',
    'formfeed.txt': b'page one\x0cpage two\nseparator \xe2\x80\xa8 inside\nlone \r return\nend of page\n',
    'latin1.txt': b'caf\xe9 au lait\nplain ascii\n',
    'late_nul.txt': b'x' * 9000 + b'\0\nlate alpha\n',
    'src/a.py': b'import os\n\ndef alpha():\n    return os.name\n',
    'src/b.js': b'function alpha() {}\n',
    'src/pkg/c.py': b'ALPHA = "alpha"\nbeta = alpha\n',
    'unicode.txt': 'naïve\nÄpfel\n日本語 text\n'.encode(),
    'utf16be.txt': codecs.BOM_UTF16_BE + 'grün\r\nwide alpha\r\n'.encode('utf-16-be'),
    'utf16le.txt': codecs.BOM_UTF16_LE + 'grün\r\nwide alpha\r\n'.encode('utf-16-le'),
    'utf32.txt': codecs.BOM_UTF32_LE + 'wider alpha\n'.encode('utf-32-le'),
}
"""The files that the regular expression cases search."""

_A = ('src/a.py', 3, 'def alpha():')
_B = ('src/b.js', 1, 'function alpha() {}')
_C1 = ('src/pkg/c.py', 1, 'ALPHA = "alpha"')
_C2 = ('src/pkg/c.py', 2, 'beta = alpha')
_ALPHA = (
    ('bom.txt', 1, 'start alpha'),
    ('late_nul.txt', 2, 'late alpha'),
    _A,
    _B,
    _C1,
    _C2,
    ('utf16be.txt', 2, 'wide alpha'),
    ('utf16le.txt', 2, 'wide alpha'),
    ('utf32.txt', 1, 'wider alpha'),
)
_ANCHORS = (
    ('anchors.txt', 1, 'first'),
    ('anchors.txt', 2, ''),
    ('anchors.txt', 3, 'x first'),
    ('anchors.txt', 4, 'last'),
)

GREP_CASES = (
    # Selection: no hidden files unless the glob names them, no binaries, every encoding.
    _grep('alpha', *_ALPHA),
    _grep('alpha', _A, _B, _C1, _C2, path='src'),
    _grep('alpha', _C1, _C2, path='src/pkg'),
    _grep('alpha', _A, path='src/a.py'),
    _grep('alpha', _A, path='src/a.py', glob='*.js'),
    _grep('alpha', ('.env', 1, 'TOKEN=alpha'), path='.env'),
    _grep('alpha', ('.git/config', 1, 'alpha in hidden directory'), path='.git'),
    _grep('alpha', ('.env', 1, 'TOKEN=alpha'), glob='.env'),
    _grep('alpha', ('.git/config', 1, 'alpha in hidden directory'), glob='.git/**'),
    _grep('alpha', _A, _C1, _C2, glob='**/*.py'),
    _grep('alpha', _A, path='src', glob='*.py'),
    _grep('alpha', _A, _B, glob='src/*.{py,js}'),
    _grep('alpha', path='binary.bin'),
    _grep('alpha', glob='*.bin'),
    _grep('.*', path='empty.txt'),
    _grep('absent'),
    # Anchors, and a last line without a line end.
    _grep('^first', _ANCHORS[0], path='anchors.txt'),
    _grep('first$', _ANCHORS[0], _ANCHORS[2], path='anchors.txt'),
    _grep('^$', _ANCHORS[1], path='anchors.txt'),
    _grep('last$', _ANCHORS[3], path='anchors.txt'),
    _grep(r'\Afirst\z', _ANCHORS[0], path='anchors.txt'),
    _grep(r'(?-m)^x', _ANCHORS[2], path='anchors.txt'),
    _grep(r'\bfirst\b', _ANCHORS[0], _ANCHORS[2], path='anchors.txt'),
    _grep('z*', *_ANCHORS, path='anchors.txt'),
    _grep('.*', *_ANCHORS, path='anchors.txt'),
    # Each line is matched separately.
    _grep(r'first\s+x', path='anchors.txt'),
    _grep(r'(?s)first.+last', path='anchors.txt'),
    _grep('[^a]{7}', _ANCHORS[2], path='anchors.txt'),
    _grep(r'\C{8}', path='anchors.txt'),
    _grep(r't[\n]', path='anchors.txt'),
    _grep(r't\x0a', path='anchors.txt'),
    _grep(r'st\W*x', path='anchors.txt'),
    # Line ends: `\n` with an optional `\r`, no other characters.
    _grep('one$', ('crlf.txt', 1, 'one'), path='crlf.txt'),
    _grep('^$', ('crlf.txt', 3, ''), path='crlf.txt'),
    _grep('three', ('crlf.txt', 4, 'three'), path='crlf.txt'),
    _grep(r'\r', path='crlf.txt'),
    _grep('two', ('formfeed.txt', 1, 'page one\x0cpage two'), path='formfeed.txt'),
    _grep('inside', ('formfeed.txt', 2, 'separator \u2028 inside'), path='formfeed.txt'),
    _grep('return', ('formfeed.txt', 3, 'lone \r return'), path='formfeed.txt'),
    _grep('^end', ('formfeed.txt', 4, 'end of page'), path='formfeed.txt'),
    # Encodings.
    _grep('^start', ('bom.txt', 1, 'start alpha'), path='bom.txt'),
    _grep('au lait', ('latin1.txt', 1, 'café au lait'), path='latin1.txt'),
    _grep('café', ('latin1.txt', 1, 'café au lait'), path='latin1.txt'),
    _grep('caf. au', ('latin1.txt', 1, 'café au lait'), path='latin1.txt'),
    _grep('grün$', ('utf16be.txt', 1, 'grün'), ('utf16le.txt', 1, 'grün')),
    _grep('^na.ve$', ('unicode.txt', 1, 'naïve'), path='unicode.txt'),
    _grep('(?i)äPFEL', ('unicode.txt', 2, 'Äpfel'), path='unicode.txt'),
    _grep(r'\p{Han}{3}', ('unicode.txt', 3, '日本語 text'), path='unicode.txt'),
    # The dialect.
    _grep('(?i)^alpha', _C1, path='src'),
    _grep('alpha|function', _A, _B, _C1, _C2, path='src'),
    _grep(r'alpha\(\)', _A, _B, path='src'),
    _grep(r'(def|function) \w+', _A, _B, path='src'),
    _grep('alph{1}a+$', _C2, path='src'),
    _grep('al(?:pha)?$', _C2, path='src'),
    _grep('x?beta', _C2, path='src'),
    _grep(r'\Qname', ('src/a.py', 4, '    return os.name'), path='src'),
    _grep(r'(?P<word>beta) = \x61', _C2, path='src'),
    _grep('{}', _B, path='src'),
    _grep('[[:upper:]]{5}', _C1, path='src'),
    _grep('(a+)+$', _C2, path='src/pkg/c.py'),
)
"""Regular expression cases over `GREP_FILES`."""

INVALID_GLOBS = (
    '', '/', '.', './', 'src/', 'a\\b', '*.{py', '{a,{b}', '[a', '[', '[]', '[!]', '[z-a]', '[[:alpha:]]', '../*.py',
    'a/../b', 'a\0b', 'a' * 1001, '{' * 60 + '}' * 60, 'a/..', '\ud800',
)  # fmt: skip
"""Globs that are rejected."""

INVALID_REGEXES = (
    '', '(', 'a)(b', '*', 'a**', '[a', '[z-a]', r'(a)\1', '(?=a)', '(?!a)', '(?<=a)b', '(?<!a)b', '(?P=x)', r'\Z', r'\y',
    'a{1001}', '((a{100}){100}){100}', r'\pL{500}', r'one\ntwo', 'one\ntwo', 'x' * 10_001, '\ud800',
)  # fmt: skip
"""Regular expressions that are rejected."""
