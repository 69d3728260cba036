"""Changes of several files."""

from __future__ import annotations

from ._task import Task, apply_changes, becomes

LOAD = {
    'settings.py': 'def load(path):\n    return open(path).read()\n',
    'main.py': 'from settings import load\n\nprint(load("app.ini"))\n',
    'check.py': 'import settings\n\nassert settings.load("app.ini")\n',
    'loader.py': 'def download(url):\n    return url\n',
}
RENAMED = {
    'settings.py': 'def read_config(path):\n    return open(path).read()\n',
    'main.py': 'from settings import read_config\n\nprint(read_config("app.ini"))\n',
    'check.py': 'import settings\n\nassert settings.read_config("app.ini")\n',
}
NOTICE = '# Copyright 2026 Example\n'
MODULES = {'a.py': 'A = 1\n', 'b.py': 'B = 2\n', 'sub/c.py': 'C = 3\n', 'notes.txt': 'No code.\n'}
WITH_NOTICE = {path: NOTICE + text for path, text in MODULES.items() if path.endswith('.py')}
PEOPLE = 'red: Ann\nblue: Ben\nred: Cem\nblue: Dia\nred: Eva\n'
TEMPLATE = 'Dear NAME,\n\nyour seat is reserved.\n'
SEATS = {'ann.txt': TEMPLATE.replace('NAME', 'Ann'), 'ben.txt': TEMPLATE.replace('NAME', 'Ben')}

TASKS = (
    Task(
        id='many-files/rename',
        prompt='Rename the function load in settings.py to read_config, in all files that use it.',
        files=LOAD,
        verify=becomes(RENAMED),
        right=RENAMED,
        wrong=(
            {'settings.py': RENAMED['settings.py']},
            {**RENAMED, 'loader.py': 'def downread_config(url):\n    return url\n'},
        ),
    ),
    Task(
        id='many-files/notice',
        prompt=f'Insert the line "{NOTICE.strip()}" as the first line of each Python file.',
        files=MODULES,
        verify=becomes(WITH_NOTICE),
        right=WITH_NOTICE,
        wrong=({'a.py': WITH_NOTICE['a.py'], 'b.py': WITH_NOTICE['b.py']}, {**WITH_NOTICE, 'notes.txt': NOTICE}),
    ),
    Task(
        id='many-files/split',
        prompt='Each line of people.txt has a team and a name. Write the names of the team red to red.txt and those of '
        'the team blue to blue.txt, one in each line, in the same order.',
        files={'people.txt': PEOPLE},
        verify=becomes({'red.txt': 'Ann\nCem\nEva', 'blue.txt': 'Ben\nDia'}),
        right={'red.txt': 'Ann\nCem\nEva\n', 'blue.txt': 'Ben\nDia\n'},
        wrong=(
            {'red.txt': 'Ann\nCem\nEva\n'},
            {'red.txt': 'red: Ann\nred: Cem\nred: Eva\n', 'blue.txt': 'blue: Ben\n'},
        ),
    ),
    Task(
        id='many-files/letters',
        prompt='Write the letter of template.txt to Ann, as ann.txt, and to Ben, as ben.txt, with their names in place of '
        'NAME. Do not change the template.',
        files={'template.txt': TEMPLATE},
        verify=becomes(SEATS),
        right=SEATS,
        wrong=({'ann.txt': SEATS['ann.txt']}, apply_changes(SEATS, {'template.txt': SEATS['ann.txt']})),
    ),
)
"""The tasks."""
