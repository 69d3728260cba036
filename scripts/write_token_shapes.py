"""Writes `pydantic_deep/audit/_token_shapes.py` from the rules of CredSweeper, a scanner that Samsung maintains.

    pip download --no-deps credsweeper && python scripts/write_token_shapes.py credsweeper-*.whl

A scanner looks for what is certainly a key; redaction hides what may be one, in linear time. So bounds of repetitions
are widened, and what RE2 does not have, which is looking around, is left out where that only widens a rule. Rules that
cannot be written for RE2 are skipped and printed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import re2
import yaml

TARGET = Path(__file__).parents[1] / 'pydantic_deep/audit/_token_shapes.py'

NO_SECRETS = {
    'UUID', 'Firebase Domain', 'AWS S3 Bucket', 'AWS Client ID', 'Product Activation Key', 'Akamai Credentials',
    'Google Multi', 'JSON Web Key', 'Grafana Provisioned API Key', 'BASE64 Private Key', 'MailGun API Key',
    'Facebook App Token', 'Jira / Confluence PAT token', 'IP_ID_PASSWORD_TRIPLE', 'Basic Authorization',
    'Bearer Authorization', 'URL Credentials',
}  # fmt: skip
"""Rules for what is public or has no form of its own, and those of which `_secrets` has a form for redaction."""

BOUNDARY = r'(?:^|/|[^\\0-9A-Za-z+_-]|\\[0abfnrtv]|(?:%|\\x)[0-9A-Fa-f]{2}|\\[0-7]{3}|\\[Uu][0-9A-Fa-f]{4}|\x1B\[[0-9;]{0,80}m)'
"""What may stand before a token, in the words of CredSweeper."""

MAX_LEAST = 20
"""How many characters of a token with a telling prefix suffice."""

MAX_LENGTH = 60
"""Repetitions with a higher upper bound have none: a bound costs RE2 memory, and a longer token is one too."""

PREFIX = re.compile(r'(?:[A-Za-z0-9_]|\[[A-Za-z]+\]|\(\?:[A-Za-z0-9|\[\]_-]+\))+?(?:[_-]|\\[.-])|[A-Za-z0-9]{4,}')
"""How the expression of a token begins that is told by its prefix."""


def main() -> None:
    """Write the module."""
    with zipfile.ZipFile(sys.argv[1]) as wheel:
        names = wheel.namelist()
        rules = yaml.safe_load(wheel.read('credsweeper/rules/config.yaml'))
        licence = wheel.read(next(name for name in names if name.endswith('/LICENSE'))).decode()
    notice = '\n'.join(line.rstrip() for line in licence.strip().splitlines())
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
    lines = [f'    ({kind!r}, r{expression!r}),' for kind, found in shapes.items() for expression in found]
    lines = [line.replace('\\\\', '\\') for line in lines]
    TARGET.write_text(
        f'"""Shapes of tokens of providers, from the rules of CredSweeper {version}. `scripts/write_token_shapes.py` writes it.\n\n'
        f'https://github.com/Samsung/CredSweeper, of which the rules are under this licence:\n\n{notice}\n"""\n\n'
        'from __future__ import annotations\n\nfrom typing import Final\n\n'
        'TOKEN_SHAPES: Final = (\n' + '\n'.join(lines) + '\n)  # fmt: skip\n'
        '"""Kinds and expressions of RE2, whose group `secret` is the token."""\n'
    )
    subprocess.run([sys.executable, '-m', 'ruff', 'check', '-q', '--fix', TARGET], check=True)
    print(len(lines), 'shapes')


def kind_of(name: str) -> str:
    """Return what stands in the place of a token."""
    return re.sub(r' (?:credentials|pat token)$', ' key', name.lower())


def written(value: str) -> str | None:
    """Return a pattern of Python for RE2; `None` if it cannot be."""
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
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(expression, options)  # pyright: ignore[reportUnknownMemberType] - it ships no types
    except re2.error:  # pyright: ignore[reportUnknownMemberType] - it ships no types
        return None
    return expression


def widened(bounds: re.Match[str], is_telling: bool) -> str:
    """Return wider bounds of a repetition."""
    least, comma, most = bounds.groups()
    if is_telling and int(least) > MAX_LEAST:
        return f'{{{MAX_LEAST},}}'
    if comma and (not most or int(most) > MAX_LENGTH):
        return f'{{{least},}}'
    return bounds[0]


if __name__ == '__main__':
    main()
