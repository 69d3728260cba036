"""URLs that `open_dispatcher` opens or refuses."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pydantic_deep.dispatch import open_dispatcher

pytestmark = pytest.mark.anyio

FORMS = r'"postgresql://user@host/database".*"temporal://host:port/namespace"'


@pytest.mark.parametrize(
    'url', ['', 'postgresql', 'postgres:/x', 'redis://user:secret@host', 'temporal', 'sqlite:///a']
)
async def test_other_url_is_refused_with_the_forms(url: str) -> None:
    with pytest.raises(ValueError, match=FORMS) as caught:
        async with open_dispatcher(url):
            pass
    assert 'secret' not in str(caught.value)


@pytest.mark.parametrize(
    ('library', 'url', 'extra'),
    [('pgqueuer', 'postgresql://host/d', 'queue'), ('asyncpg', 'postgresql://host/d', 'queue'), ('temporalio', 'temporal://host', 'temporal')],
)  # fmt: skip
async def test_missing_library_is_named_with_its_extra(
    library: str, url: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [*sys.modules]:
        if name in ('pydantic_deep.dispatch.postgres', 'pydantic_deep.dispatch.temporal') or name.startswith(library):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)  # as if it were not installed
    with pytest.raises(ModuleNotFoundError, match=rf'needs `{library}.*versioned-deep-agents\[{extra}\]'):
        async with open_dispatcher(url):
            pass


@pytest.mark.slow
def test_importing_the_package_imports_no_engine() -> None:
    program = 'import sys, pydantic_deep, pydantic_deep.dispatch; print({"pgqueuer", "temporalio", "asyncpg"} & {*sys.modules})'
    done = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, check=True)
    assert done.stdout == 'set()\n'
