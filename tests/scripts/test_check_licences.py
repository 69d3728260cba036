"""No extra installs a package under a copyleft licence, and the table of dependencies states each licence."""

from __future__ import annotations

import importlib.util
import re
import sys
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

SCRIPT = Path(__file__).parents[2] / 'scripts/check_licences.py'


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script as a separate module, with replaceable tables."""
    spec = importlib.util.spec_from_file_location('check_licences', SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, 'check_licences', module)  # its dataclass looks up its module there
    spec.loader.exec_module(module)
    return module


def install(directory: Path, name: str, *fields: str) -> None:
    """Write the metadata of a package to a directory that precedes all others on the path."""
    info = directory / f'{name.replace("-", "_")}-1.dist-info'
    info.mkdir(exist_ok=True)
    lines = ['Metadata-Version: 2.4', f'Name: {name}', 'Version: 1', *fields]
    (info / 'METADATA').write_text('\n'.join(lines) + '\n')


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of packages: an extra of `versioned-deep-agents` needs `direct`, which needs `indirect`."""
    monkeypatch.setattr(sys, 'path', [str(tmp_path), *sys.path])
    install(
        tmp_path,
        'versioned-deep-agents',
        'License-Expression: MIT',
        'Provides-Extra: some',
        'Requires-Dist: direct[thing]; extra == "some"',
        'Requires-Dist: absent; extra == "some" and sys_platform == "never"',
    )
    install(
        tmp_path,
        'direct',
        'License-Expression: MIT',
        'Provides-Extra: thing',
        'Requires-Dist: indirect; extra == "thing"',
    )
    install(tmp_path, 'indirect', 'License-Expression: MIT')
    return tmp_path


@pytest.mark.slow
def test_installed_licences_are_accepted_and_the_table_is_up_to_date(
    script: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """No run-time dependency of any extra is copyleft except for the MPL, and the licence column matches the installed
    packages."""
    code = script.main([])

    output = capsys.readouterr().out
    assert (code, re.sub(r'^\d\d+', 'N', output)) == (
        0,
        'N packages are installed at run time, none under a copyleft licence.\n',
    )
    assert {metadata(name)['Name'] for name in script.closure()} >= {'pathspec', 'asyncpg', 'typer', 'strictyaml'}


@pytest.mark.parametrize(
    'fields',
    [
        ['License-Expression: MIT'],
        ['License-Expression: MPL-2.0'],
        ['License-Expression: GPL-2.0-or-later OR MIT'],
        ['License-Expression: MIT AND (GPL-3.0-only OR Apache-2.0 WITH LLVM-exception)'],
        ['License: mit'],
        ['License: Apache-2.0', 'Classifier: License :: OSI Approved :: Apache Software License'],
        ['License: UNKNOWN', 'Classifier: License :: OSI Approved :: MIT License'],
        ['License: MIT License', '        ', '        Permission is hereby granted, free of charge'],
        ['Classifier: License :: OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)'],
    ],
)
def test_permissive_licences_and_the_mpl_are_accepted(script: Any, packages: Path, fields: list[str]) -> None:
    install(packages, 'indirect', *fields)
    assert [each for each in script.licence_problems() if 'REVIEWED' not in each] == []


@pytest.mark.parametrize(
    'fields',
    [
        ['License-Expression: GPL-2.0-or-later'],
        ['License-Expression: LGPL-3.0-only'],
        ['License-Expression: AGPL-3.0-only OR SSPL-1.0'],
        ['License-Expression: MIT AND GPL-3.0-only'],
        ['License-Expression: GPL-2.0-only WITH Classpath-exception-2.0'],
        ['License-Expression: (MIT AND GPL-3.0-only) OR EUPL-1.2'],
        ['License: GPLv3'],
        ['License: GNU GENERAL PUBLIC LICENSE', '        ', '        Version 3, 29 June 2007'],
        ['License: LGPL with exceptions', 'Classifier: License :: OSI Approved :: MIT License'],
        ['License: MIT', 'Classifier: License :: OSI Approved :: GNU General Public License v2 (GPLv2)'],
        ['Classifier: License :: OSI Approved :: GNU Affero General Public License v3 or later (AGPLv3+)'],
    ],
)
def test_a_copyleft_licence_of_an_indirect_dependency_fails(script: Any, packages: Path, fields: list[str]) -> None:
    install(packages, 'indirect', *fields)
    found = [each for each in script.licence_problems() if 'copyleft' in each]
    assert len(found) == 1
    assert found[0].startswith("'indirect', which 'direct' needs, is under the copyleft licence ")


@pytest.mark.parametrize(
    'fields',
    [
        [],
        ['License: UNKNOWN'],
        ['License: BSD', 'Classifier: License :: OSI Approved :: BSD License'],
        ['License: see LICENSE'],
        ['License-Expression: LicenseRef-Ours'],
        ['Classifier: License :: Other/Proprietary License', 'License: MIT'],
        ['License-Expression: MIT OR'],
    ],
)
def test_unknown_licence_fails(script: Any, packages: Path, fields: list[str]) -> None:
    install(packages, 'indirect', *fields)
    found = [each for each in script.licence_problems() if "'indirect'" in each]
    assert len(found) == 1
    assert 'which is not known. Look it up' in found[0]


def test_reviewed_licence_has_a_source_and_expires_with_the_metadata(script: Any, packages: Path) -> None:
    """A reviewed licence is valid as long as the metadata is unchanged. An unneeded entry fails."""
    assert all(entry.source.startswith('https://') for entry in script.REVIEWED.values())
    script.REVIEWED = {'indirect': script.Reviewed(says='Ours', licence='ISC', source='https://example.org')}

    install(packages, 'indirect', 'License: Ours')
    assert script.licence_problems() == []
    install(packages, 'indirect', 'License: GPL')
    assert script.licence_problems() == snapshot(
        [
            "'indirect', which 'direct' needs, is under the copyleft licence 'GPL'. Replace it.",
            "'indirect' is in REVIEWED, and its metadata says 'GPL' now. Look it up again.",
        ]
    )
    install(packages, 'indirect', 'License-Expression: MIT')
    assert script.licence_problems() == snapshot(
        ["'indirect' is in REVIEWED, and its metadata says 'MIT' now. Look it up again."]
    )
    script.REVIEWED = {'other': script.REVIEWED['indirect']}
    assert script.licence_problems() == snapshot(["'other' is in REVIEWED, and nothing needs it. Remove the entry."])


def test_missing_dependency_fails(script: Any, packages: Path) -> None:
    script.REVIEWED = {}
    install(packages, 'direct', 'License-Expression: MIT', 'Requires-Dist: never-heard-of')
    assert script.licence_problems() == snapshot(
        ["'never-heard-of', which 'direct' needs, is not installed. Run `make clean check`."]
    )


def test_table_has_a_row_for_each_direct_dependency(script: Any, packages: Path) -> None:
    head = '| package | licence | what for | instead of |\n|---|---|---|---|\n'
    assert script.table_problems(f'{head}| Other (extra `some`) | | | |\n') == snapshot(
        [
            "'direct' has no row in dependencies.md. Say what it is for.",
            "'other' has a row in dependencies.md, and nothing needs it.",
        ]
    )
    page = f'{head}| Direct (extra `some`) | GPL | it is needed | |\n\nThe end.\n'
    assert script.table_problems(page) == snapshot(
        ['The licences in dependencies.md are not those installed. Run `check_licences.py --write`.']
    )
    assert script.with_licences(page) == page.replace('GPL', 'MIT')
    assert script.table_problems(script.with_licences(page)) == []
