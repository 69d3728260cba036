"""Checks the licences of all runtime dependencies, and writes them into docs/decisions/dependencies.md.

A dependency of any extra of our distributions, direct or not, must have a permissive licence or the MPL. Licences come
from the installed metadata (`License-Expression`, otherwise `License` and the classifiers). An unknown licence fails
too, unless it was reviewed and is in `REVIEWED`. `--write` updates the column of the table instead of comparing it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PAGE = Path(__file__).resolve().parent.parent / 'docs/decisions/dependencies.md'

OURS = ('versioned-deep-agents',)
"""The distributions with the extras to check. `pydantic-deep-backends` needs some of the same packages."""


@dataclass(frozen=True, kw_only=True)
class Reviewed:
    """A licence that was looked up by hand, because the metadata does not contain it."""

    says: str
    """The licence in the metadata. If that changes, the entry does not apply and fails the check."""
    licence: str
    """The SPDX expression, which is used instead of the metadata."""
    source: str
    """The URL of the licence."""


REVIEWED: Mapping[str, Reviewed] = {
    'agent-client-protocol': Reviewed(
        says='', licence='Apache-2.0', source='https://github.com/agentclientprotocol/python-sdk/blob/main/LICENSE'
    ),
    'google-re2': Reviewed(
        says='BSD License', licence='BSD-3-Clause', source='https://github.com/google/re2/blob/main/LICENSE'
    ),
    'prompt-toolkit': Reviewed(
        says='BSD License',
        licence='BSD-3-Clause',
        source='https://github.com/prompt-toolkit/python-prompt-toolkit/blob/main/LICENSE',
    ),
    'pyasn1-modules': Reviewed(
        says='BSD / BSD License',
        licence='BSD-2-Clause',
        source='https://github.com/pyasn1/pyasn1-modules/blob/main/LICENSE.txt',
    ),
}
"""Reviewed licences, by canonical name. An entry that is not needed fails the check."""

ACCEPTED = frozenset(
    {
        '0BSD', 'Apache-2.0', 'BSD-2-Clause', 'BSD-3-Clause', 'BSL-1.0', 'CC0-1.0', 'CNRI-Python', 'HPND', 'ISC', 'MIT',
        'MIT-0', 'MIT-CMU', 'MPL-1.1', 'MPL-2.0', 'PSF-2.0', 'Python-2.0', 'Unlicense', 'Zlib', 'ZPL-2.1',
    }
)  # fmt: skip
"""SPDX identifiers (https://spdx.org/licenses) of permissive licences, and of the MPL with its file-level copyleft."""

_ACCEPTED_LOWER = frozenset(map(str.lower, ACCEPTED))

COPYLEFT = re.compile(
    r'\b([AL]?GPL|GFDL|EUPL|OSL|SSPL|CDDL|EPL|CPL|CPAL|RPL|CECILL|MS-RL|CC-BY-(NC-)?SA)|general public licen[cs]e|copyleft',
    re.IGNORECASE,
)
"""Matches copyleft licences, as SPDX or in words. It only selects the message: any licence not accepted fails."""

SPDX_BY_NAME: Mapping[str, str] = {
    '3-clause bsd': 'BSD-3-Clause',
    '3-clause bsd license': 'BSD-3-Clause',
    'apache 2.0': 'Apache-2.0',
    'apache license 2.0': 'Apache-2.0',
    'apache license, version 2.0': 'Apache-2.0',
    'apache software license 2.0': 'Apache-2.0',
    'bsd 2-clause license': 'BSD-2-Clause',
    'bsd 3-clause license': 'BSD-3-Clause',
    'cc0 1.0 universal (cc0 1.0) public domain dedication': 'CC0-1.0',
    'isc license': 'ISC',
    'isc license (iscl)': 'ISC',
    'mit license': 'MIT',
    'mit no attribution license (mit-0)': 'MIT-0',
    'mozilla public license 2.0 (mpl 2.0)': 'MPL-2.0',
    'python software foundation license': 'PSF-2.0',
    'the unlicense (unlicense)': 'Unlicense',
    'zlib/libpng license': 'Zlib',
}
"""SPDX identifiers by the unambiguous licence names of older metadata, in lower case."""

VAGUE = frozenset(
    {'', 'unknown', 'osi approved', 'bsd', 'bsd license', 'apache', 'apache software license', 'dual license'}
)
"""Names of licence families or no licence, in lower case; another field must identify the licence."""


def main(arguments: list[str]) -> int:
    """Print the problems, or write the table, and return the exit code."""
    page = PAGE.read_text()
    if arguments == ['--write']:
        PAGE.write_text(with_licences(page))
        return 0
    problems = [*licence_problems(), *table_problems(page)]
    print('\n'.join(problems) or f'{len(closure())} packages are installed at run time, none under a copyleft licence.')
    return int(bool(problems))


def licence_problems() -> list[str]:
    """Return a sentence for each package with an unacceptable licence, and for each unneeded entry of `REVIEWED`."""
    problems: list[str] = []
    needed_by = closure()
    for name, by in sorted(needed_by.items()):
        needed = f'{name!r}, which {by!r} needs,' if by else f'{name!r}'
        try:
            package = distribution(name)
        except PackageNotFoundError:
            problems.append(f'{needed} is not installed. Run `make clean check`.')
            continue
        reason = objection(licence_of(package))
        if reason is not None:
            problems.append(f'{needed} {reason}.')
    for name, entry in REVIEWED.items():
        if name not in needed_by:
            problems.append(f'{name!r} is in REVIEWED, and nothing needs it. Remove the entry.')
        elif (says := stated_licence(distribution(name))) != entry.says:
            problems.append(f'{name!r} is in REVIEWED, and its metadata says {says!r} now. Look it up again.')
    return problems


def closure() -> dict[str, str]:
    """Return all packages of all our extras, including ours, each with one that requires it; `''` for ours."""
    pending = [(Requirement(f'{ours}[{",".join(_extras(ours))}]'), '') for ours in OURS]
    needed_by: dict[str, str] = {}
    done: set[tuple[str, str]] = set()
    while pending:
        requirement, by = pending.pop()
        name = canonicalize_name(requirement.name)
        needed_by.setdefault(name, by)
        for extra in {'', *requirement.extras} - {extra for seen, extra in done if seen == name}:
            done.add((name, extra))
            pending += [(below, name) for below in _requirements(name, extra)]
    return needed_by


def licence_of(package: Distribution) -> str:
    """Return the licence of a package: an SPDX expression if there is one, otherwise the text of the metadata."""
    says = stated_licence(package)
    reviewed = REVIEWED.get(canonicalize_name(package.name))
    return reviewed.licence if reviewed and reviewed.says == says else says


def stated_licence(package: Distribution) -> str:
    """Return the licence in the metadata, as an SPDX expression if it is unambiguous."""
    expression = _fields(package, 'License-Expression')
    if expression:
        return expression[0]
    fields = _legacy_fields(package)
    spdx = [SPDX_BY_NAME.get(field.lower(), field) for field in fields if field.lower() not in VAGUE]
    if spdx and all(_is_expression(identifier) for identifier in spdx):
        return ' AND '.join(
            dict.fromkeys(identifier if ' ' not in identifier else f'({identifier})' for identifier in spdx)
        )
    return ' / '.join(fields)


def objection(licence: str) -> str | None:
    """Return why a licence is not acceptable for a dependency; `None` if it is."""
    if _is_expression(licence) and _is_accepted(licence):
        return None
    if COPYLEFT.search(licence):
        return f'is under the copyleft licence {licence!r}. Replace it'
    return (
        f'has the licence {licence[:80]!r}, which is not known. '
        'Look it up, then add it to ACCEPTED or REVIEWED in this script, or replace the package'
    )


def table_problems(page: str) -> list[str]:
    """Return the problems of the table: missing rows, unneeded rows, and an outdated licence column."""
    direct = {
        canonicalize_name(r.name) for ours in OURS for extra in ('', *_extras(ours)) for r in _requirements(ours, extra)
    }
    named = [canonicalize_name(name) for cells in _rows(page) for name in _names(cells[1])]
    problems = [f'{name!r} has no row in {PAGE.name}. Say what it is for.' for name in sorted(direct - {*named, *OURS})]
    known = closure()
    problems += [f'{name!r} has a row in {PAGE.name}, and nothing needs it.' for name in named if name not in known]
    if not problems and with_licences(page) != page:
        problems.append(f'The licences in {PAGE.name} are not those installed. Run `{Path(__file__).name} --write`.')
    return problems


def with_licences(page: str) -> str:
    """Return the page with the licences that are installed now."""
    for cells in _rows(page):
        licences = dict.fromkeys(licence_of(distribution(name)) for name in _names(cells[1]))
        page = page.replace('|'.join(cells), '|'.join([*cells[:2], f' {", ".join(licences)} ', *cells[3:]]))
    return page


def _rows(page: str) -> Iterator[list[str]]:
    """Yield the cells of each row of the table, with an empty cell at both ends."""
    lines = page.splitlines()
    start = lines.index('|---|---|---|---|') + 1
    for line in lines[start:]:
        if not line.startswith('|'):
            return
        yield line.split('|')


def _names(cell: str) -> list[str]:
    return [name.strip() for name in re.sub(r'\(.*\)', '', cell).split(',')]


def _extras(name: str) -> list[str]:
    return _fields(distribution(name), 'Provides-Extra')


def _requirements(name: str, extra: str) -> list[Requirement]:
    """Return the requirements of a package here, without extras or for one extra; empty if it is not installed."""
    try:
        requirements = [Requirement(requirement) for requirement in distribution(name).requires or []]
    except PackageNotFoundError:
        return []
    return [
        requirement
        for requirement in requirements
        if requirement.marker is None or requirement.marker.evaluate({'extra': extra})
    ]


def _legacy_fields(package: Distribution) -> list[str]:
    """Return the first line of `License`, which may contain a whole licence text, and the licence classifiers."""
    text = ''.join(_fields(package, 'License')).strip()
    classifiers = (classifier for classifier in _fields(package, 'Classifier') if classifier.startswith('License :: '))
    return [*text.splitlines()[:1], *(classifier.split(' :: ')[-1] for classifier in classifiers)]


def _fields(package: Distribution, name: str) -> list[str]:
    return package.metadata.get_all(name) or []


def _is_expression(text: str) -> bool:
    """Return whether a text is syntactically an SPDX expression, regardless of the licences in it."""
    licence = r'\(*[A-Za-z0-9.+-]+( WITH [A-Za-z0-9.-]+)?\)*'
    return re.fullmatch(rf'{licence}( (AND|OR) {licence})*', text) is not None and text.count('(') == text.count(')')


def _is_accepted(expression: str) -> bool:
    """Return whether an SPDX expression contains only accepted licences; of alternatives joined by OR, one is
    enough."""
    inner = re.compile(r'\(([^()]*)\)')
    while match := inner.search(expression):
        verdict = 'MIT' if _is_accepted(match.group(1)) else 'refused'
        expression = expression[: match.start()] + verdict + expression[match.end() :]
    return any(
        all(licence.split(' WITH ')[0].strip().lower() in _ACCEPTED_LOWER for licence in choice.split(' AND '))
        for choice in expression.split(' OR ')
    )


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
