"""Questions about several files. The answer is a new file."""

from __future__ import annotations

from ._task import Task, becomes

CODE = {
    'shop/cart.py': 'from shop.money import parse_amount\n\n\ndef total(lines):\n    return sum(map(parse_amount, lines))\n',
    'shop/money.py': 'def format_amount(cents):\n    return f"{cents / 100:.2f}"\n\n\ndef parse_amount(text):\n    return round(float(text) * 100)\n',
    'shop/tax.py': 'RATE = 0.19  # TODO: by country\n\n\ndef tax(cents):\n    return round(cents * RATE)\n',
    'shop/mail.py': 'def send(address, text):\n    raise NotImplementedError  # TODO: use the queue\n',
    'shop/users.py': 'def find_user(name):\n    return {"name": name}\n',
    'tests/test_money.py': 'from shop.money import parse_amount\n\n# TODO: negative amounts\n\n\ndef test_parse_amount():\n    assert parse_amount("1.50") == 150\n',
    'README.md': '# Shop\n\nThe function parse_amount reads prices.\n',
}
NOTES = {
    'notes/april.txt': 'The walls of the kitchen are blue now.\n',
    'notes/august.txt': 'We went to the sea. The sky was blue.\n',
    'notes/june.txt': 'The bicycle got a red bell.\n',
    'notes/may.txt': 'Bought green paint, and a brush.\n',
    'notes/october.txt': 'A blue envelope came from the bank.\n',
}
CONFIG = {
    'config/app.ini': '[app]\nname = reader\nworkers = 4\n',
    'config/queue/default.ini': '[queue]\nretry_delay = 15\nretry_limit = 6\n',
    'config/queue/README.txt': 'The retry_limit was 3 until March.\n',
    'config/mail.ini': '[mail]\nlimit = 100\n',
}

TASKS = (
    Task(
        id='searches/definition',
        prompt='In which file is the function parse_amount defined? Write its path, and nothing else, to answer.txt.',
        files=CODE,
        verify=becomes({'answer.txt': 'shop/money.py'}),
        right={'answer.txt': 'shop/money.py\n'},
        wrong=({'answer.txt': 'shop/cart.py'}, {'answer.txt': 'It is in shop/money.py.'}),
    ),
    Task(
        id='searches/count',
        prompt='How many of the files contain the word TODO? Write only the number to count.txt.',
        files=CODE,
        verify=becomes({'count.txt': '3'}),
        right={'count.txt': '3\n'},
        wrong=({'count.txt': '2'}, {'count.txt': 'three'}),
    ),
    Task(
        id='searches/list',
        prompt='Which files in the folder notes mention the colour blue? Write their names, like march.txt, to blue.txt: '
        'one in each line, in alphabetical order.',
        files=NOTES,
        verify=becomes({'blue.txt': 'april.txt\naugust.txt\noctober.txt'}),
        right={'blue.txt': 'april.txt\naugust.txt\noctober.txt\n'},
        wrong=({'blue.txt': 'april.txt\naugust.txt\n'}, {'blue.txt': 'notes/april.txt\nnotes/august.txt\n'}),
    ),
    Task(
        id='searches/setting',
        prompt='Find the value of the setting retry_limit below config and write only the value to answer.txt.',
        files=CONFIG,
        verify=becomes({'answer.txt': '6'}),
        right={'answer.txt': '6'},
        wrong=({'answer.txt': '3'}, {'answer.txt': 'retry_limit = 6'}),
    ),
)
"""The tasks."""
