"""Files of which other people have named the URLs."""

from __future__ import annotations

import pytest
from pydantic_ai import BinaryContent

from pydantic_deep.web import DownloadError, FileDownloader

from .conftest import PAGE, Site

pytestmark = pytest.mark.anyio

PNG = b'\x89PNG\r\n\x1a\n'


def local(**options: object) -> FileDownloader:
    """Return a downloader that may read from the site, which is on this machine."""
    return FileDownloader(**{'allow': ['127.0.0.1'], 'private_addresses': True, **options})  # type: ignore[arg-type]


async def test_a_file_has_the_bytes_and_the_type_of_its_server(site: Site) -> None:
    """The file is what the server of the URL sends."""
    site.pages['/a'] = (200, {'Content-Type': 'image/png'}, PNG)
    assert await local().download(site.url('/a')) == BinaryContent(PNG, media_type='image/png')


@pytest.mark.parametrize(
    ('path', 'stated', 'media_type'),
    [
        ('/a.png?size=2', None, 'image/png'),
        ('/a.png', 'image/webp', 'image/webp'),
        ('/a', None, 'application/octet-stream'),
    ],
)
async def test_a_server_that_does_not_know_the_type(site: Site, path: str, stated: str | None, media_type: str) -> None:
    """The type is the one that the caller states, else the one of the name."""
    site.pages[path] = (200, {'Content-Type': 'application/octet-stream'}, PNG)
    assert (await local().download(site.url(path), media_type=stated)).media_type == media_type


async def test_only_allowed_domains_are_requested(site: Site) -> None:
    """A domain allows its subdomains, and nothing else is requested, also not after a redirect."""
    site.redirect('/away', site.url(host='localhost'))
    downloader = local(allow=['example.org', '127.0.0.1'])
    assert [
        downloader.allows(url) for url in ('https://a.example.org/b', 'https://example.com', 'no url', 'http://[')
    ] == [
        True,
        False,
        False,
        False,
    ]
    for url in (site.url(host='localhost'), 'no url'):
        with pytest.raises(DownloadError, match='The domain of the URL'):
            await downloader.download(url)
    with pytest.raises(DownloadError, match='not public or not allowed'):
        await downloader.download(site.url('/away'))
    assert site.requested == ['127.0.0.1/away']


async def test_private_addresses_are_not_requested(site: Site) -> None:
    """By default, an allowed domain that leads to this machine is refused."""
    with pytest.raises(DownloadError, match='not public or not allowed'):
        await local(private_addresses=False).download(site.url())
    assert site.requested == []


async def test_failures_are_explained_without_the_url(site: Site) -> None:
    """Text, an error of the server, a large file and a slow server are refused, each with its reason."""
    site.pages['/large'] = (200, {'Content-Type': 'image/png'}, b'x' * 100)
    for path, reason in (('/tea', 'leads to text'), ('/none', 'status 404'), ('/large', 'larger than 99 bytes')):
        with pytest.raises(DownloadError, match=reason) as refused:
            await local(max_bytes=max(99, len(PAGE) if path == '/tea' else 0)).download(site.url(path))
        assert '127.0.0.1' not in str(refused.value)
    site.may_answer.clear()
    with pytest.raises(DownloadError, match=r'within 0\.01 seconds'):
        await local(timeout_seconds=0.01).download(site.url())


def test_wrong_domains_and_a_missing_extra_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mistakes show at the start, not at the first download."""
    with pytest.raises(ValueError, match='not a domain'):
        FileDownloader(allow=['https://example.org/'])

    def find_spec(name: str) -> None:
        return None

    monkeypatch.setattr('pydantic_deep.web._download.find_spec', find_spec)
    with pytest.raises(ModuleNotFoundError, match=r'versioned-deep-agents\[web\]'):
        FileDownloader(allow=['example.org'])
