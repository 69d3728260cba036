"""Prints the requirements of the dependency groups in pyproject.toml, one per line, except those in SKIP_GROUPS."""

import os
import tomllib
from pathlib import Path

skipped = os.environ.get('SKIP_GROUPS', '').split(',')
groups = tomllib.loads((Path(__file__).parent.parent / 'pyproject.toml').read_text())['dependency-groups']
print('\n'.join(sorted({need for name, needs in groups.items() if name not in skipped for need in needs})))
