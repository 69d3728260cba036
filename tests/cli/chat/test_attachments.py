"""Files that a prompt mentions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic_ai.messages import BinaryContent
from typer.testing import Result

from pydantic_deep.cli.chat._attachments import (
    MAX_ATTACHMENTS,
    MAX_IMAGE_BYTES,
    MAX_TEXT_BYTES,
    AttachedPrompt,
    RefusedAttachmentError,
    attach,
)
from pydantic_deep.testing import ScriptedModel
from pydantic_deep_backends import LocalBackend

Invoke = Callable[..., Result]

PNG = b'\x89PNG\r\n\x1a\n' + bytes(20)

pytestmark = pytest.mark.anyio


async def attached(prompt: str, work: Path) -> AttachedPrompt:
    return await attach(prompt, LocalBackend(work), str(work))


@pytest.mark.parametrize(
    'mention', ['@poem.txt', '@/poem.txt', '@"poem.txt"', '@./poem.txt', '@poem.txt.', '(see) @poem.txt,']
)
async def test_text_is_appended_to_the_prompt(work: Path, mention: str) -> None:
    """The contents of a text file follow the prompt, with the path, however the path is written."""
    prompt = f'Read {mention} now'
    sent = await attached(prompt, work)
    assert (sent.text, sent.images, sent.notices) == (
        f'{prompt}\n\n<file path="poem.txt">\nrose\nviolet\n\n</file>',
        [],
        [],
    )


async def test_each_file_is_attached_once(work: Path) -> None:
    """A file that is mentioned twice is sent once, and the absolute path of the computer names it too."""
    (work / 'two words.txt').write_text('two\n')
    sent = await attached(f'@poem.txt @{work}/poem.txt and @"two words.txt"', work)
    assert sent.text.count('<file ') == 2


async def test_images_are_sent_as_such(work: Path) -> None:
    """An image is a part of the prompt, recognized by its name or its first bytes."""
    for name in ('a.png', 'b'):
        (work / name).write_bytes(PNG)
    sent = await attached('Compare @a.png with @b', work)
    assert (sent.text, sent.notices) == ('Compare @a.png with @b', [])
    assert [(image.media_type, image.data) for image in sent.images] == [('image/png', PNG)] * 2


async def test_encodings_are_recognized(work: Path) -> None:
    """A text in another encoding is sent as text, and an invalid byte as U+FFFD."""
    (work / 'latin.txt').write_bytes('Schöne Grüße aus dem Süden, für die Bäume'.encode('latin-1'))
    assert 'Grüße' in (await attached('@latin.txt', work)).text


@pytest.mark.parametrize(
    'prompt', ['@property is a decorator', 'mail @nobody.', '@ alone', 'a@poem.txt', '@~nobody/x', '@...']
)
async def test_other_words_are_sent_as_text(work: Path, prompt: str) -> None:
    """A word that names no file stays in the prompt; after a space, a sentence says so."""
    sent = await attached(prompt, work)
    assert sent.text == prompt
    assert all(notice.endswith(' names no file of the directory, and is sent as text.') for notice in sent.notices)
    assert len(sent.notices) == (prompt not in ('@ alone', 'a@poem.txt'))


@pytest.mark.parametrize('mention', ['@../secret.txt', '@{outside}', '@link.txt', '@folder/../../secret.txt'])
async def test_files_outside_of_the_directory_are_refused(work: Path, mention: str) -> None:
    """A path that leads outside, also by a link or from the root of the computer, is refused with a sentence."""
    outside = work.parent / 'secret.txt'
    outside.write_text('secret')
    (work / 'folder').mkdir()
    (work / 'link.txt').symlink_to(outside)
    mention = mention.format(outside=outside)
    with pytest.raises(RefusedAttachmentError) as refused:
        await attached(f'Read {mention}', work)
    assert str(refused.value) == (
        f'{mention} is outside of {work}. Only files of the working directory can be attached.'
    )


@pytest.mark.parametrize(
    ('name', 'size_bytes', 'limit'),
    [('a.txt', MAX_TEXT_BYTES + 1, '200,000'), ('a.png', MAX_IMAGE_BYTES + 1, '5,000,000')],
)
async def test_large_files_are_refused(work: Path, name: str, size_bytes: int, limit: str) -> None:
    """A file above the limit of its kind is refused before it is read."""
    with (work / name).open('wb') as file:
        file.truncate(size_bytes)
    with pytest.raises(
        RefusedAttachmentError, match=f'at most {limit} can be attached. Ask the agent to read the file.'
    ):
        await attached(f'@{name}', work)


async def test_files_that_cannot_be_sent_are_refused(work: Path) -> None:
    """A directory, and a file that is neither text nor an image, are refused."""
    (work / 'data.bin').write_bytes(bytes(100))
    with pytest.raises(RefusedAttachmentError, match=r'@data.bin is neither text nor a PNG, JPEG, GIF or WebP image.'):
        await attached('@data.bin', work)
    with pytest.raises(RefusedAttachmentError, match=r'@. is a directory. Attach its files.'):
        await attached('@.', work)


async def test_an_unreadable_file_is_refused(work: Path) -> None:
    """A file that the backend cannot read is refused with the reason."""

    class BrokenBackend(LocalBackend):
        async def read_bytes(self, path: str) -> bytes:
            raise PermissionError(13, 'Permission denied', path)

    with pytest.raises(RefusedAttachmentError, match=r'@poem.txt cannot be read: Permission denied.'):
        await attach('@poem.txt', BrokenBackend(work), str(work))


async def test_many_files_are_refused(work: Path) -> None:
    """A prompt has a maximum number of attached files."""
    names = [f'{number}.txt' for number in range(MAX_ATTACHMENTS + 1)]
    for name in names:
        (work / name).write_text('x')
    with pytest.raises(RefusedAttachmentError, match=r'The prompt mentions 21 files. Attach at most 20.'):
        await attached(' '.join(f'@{name}' for name in names), work)


def test_a_chat_sends_attached_files(invoke: Invoke, work: Path) -> None:
    """The model of a chat receives texts and images; a refused prompt is not sent, and the chat continues."""
    (work / 'a.png').write_bytes(PNG)
    (work.parent / 'secret.txt').write_text('secret')
    model = ScriptedModel('One.', 'Two.')
    result = invoke('chat', model=model, stdin='Read @poem.txt\nRead @../secret.txt\nSee @a.png and @nothing\n')
    assert result.stdout == 'One.\nTwo.\n'
    assert 'rose' in str(model.requests[0].messages)
    contents = [part.content for part in model.requests[1].messages[-1].parts if part.part_kind == 'user-prompt']
    assert [type(item) for item in contents[0]] == [str, BinaryContent]
    assert f'@../secret.txt is outside of {work}.' in result.stderr
    assert '@nothing names no file of the directory, and is sent as text.\n' in result.stderr
    assert 'See @a.png and @nothing\n[media]' in invoke('show').stdout
