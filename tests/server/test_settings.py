"""Settings from arguments, environment and file. Errors name the setting without its value."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from pydantic_deep.server import InvalidSettingsError, ServerSettings, load_settings


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / 'server.toml'
    path.write_text('port = 9000\nmax_runs = 7\nallowed_hosts = ["deep.example"]\n')
    return path


def test_defaults_are_for_local_use() -> None:
    settings = load_settings()
    assert (settings.host, settings.port, settings.cors_origins) == ('127.0.0.1', 8000, ())
    assert settings.allowed_hosts == ('localhost', '127.0.0.1', '[::1]')


def test_file_sets_fields(file: Path) -> None:
    settings = load_settings(str(file))
    assert (settings.port, settings.max_runs, settings.allowed_hosts) == (9000, 7, ('deep.example',))


def test_arguments_precede_the_environment_and_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('PYDANTIC_DEEP_SERVER_PORT', '9001')
    monkeypatch.setenv('PYDANTIC_DEEP_SERVER_MAX_RUNS', '8')
    settings = load_settings(file, port=9002)
    assert (settings.port, settings.max_runs) == (9002, 8)


def test_lists_in_the_environment_are_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('PYDANTIC_DEEP_SERVER_CORS_ORIGINS', '["https://a.example"]')
    assert load_settings().cors_origins == ('https://a.example',)


def test_other_environment_variables_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('PORT', '1')
    monkeypatch.setenv('PYDANTIC_DEEP_STORE', 'memory:')
    assert (load_settings().port, load_settings().store) == (8000, None)


def test_unknown_setting_in_a_file_is_named(file: Path) -> None:
    file.write_text('max_run = 7\n')
    with pytest.raises(InvalidSettingsError, match=r"there is no setting 'max_run'\. Settings: host, port") as caught:
        load_settings(file)
    assert 'max_runs' in str(caught.value)


def test_invalid_setting_is_named_without_its_value(file: Path) -> None:
    file.write_text('port = "hunter2"\n')
    with pytest.raises(InvalidSettingsError, match='port: Input should be a valid integer') as caught:
        load_settings(file)
    assert 'hunter2' not in str(caught.value)


def test_validation_error_of_the_model_hides_the_value() -> None:
    with pytest.raises(ValidationError) as caught:
        ServerSettings(max_runs=-77)
    assert '-77' not in str(caught.value)


def test_invalid_list_in_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('PYDANTIC_DEEP_SERVER_CORS_ORIGINS', 'https://a.example')
    with pytest.raises(InvalidSettingsError, match=r'"cors_origins".*Lists in the environment are JSON'):
        load_settings()


def test_missing_settings_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingsError, match=r"there is no file '.*none\.toml'"):
        load_settings(tmp_path / 'none.toml')


@pytest.mark.parametrize(
    ('content', 'problem'),
    [
        (b'port 9000', 'as TOML'),
        (b'\xff\xfe', 'as TOML'),
        (b'port = ' + b'9' * 5000, 'as TOML'),
        (b'port = ' + b'[' * 5000, 'it is nested too deeply'),
    ],
    ids=['no TOML', 'no UTF-8', 'long number', 'deep'],
)
def test_settings_file_with_invalid_toml_is_named(file: Path, content: bytes, problem: str) -> None:
    file.write_bytes(content)
    with pytest.raises(InvalidSettingsError, match=rf"server\.toml' cannot be read:? {problem}"):
        load_settings(file)


@pytest.mark.parametrize('host', ['a.example', '*.a.example', '*'])
def test_hosts_may_be_patterns(host: str) -> None:
    assert ServerSettings(allowed_hosts=(host,)).allowed_hosts == (host,)


@pytest.mark.parametrize('host', ['a.*.example', '*a.example', 'a*'])
def test_wildcard_inside_a_host_is_refused(host: str) -> None:
    with pytest.raises(InvalidSettingsError, match='`\\*` is allowed only alone or as a prefix'):
        load_settings(allowed_hosts=(host,))


def test_store_url_is_not_shown_in_the_repr() -> None:
    assert 'secret' not in repr(ServerSettings(store='postgresql://me:secret@db/x'))


def test_every_setting_has_a_description_and_a_unit() -> None:
    undocumented = [name for name, field in ServerSettings.model_fields.items() if not field.description]
    assert undocumented == []
    for name, field in ServerSettings.model_fields.items():
        if name.endswith('_bytes'):
            assert 'in bytes' in str(field.description)


def test_domains_of_files_are_checked_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong domain and a missing extra are errors of the setting, not of the first request."""
    assert load_settings(file_url_domains=['example.org', '*']).file_url_domains == ('example.org', '*')
    with pytest.raises(InvalidSettingsError, match=r'file_url_domains: .* is not a domain'):
        load_settings(file_url_domains=['https://example.org'])

    def find_spec(name: str) -> None:
        return None

    monkeypatch.setattr('pydantic_deep.web._download.find_spec', find_spec)
    with pytest.raises(InvalidSettingsError, match=r'file_url_domains: .*versioned-deep-agents\[web\]'):
        load_settings(file_url_domains=['example.org'])


def test_memory_needs_the_harness(monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting `memory` is refused with what to install; nothing is imported before."""

    def find_none(name: str) -> None:
        return None

    monkeypatch.setattr('pydantic_deep.server._settings.find_spec', find_none)  # an installation without the harness
    with pytest.raises(InvalidSettingsError, match=r'memory: .*pip install pydantic-ai-harness'):
        load_settings(memory=True)
    assert not load_settings(memory=False).memory
