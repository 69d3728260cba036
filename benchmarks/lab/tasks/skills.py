"""Work with rules that only a skill has, which must be loaded; and work to which a skill does not apply."""

from __future__ import annotations

from ._task import Task, becomes

RELEASE_NOTES = """---
name: release-notes
description: How this project writes release notes. Use it before you write RELEASE.txt.
---

# Release notes

A release note has exactly three lines:

1. `Release VERSION`
2. `Changes: NUMBER`, the number of changes, and not their texts
3. `Signed: build team`
"""
INVOICES = """---
name: invoices
description: The form of our invoices. Use it before you write an invoice.
---

# Invoices

The file is called `invoice-CUSTOMER.txt`, with the customer in small letters. It has exactly two lines:

1. `No. R-2026-` and the number of the order
2. the amount with two decimals, a space, and `EUR`: `12.00 EUR`
"""
NAMES = """---
name: file-names
description: How this team names new files. Use it before you create a file.
---

# Names of files

A new file is called `draft_` and its topic in small letters, and ends with `.md`. It is in the folder `incoming`.
"""
CHANGES = 'New in 3.1:\n- faster start\n- dark colours\n- fewer crashes\n- French texts\n'
ORDER = 'number: 77\ncustomer: Miller\namount: 120\n'
PAGE = 'Opening hours: 9 to 17\nPhone: 555 0100\n'
RELEASE = 'Release 3.1\nChanges: 4\nSigned: build team'
NOTE = 'The pump is loud.'

TASKS = (
    Task(
        id='skills/release',
        prompt='Write the release note for version 3.1 to RELEASE.txt. The changes are in changes.txt.',
        files={'skills/release-notes/SKILL.md': RELEASE_NOTES, 'changes.txt': CHANGES},
        verify=becomes({'RELEASE.txt': RELEASE}),
        right={'RELEASE.txt': f'{RELEASE}\n'},
        wrong=({'RELEASE.txt': CHANGES}, {'RELEASE.txt': 'Release 3.1\nChanges: 3\nSigned: build team\n'}),
    ),
    Task(
        id='skills/invoice',
        prompt='Write the invoice for the order in order.txt.',
        files={
            'skills/invoices/SKILL.md': INVOICES,
            'skills/release-notes/SKILL.md': RELEASE_NOTES,
            'order.txt': ORDER,
        },
        verify=becomes({'invoice-miller.txt': 'No. R-2026-77\n120.00 EUR'}),
        right={'invoice-miller.txt': 'No. R-2026-77\n120.00 EUR\n'},
        wrong=({'invoice.txt': 'No. R-2026-77\n120.00 EUR\n'}, {'invoice-miller.txt': 'No. R-2026-77\n120 EUR\n'}),
    ),
    Task(
        id='skills/file-name',
        prompt=f'Create a new file on the topic Pump with the sentence "{NOTE}"',
        files={'skills/file-names/SKILL.md': NAMES, 'skills/invoices/SKILL.md': INVOICES},
        verify=becomes({'incoming/draft_pump.md': NOTE}),
        right={'incoming/draft_pump.md': f'{NOTE}\n'},
        wrong=({'pump.md': NOTE}, {'draft_pump.md': NOTE}),
    ),
    Task(
        id='skills/not-needed',
        prompt='In page.txt, change the phone number to 555 0199.',
        files={'skills/invoices/SKILL.md': INVOICES, 'page.txt': PAGE},
        verify=becomes({'page.txt': PAGE.replace('0100', '0199')}),
        right={'page.txt': PAGE.replace('0100', '0199')},
        wrong=({'page.txt': 'Phone: 555 0199\n'}, {'page.txt': PAGE.replace('Phone', 'Fax')}),
    ),
)
"""The tasks."""
