"""`ServerSettings`: the settings of the operator, from arguments, environment and a TOML file, in this order."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, ClassVar, cast

from pydantic import AfterValidator, Field, NonNegativeFloat, PositiveFloat, PositiveInt, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from pydantic_deep.deps import MAX_FILE_BYTES
from pydantic_deep.dispatch import check_dispatcher_url
from pydantic_deep.errors import DeepAgentError
from pydantic_deep.web import FileDownloader

ENVIRONMENT_PREFIX = 'PYDANTIC_DEEP_SERVER_'
"""The prefix of environment variables, as in `PYDANTIC_DEEP_SERVER_PORT`. Lists are JSON there: `["a.example"]`."""

LOOPBACK = ('localhost', '127.0.0.1', '[::1]')
"""The host names of a server on this machine."""


class InvalidSettingsError(DeepAgentError, ValueError):
    """A setting is unknown or invalid. The message omits values, because they may contain a password."""

    def __init__(self, problems: str) -> None:
        super().__init__(f'The settings of the server are invalid: {problems}')


def _host_pattern(text: str) -> str:
    if '*' in text.removeprefix('*.') and text != '*':
        raise ValueError('`*` is allowed only alone or as a prefix, as in `*.example.com`')
    return text


HostPattern = Annotated[str, AfterValidator(_host_pattern)]
"""A host name, `*.example.com` for all subdomains, or `*` for any host."""


def _domains(names: tuple[str, ...]) -> tuple[str, ...]:
    if names:
        try:
            FileDownloader(allow=names)
        except ModuleNotFoundError as error:
            raise ValueError(str(error)) from None
    return names


def _memory(has_memory: bool) -> bool:
    if has_memory and find_spec('pydantic_ai_harness') is None:
        raise ValueError('needs pydantic-ai-harness, which is not installed: `pip install pydantic-ai-harness`')
    return has_memory


def _directory(path: Path) -> Path:
    places = (path.absolute(), *path.absolute().parents)
    existing = next(each for each in places if os.path.exists(each))  # noqa: PTH110 - the method raises permission errors
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise ValueError(f'{str(existing)!r} is not a directory that this process can write')
    return path


Directory = Annotated[Path, AfterValidator(_directory)]
"""A directory that exists or can be created: otherwise a worker would fail each run that it takes."""


class ServerSettings(BaseSettings):
    """Settings of the server. The defaults suit one machine with a few users."""

    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX,
        extra='forbid',
        frozen=True,
        hide_input_in_errors=True,  # the URL of a store may contain a password
        use_attribute_docstrings=True,
    )

    # Used by `pydantic-deep serve` and `worker` only. An application that you create yourself ignores these.

    host: str = '127.0.0.1'
    """The address to listen on. Use a TLS proxy in front of any address except loopback."""
    port: int = Field(default=8000, ge=0, le=65535)
    """The port; 0 selects a free one."""
    store: str | None = Field(default=None, repr=False)
    """The URL of the store. Default: the store of the command line."""
    blobs: str | None = None
    """The URL of object storage for large contents of the store, such as `s3://bucket/prefix`. Default: that of the command
    line."""
    metrics_port: int | None = Field(default=None, ge=0, le=65535)
    """The port on which a worker serves its metrics at `/metrics`, without a key; 0 selects a free one. Default: none. A
    server serves its own on its port."""
    store_wait_seconds: NonNegativeFloat = 30
    """How long operations wait for a PostgreSQL server of the store that is restarted or unreachable."""
    agents: str | None = None
    """The agent, or a dictionary of agents by name, as `package.module:attribute`."""

    access_log: bool = False
    """Whether to log each request, without its key."""

    # Access

    allowed_hosts: tuple[HostPattern, ...] = LOOPBACK
    """The accepted host names (the `Host` header); `*` for any."""
    cors_origins: tuple[str, ...] = ()
    """The origins of web pages that may call the API from a browser, such as `https://app.example.com`."""
    requests_per_second: PositiveFloat = 20
    """The sustained number of requests per second of a key."""
    request_burst: PositiveInt = 100
    """The number of requests of a key that may exceed the sustained rate at once."""
    wrong_keys_per_minute: PositiveFloat = 30
    """The sustained number of requests with a wrong key per minute and address. A 64-bit IPv6 network counts as one
    address."""
    wrong_key_burst: PositiveInt = 20
    """The number of requests with a wrong key that may exceed the sustained rate at once."""
    memory: Annotated[bool, AfterValidator(_memory)] = False
    """Whether agents remember across conversations, for each owner separately. Needs pydantic-ai-harness."""
    mcp_answers: bool = False
    """Whether clients of MCP may answer approvals with the tool `answer_approval`, with which an agent can approve its own
    calls. By default only people answer: in a form of the client, on the page, or with the command line."""
    max_body_bytes: PositiveInt = 8 * 2**20
    """The maximum size of a request body in bytes, except for uploads."""
    max_upload_bytes: int = Field(default=MAX_FILE_BYTES, ge=1, le=MAX_FILE_BYTES)
    """The maximum size of an upload in bytes, limited by that of a file in a version."""

    examples: dict[str, tuple[Annotated[str, Field(min_length=1)], ...]] = {}
    """Prompts that the page offers before the first turn, by the names of agents."""

    # Webhooks

    webhook_key: str | None = Field(default=None, min_length=32, repr=False)
    """The key from which the secrets of webhooks are derived: 32 or more random characters, the same for all servers of a
    store. A changed key invalidates all webhooks. Default: there are no webhooks."""
    webhook_private_hosts: tuple[str, ...] = ()
    """The hosts that may receive webhooks at private addresses, and without encryption."""
    public_url: str | None = Field(default=None, pattern='^https?://')
    """The URL of the page as people open it, for links in webhooks."""
    file_url_domains: Annotated[tuple[str, ...], AfterValidator(_domains)] = ()
    """The domains, with their subdomains, from which the server fetches the images and files that clients of OpenAI,
    Anthropic and Google send by URL; `*` for any public address. Needs the extra `web`. Default: none."""

    # Runs

    max_runs: PositiveInt = 1000
    """The maximum number of concurrent runs."""
    max_runs_per_key: PositiveInt = 20
    """The maximum number of concurrent runs of one key."""
    max_iterations: PositiveInt | None = None
    """The maximum number of model requests of a turn, even if the client asks for more. Default: unlimited."""
    worker: bool = True
    """Whether this process executes runs, and takes over those of crashed processes. Without it, workers do."""
    worker_concurrency: PositiveInt = 32
    """The maximum number of queued and taken-over runs that this process executes at the same time."""
    dispatcher: Annotated[str, AfterValidator(check_dispatcher_url)] | None = Field(default=None, repr=False)
    """The URL of the engine that delivers runs to workers. Default: workers look for runs in the store."""
    work_dir: Directory | None = None
    """The parent of the directories of conversations on the machine of a server or worker, which fills them before turns
    and opens them without commands. Default: files are in memory, or where their versions say."""
    log_retention_seconds: NonNegativeFloat = 600
    """How long the log of an ended run is cached for clients that reconnect. After that, its events are rebuilt from
    the store."""
    log_memory_bytes: PositiveInt = 256 * 2**10
    """The maximum size of a log in memory, in bytes. A larger log is in a temporary file."""
    max_log_bytes: PositiveInt = 512 * 2**20
    """The maximum total size of the logs of ended runs in bytes. Beyond it, the oldest are dropped."""
    keepalive_seconds: PositiveFloat = 15
    """The idle time after which a stream sends a comment, or a blank line in the APIs of OpenAI, Anthropic and Google, so
    that proxies do not close it."""
    shutdown_seconds: NonNegativeFloat = 20
    """How long running turns may take to end when the server stops. After that, they are stored as interrupted; a worker
    gives them back, and another one continues them."""

    # Analytics

    max_sql_rows: PositiveInt = 10_000
    """The maximum number of rows in a response of `/api/sql`."""
    max_sql_bytes: PositiveInt = 64 * 2**20
    """The maximum size of a response of `/api/sql` in bytes."""
    sql_timeout_seconds: PositiveFloat = 30
    """The time limit of a query of `/api/sql`, after which its process is killed."""
    sql_memory_bytes: int = Field(default=2**30, ge=2**24)
    """The memory limit of a query of `/api/sql` in bytes, in addition to the tables."""
    max_sql_at_once: PositiveInt = 2
    """The maximum number of concurrent queries of `/api/sql`. Others are queued for ten seconds, then fail with 503."""


def load_settings(path: str | Path | None = None, **arguments: object) -> ServerSettings:
    """Load settings from arguments, environment and file, in this order of precedence.

    Args:
        path: A TOML file with fields of `ServerSettings`. By default, no file is read.
        **arguments: Fields, by name.

    Raises:
        InvalidSettingsError: The file cannot be read, or a name or value is invalid.
    """

    class WithFile(ServerSettings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, path)

    if path is not None and not Path(path).is_file():
        raise InvalidSettingsError(f'there is no file {str(path)!r}.')
    try:
        loaded = WithFile(**cast('dict[str, Any]', arguments))
    except (ValidationError, SettingsError) as error:
        raise InvalidSettingsError(_explain(error)) from None
    except (OSError, ValueError) as error:
        raise InvalidSettingsError(f'{str(path)!r} cannot be read as TOML: {error}') from None
    except RecursionError:  # its text depends on the release of Python
        raise InvalidSettingsError(f'{str(path)!r} cannot be read: it is nested too deeply.') from None
    return ServerSettings(**loaded.model_dump(exclude_unset=True))


def _explain(error: ValidationError | SettingsError) -> str:
    """Describe the problems without the values."""
    if isinstance(error, SettingsError):
        return f'{error}. Lists in the environment are JSON, such as ["a.example"].'
    known = ', '.join(ServerSettings.model_fields)
    problems: list[str] = []
    for problem in error.errors(include_input=False, include_url=False):
        name = '.'.join(map(str, problem['loc']))
        is_unknown = problem['type'] == 'extra_forbidden'
        problems.append(
            f'there is no setting {name!r}. Settings: {known}.'
            if is_unknown
            else f'{name}: {problem["msg"].removeprefix("Value error, ").rstrip(".")}.'
        )
    return ' '.join(problems)
