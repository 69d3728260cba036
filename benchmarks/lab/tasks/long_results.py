"""Files that are longer than one result: they must be searched, or read in pages."""

from __future__ import annotations

from ._task import Task, becomes
from ._text import sentences

TEXTS = sentences(3_000, seed=30)
"""Enough text for a file of 120,000 characters, or 26,000 tokens."""

LOG = '\n'.join(f'{number:04d} {text}' for number, text in enumerate(TEXTS, start=1)) + '\n'
ERROR = '1873 ERROR the disk of node seven is full'
LOG_WITH_ERROR = LOG.replace(LOG.splitlines()[1872], ERROR)
PARTS = [*TEXTS[:1_300], 'Total before discount: 318', *TEXTS[1_300:2_600], 'Discount: 18', *TEXTS[2_600:2_900]]

TASKS = (
    Task(
        id='long-results/error',
        prompt='log.txt is a long file. One of its lines has the word ERROR. Write this line to error.txt, as it is.',
        files={'log.txt': LOG_WITH_ERROR},
        verify=becomes({'error.txt': ERROR}),
        right={'error.txt': f'{ERROR}\n'},
        wrong=({'error.txt': 'ERROR'}, {'error.txt': ERROR.removeprefix('1873 ')}),
    ),
    Task(
        id='long-results/last-line',
        prompt='log.txt is a long file. Write the number at the beginning of its last line, and nothing else, to last.txt.',
        files={'log.txt': LOG},
        verify=becomes({'last.txt': '3000'}),
        right={'last.txt': '3000\n'},
        wrong=({'last.txt': '2000'}, {'last.txt': LOG.splitlines()[-1]}),
    ),
    Task(
        id='long-results/line',
        prompt='data.txt is a long file. Copy its line 1,500 to line.txt, as it is.',
        files={'data.txt': '\n'.join(TEXTS)},
        verify=becomes({'line.txt': TEXTS[1_499]}),
        right={'line.txt': f'{TEXTS[1_499]}\n'},
        wrong=({'line.txt': next(text for text in TEXTS if text != TEXTS[1_499])}, {'line.txt': '1500'}),
    ),
    Task(
        id='long-results/two-places',
        prompt='Somewhere in the long file offer.txt are a line with a total and a line with a discount. Subtract the '
        'discount from the total and write only the number to price.txt.',
        files={'offer.txt': '\n'.join(PARTS)},
        verify=becomes({'price.txt': '300'}),
        right={'price.txt': '300'},
        wrong=({'price.txt': '318'}, {'price.txt': '336'}),
    ),
)
"""The tasks."""
