"""The warning if `pydantic-deep` of PyPI, another project, is installed into the directory of this package."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from inline_snapshot import snapshot

from pydantic_deep._installation_check import warn_if_mixed

OTHER = 'pydantic_deep-0.3.50.dist-info'


def test_other_project_beside_the_package_is_reported(tmp_path: Path) -> None:
    (tmp_path / OTHER).mkdir()

    with pytest.warns(UserWarning, match='are both installed') as warned:
        warn_if_mixed([str(tmp_path / 'pydantic_deep')])
    assert [str(one.message).replace(str(tmp_path), '/site-packages') for one in warned] == snapshot(
        [
            "'pydantic-deep' 0.3.50, another project, and 'versioned-deep-agents' are both installed in '/site-packages'. Their files are mixed, because both install the package 'pydantic_deep'. Run `pip uninstall pydantic-deep versioned-deep-agents`, then install 'versioned-deep-agents' again."
        ]
    )


@pytest.mark.parametrize(
    'name',
    [
        'versioned_deep_agents-0.1.0.dist-info',
        'pydantic_deep_backends-0.1.0.dist-info',
        'pydantic_deep_patch-0.1.0.dist-info',
        'pydantic_deep',
    ],
)
def test_other_names_are_not_reported(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()

    warn_if_mixed([str(tmp_path / 'pydantic_deep')])  # a warning is an error in this suite


@pytest.mark.parametrize('package_path', [[], ['pydantic_deep'], ['/nowhere/pydantic_deep']])
def test_unusual_paths_are_accepted(package_path: list[str]) -> None:
    """A package without a directory, in the working directory, and in a directory that does not exist."""
    warn_if_mixed(package_path)


def test_working_directory_is_searched_for_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / OTHER).mkdir()
    monkeypatch.chdir(tmp_path)

    with pytest.warns(UserWarning, match=r"installed in '\.'"):
        warn_if_mixed(['pydantic_deep'])


def test_zip_file_is_skipped(tmp_path: Path) -> None:
    archive = tmp_path / 'packages.zip'
    with ZipFile(archive, 'w') as file:
        file.writestr(f'{OTHER}/METADATA', '')

    warn_if_mixed([f'{archive}/pydantic_deep'])


@pytest.mark.slow
def test_import_warns_once_at_the_line_of_the_import(tmp_path: Path) -> None:
    shutil.copytree(Path(__file__).parent.parent / 'pydantic_deep', tmp_path / 'pydantic_deep')
    (tmp_path / OTHER).mkdir()
    program = tmp_path / 'program.py'
    program.write_text('import sys\n\nimport pydantic_deep\n\nprint(pydantic_deep.__file__)\n')

    # Without the environment, coverage does not measure the copy.
    done = subprocess.run([sys.executable, program], env={}, capture_output=True, text=True, check=True)

    assert done.stdout == f'{tmp_path}/pydantic_deep/__init__.py\n'
    assert done.stderr.startswith(f"{program}:3: UserWarning: 'pydantic-deep' 0.3.50, another project, ")
    assert done.stderr.count('UserWarning') == 1
