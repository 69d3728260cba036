"""Work in parts, each of which needs much text and has a short result: a subagent keeps the text out of the context.

All parts together are longer than the context of a small local model.
"""

from __future__ import annotations

from ._task import Task, becomes
from ._text import hide

SENTENCES = 320
"""Length of a report: about 12,000 characters, or 2,600 tokens."""

REQUEST_LIMIT = 24
"""Each of four subagents needs two to four requests."""

COSTS = {
    'north': 'In total the region spent 410 euros.',
    'south': 'All its bills came to 250 euros.',
    'east': 'The whole year cost the region 90.',
    'west': 'Its expenses were 150 overall.',
}
"""Sentences that one search does not find."""

REPORTS = {f'reports/{name}.txt': hide(text, SENTENCES, seed) for seed, (name, text) in enumerate(COSTS.items())}
DECISIONS = {
    'garden': 'plant two trees',
    'kitchen': 'buy a stove',
    'library': 'open on Sundays',
    'parking': 'close the gate',
}
MINUTES = {
    f'minutes/{name}.txt': hide(f'It was decided to {decision}.', SENTENCES, seed)
    for seed, (name, decision) in enumerate(DECISIONS.items(), start=10)
}
DECIDED = '\n'.join(f'{name}: {decision}' for name, decision in DECISIONS.items())
AUTHORS = {
    'intro': 'This section was written by Ada Park.',
    'methods': 'Li Wen is responsible for these words.',
    'results': 'The author thanks her readers: Sam Roe.',
}
DRAFTS = {f'drafts/{name}.txt': hide(text, SENTENCES, seed) for seed, (name, text) in enumerate(AUTHORS.items(), 20)}

TASKS = (
    Task(
        id='delegation/costs',
        prompt='Each of the four long reports in the folder reports has one sentence on what its region spent in total. '
        'Handle each report separately, then write the sum of the four amounts, only the number, to total.txt.',
        files=REPORTS,
        verify=becomes({'total.txt': '900'}),
        right={'total.txt': '900\n'},
        wrong=({'total.txt': '750'}, {'total.txt': '410\n250\n90\n150\n'}),
        request_limit=REQUEST_LIMIT,
    ),
    Task(
        id='delegation/decisions',
        prompt='Each of the four long texts in the folder minutes has one sentence that begins with "It was decided to". '
        'Handle each text separately. Then write decisions.txt with one line for each, in alphabetical order, like '
        '"garage: paint the door" for minutes/garage.txt.',
        files=MINUTES,
        verify=becomes({'decisions.txt': DECIDED}),
        right={'decisions.txt': f'{DECIDED}\n'},
        wrong=({'decisions.txt': DECIDED.replace('garden: ', '')}, {'decisions.txt': DECIDED.partition('\n')[0]}),
        request_limit=REQUEST_LIMIT,
    ),
    Task(
        id='delegation/authors',
        prompt='In each long text in the folder drafts, one sentence names the author of the section. Handle each text '
        'separately. Then write the names of the authors to authors.txt, one in each line, in alphabetical order.',
        files=DRAFTS,
        verify=becomes({'authors.txt': 'Ada Park\nLi Wen\nSam Roe'}),
        right={'authors.txt': 'Ada Park\nLi Wen\nSam Roe\n'},
        wrong=({'authors.txt': 'Li Wen\nSam Roe\nAda Park'}, {'authors.txt': 'Ada Park'}),
        request_limit=REQUEST_LIMIT,
    ),
)
"""The tasks."""
