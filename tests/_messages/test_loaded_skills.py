"""Skills that a user loads by name: their form in the prompt, and the prompt as the user typed it."""

from __future__ import annotations

import pytest

from pydantic_deep._messages.loaded_skills import loaded_skill, typed_prompt

HAIKU = loaded_skill('haiku', 'Five,\n\nseven, five.')
PDF = loaded_skill('pdf', 'Fill it.')


@pytest.mark.parametrize(
    ('prompt', 'typed'),
    [
        (f'{HAIKU}\n\nOn rain\n\nand snow', '/haiku On rain\n\nand snow'),
        (f'{HAIKU}\n\n{PDF}\n\nOn rain', '/haiku /pdf On rain'),
        ('On rain', 'On rain'),
        (f'Explain this:\n\n{HAIKU}\n\n!', f'Explain this:\n\n{HAIKU}\n\n!'),
        ('<skill name="haiku">', '<skill name="haiku">'),
        ('', ''),
    ],
)
def test_loaded_skills_are_their_names_in_a_typed_prompt(prompt: str, typed: str) -> None:
    assert typed_prompt(prompt) == typed
