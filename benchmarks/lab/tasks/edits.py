"""Changes of one file."""

from __future__ import annotations

from ._task import Task, becomes

SETTINGS = 'HOST = "localhost"\nTIMEOUT = 30\nRETRIES = 3\nTIMEOUT_MESSAGE = "no answer after 30 seconds"\n'
INVENTORY = 'nuts: 40\nbolts-long: 12\nbolts: 12\nscrews: 7\n'
STATS = """def mean(values):
    return sum(values) / (len(values) - 1)


def spread(values):
    return max(values) - min(values)
"""
CHANGES = '# Changes\n- Version 1.1: export to CSV\n- Version 1.0: first release\n'
HOSTS = '# office\n10.0.0.1 printer\n# lab\n10.0.0.7 scope\n10.0.0.8 camera # on the roof\n'
LETTER = 'Dear Ann,\n\nthe meeting is on Monday at 9.\nPlease bring the plans.\n\nBest regards,\nTom\n'

TASKS = (
    Task(
        id='edits/constant',
        prompt='In settings.py, change TIMEOUT from 30 to 45. Change nothing else.',
        files={'settings.py': SETTINGS},
        verify=becomes({'settings.py': SETTINGS.replace('TIMEOUT = 30', 'TIMEOUT = 45')}),
        right={'settings.py': SETTINGS.replace('TIMEOUT = 30', 'TIMEOUT = 45')},
        wrong=({'settings.py': SETTINGS.replace('30', '45')}, {'settings.py': 'TIMEOUT = 45\n'}),
    ),
    Task(
        id='edits/one-of-two',
        prompt='In inventory.txt, set the number of bolts to 20. The number of bolts-long stays as it is.',
        files={'inventory.txt': INVENTORY},
        verify=becomes({'inventory.txt': INVENTORY.replace('bolts: 12', 'bolts: 20')}),
        right={'inventory.txt': INVENTORY.replace('bolts: 12', 'bolts: 20')},
        wrong=(
            {'inventory.txt': INVENTORY.replace('12', '20')},
            {'inventory.txt': INVENTORY.replace('bolts-long: 12', 'bolts-long: 20')},
        ),
    ),
    Task(
        id='edits/bug',
        prompt='The function mean in stats.py is wrong: it must divide by the number of values. Correct it.',
        files={'stats.py': STATS},
        verify=becomes({'stats.py': STATS.replace('(len(values) - 1)', 'len(values)')}),
        right={'stats.py': STATS.replace('(len(values) - 1)', 'len(values)')},
        wrong=({'stats.py': STATS.replace(' - 1', ' + 1')}, {'stats.py': STATS.partition('\n\n\n')[0]}),
    ),
    Task(
        id='edits/insert-line',
        prompt='In CHANGES.md, insert the line "- Version 1.2: faster search" directly below the line "# Changes".',
        files={'CHANGES.md': CHANGES},
        verify=becomes({'CHANGES.md': CHANGES.replace('Changes\n', 'Changes\n- Version 1.2: faster search\n')}),
        right={'CHANGES.md': CHANGES.replace('Changes\n', 'Changes\n- Version 1.2: faster search\n')},
        wrong=(
            {'CHANGES.md': f'{CHANGES}- Version 1.2: faster search\n'},
            {'CHANGES.md': CHANGES.replace('1.1', '1.2')},
        ),
    ),
    Task(
        id='edits/delete-lines',
        prompt='Remove the lines of hosts.conf that begin with #. Keep all other lines as they are.',
        files={'hosts.conf': HOSTS},
        verify=becomes({'hosts.conf': '10.0.0.1 printer\n10.0.0.7 scope\n10.0.0.8 camera # on the roof\n'}),
        right={'hosts.conf': '10.0.0.1 printer\n10.0.0.7 scope\n10.0.0.8 camera # on the roof\n'},
        wrong=(
            {'hosts.conf': '10.0.0.1 printer\n10.0.0.7 scope\n'},
            {'hosts.conf': '10.0.0.1 printer\n10.0.0.7 scope\n10.0.0.8 camera\n'},
        ),
    ),
    Task(
        id='edits/sentence',
        prompt='In letter.txt, move the meeting to Tuesday at 10. Keep the rest of the letter.',
        files={'letter.txt': LETTER},
        verify=becomes({'letter.txt': LETTER.replace('Monday at 9', 'Tuesday at 10')}),
        right={'letter.txt': LETTER.replace('Monday at 9', 'Tuesday at 10')},
        wrong=(
            {'letter.txt': LETTER.replace('Monday', 'Tuesday')},
            {'letter.txt': 'the meeting is on Tuesday at 10.\n'},
        ),
    ),
)
"""The tasks."""
