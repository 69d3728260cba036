"""Secrets are redacted by name and by shape, in linear time, without false positives."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from pydantic_deep.audit import Redactor, redact

RANDOM = 'Zm9vYmFyQmF6MTIzNDU2Nzg5MGFiY2RlZg'
"""Letters and digits like those of a generated key."""

PEM = '-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMIIEow/IBA+\nAAKC==\n-----END RSA PRIVATE KEY-----'

SHAPED: Mapping[str, tuple[str, str]] = {
    'anthropic': (f'sk-ant-api03-{RANDOM}', 'anthropic key'),
    'openai': (f'sk-proj-{RANDOM}', 'api key'),
    'groq': (f'gsk_{RANDOM}', 'api key'),
    'hugging face': (f'hf_{RANDOM}', 'api key'),
    'sendgrid': (f'SG.{RANDOM}.{RANDOM}', 'api key'),
    'our server': (f'pd_0198-aa_{RANDOM}', 'api key'),
    'aws': ('AKIAIOSFODNN7EXAMPLE', 'aws key'),
    'github': (f'ghp_{RANDOM}', 'github token'),
    'github, fine-grained': (f'github_pat_{RANDOM}', 'github token'),
    'gitlab': ('glpat-Zm9vYmFyQmF6MTIzNDU2', 'gitlab token'),
    'slack': ('xoxb-123456789012-abcdefABCDEF', 'slack token'),
    'google': ('AIzaSyD-1234567890abcdefghijklmnopqrstu', 'google key'),
    'google, oauth': (f'ya29.{RANDOM}', 'google key'),
    'stripe': ('sk_live_1234567890abcdef', 'stripe key'),
    'jwt': ('eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w', 'jwt'),
    'private key': (PEM, 'private key'),
    'telegram': (f'123456789:AAF{RANDOM}', 'telegram token'),
    'discord': (f'MTIzNDU2Nzg5MDEyMzQ1Njc4.GabcDE.{RANDOM}', 'discord token'),
    'twilio': ('SK' + 32 * 'a', 'twilio key'),
    'databricks': ('dapi' + 16 * '0a', 'databricks access token'),
    'shopify': ('shpat_' + 16 * '0a', 'shopify token'),
    'notion': (f'ntn_{RANDOM}', 'notion token'),
    'notion, before': (f'secret_{RANDOM}', 'notion token'),
    'vault': (f'hvs.{RANDOM}', 'hashicorp vault token'),
    'grafana': (f'glsa_{RANDOM}_12345678', 'grafana service account token'),
    'grafana cloud': (f'glc_{RANDOM}', 'grafana token'),
    'mailgun': ('key-' + 16 * '0a', 'mailgun key'),
    'linear': (f'lin_api_{RANDOM}', 'linear api key'),
    'figma': (f'figd_{RANDOM}', 'figma personal access token'),
    'postman': ('PMAK-' + 12 * '0a' + '-' + 17 * '0a', 'postman key'),
    'docker': (f'dckr_pat_{RANDOM}', 'docker access token'),
    'terraform': (f'{RANDOM[:14]}.atlasv1.{RANDOM * 2}'[:90], 'hashicorp terraform token'),
    'private key, cut': (PEM[:70], 'private key'),
    'sentry': (f'sntrys_{RANDOM}', 'api key'),
    'netlify': (f'nfp_{RANDOM}', 'api key'),
    'atlassian': (f'ATATT3{RANDOM}', 'atlassian api token'),
}

BESIDE: Mapping[str, tuple[str, str, str]] = {
    'slack webhook': ('https://hooks.slack.com/services/', 'T0000/B0000/XXXXXXXXXXXX', ''),
    'basic': ('Authorization: ', 'Basic dXNlcjpwYXNzd29yZA==', '\n'),
    'bearer': ('Bearer ', RANDOM, ''),
    'cookie': ('Set-Cookie: ', 'id=a3fWa; Secure', '\r\n'),
    'url': ('postgres://me:', 'p@ss:word', '@host/db'),
    'signed url': ('https://bucket/file?a=1&X-Amz-Signature=', '5f0c2b7e9a', '&b=2'),
    'google api': ('/v1beta/models?key=', 'abcdefgh1', ''),
    'environment': ('export AWS_SECRET_ACCESS_KEY=', 'wJalrXUtnFEMI/K7MDENG', ' X=1'),
    'a word': ('DB_PASSWORD=', 'correcthorse', ' X=1'),
    'assignment': ("client_secret = '", 'not a word', "'"),
    'json in a text': ('curl -d \'{"user": "me", "password": "', 'not-a-word', '"}\''),
    'json in json': ('said "{\\"api_key\\": \\"', 'not-a-word', '\\"}"'),
    'header': ('x-api-key: ', 'not-a-word', ''),
    'yaml': ('db:\n  - host: localhost\n    db_password: ', 'hunter2!', '  # changed in May\r\n    port: 1\n'),
    'yaml, in words of Java': ('dbPassword: ', 'hunter2', ''),
    'argument': ('mysql --host h --password ', 'hunter2', ' --port 1'),
    'argument, of a name': ('--client-secret ', 'hunter2', ''),
    'mysql': ('MYSQL_PWD=', 'hunter2', ' mysql'),
    'mysql -p': ('mysql -u root -p', 'hunter2', ' db'),
    'mysqldump -p': ("mysqldump --opt -p'", 'hunter2', "' db > a.sql"),
    'curl -u': ('curl -s -u me:', 'hunter2', ' https://example.com'),
    'curl --user': ("curl -X POST --user 'me:", 'hunter2', "' https://example.com"),
    'sshpass': ('sshpass -p ', 'hunter2', ' ssh me@host'),
    'redis-cli': ('redis-cli -h host -a ', 'hunter2', ' ping'),
    'docker login': ('docker login -u me -p ', 'hunter2', ' registry.io'),
    'openssl': ('openssl rsa -passin pass:', 'hunter2', ' -in key'),
    'netrc': ('machine example.com login me password ', 'hunter2', '\n'),
    'netrc, in lines': ('machine example.com\n  login me\n  password ', 'hunter2', '\n'),
    'netrc, default': ('default login anonymous password ', 'hunter2', ''),
    'pgpass': ('localhost:5432:db:me:', 'hunter2', '\n'),
    'pgpass, of all': ('*:*:*:postgres:', 'hunter2', ''),
    'a token of nobody': ('TOKEN=', 'abc', ' ./run'),
    'a pass of nobody': ('DB_PASS=', 'abc', ''),
    'ini': ('[db]\nuser = me\npassword = ', 'letmein', '\nhost = localhost'),
    'ini, a token': ('token = ', 'letmein2', ''),
    'toml': ('token = "', 'not a word', '"'),
    'properties': ('spring.datasource.password=', 'hunter2', '\n'),
    'aws': ('aws_secret_access_key = ', 'wJalrXUtnFEMI/K7MDENG', ''),
    'xml': ('<server><password>', 'correct horse', '</password></server>'),
    'xml, with a namespace': ('<ns:apiKey type="x">', 'hunter2', '</ns:apiKey>'),
    'xml, an attribute': ('<user name="x" password="', 'hunter2', '"/>'),
    'xml, beside a key': ('<add key="DbPassword" value="', 'hunter2', '" />'),
    'url, of a token': ('https://', RANDOM, '@github.com/a/b'),
    'url, of nobody': ('redis://:', 'hunter2', '@localhost:6379/0'),
    'odbc': ('Server=s;Uid=u;Pwd=', 'hunter2', ';'),
    'sql': ("CREATE USER me WITH PASSWORD '", 'hunter2', "'"),
    'go': ('password := "', 'hunter2', '"'),
    'typescript': ('const apiKey: string = "', 'hunter2', '"'),
    'php': ("'password' => '", 'hunter2', "',"),
    'datadog': ('curl -H "DD-API-KEY: ', 16 * '0a', '"'),
    'json, escaped twice': ('said {\\\\\\"password\\\\\\": \\\\\\"', 'hunter2', '\\\\\\"}'),
    'a quote in quotes': ('password="', "it's mine", '"'),
    'a backslash': ('"password": "', 'a\\\\b\\"c', '"'),
    'a bracket': ('password="', '[hunter2', '"'),
    'in the middle of a line': ('user = me password = ', 'hunter2x', ' host = localhost'),
    'before a comma': ('password = ', 'hunter2', ', user = me'),
    'after words': ('db password = ', 'hunTer2x9', ''),
    'a prompt': ('Enter password: ', 'hunter2', ''),
    'yaml, a token': ('stringData:\n  token: ', 'hunTer2x9', '\n'),
    'yaml, an environment': ('- name: DB_PASSWORD\n  value: ', 'hunter', '\n'),
    'curl, letters together': ("curl -su 'me:", 'hunter2', "' https://example.com"),
    'curl --oauth2-bearer': ('curl --oauth2-bearer ', 'hunter2', ' https://example.com'),
    'curl -b': ('curl -b "session=', 'hunter2', '" https://example.com'),
    'header of a command': ('curl -H "X-Auth-Token: ', 'hunter2', '" https://example.com'),
    'az': ('az login -u me -p ', 'hunter2', ' --tenant t'),
    'sqlcmd': ('sqlcmd -S h -U sa -P ', 'hunter2', ''),
    '7z': ('7z x -p', 'hunter2', ' a.7z'),
    'smbclient': ('smbclient //h/s -U me%', 'hunter2', ''),
    'npmrc': ('_auth = ', 'bWU6aHVudGVyMg==', '\n'),
    'xml, cdata': ('<password><![CDATA[', 'hun<ter>2', ']]></password>'),
    'a call that defines': ("define('DB_PASSWORD', '", 'hunter', "');"),
    'a bracket, in an environment': ('PASSWORD=', '[hunter2', ''),
}

PLAIN = (
    'task-management-and-deployment, risk-of-something-very-long',
    'the class sk-circle-fade-dot-animation',
    'password = get_password()',
    'if token == other: the password = one of many, the secret: patience',
    'pass = 3 of 7, token := next(tokens), the secret = a_word(1)',
    'What is my password? The secret is patience: token by token.',
    'def f(token: str, max_tokens=100, api_key=None) -> str: ...',
    'Bearer authentication-of-the-users is a scheme.',
    'API_KEY=$API_KEY PASSWORD={password} SECRET=<secret>',
    'https://example.com:8080/path?query=1&key=name',
    '-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----',
    'see https://example.com/@user/12:30 and mail me@example.com',
    '\ud800 is no character',
    'password: required\napi_key: string\nsecret: !env\n',
    'password: 8 characters at least',
    'run --password and --token-file secret.txt, with PWD=/home/me7',
    '--password $PASSWORD1 --api-key <API_KEY_1> --secret --port 1234',
    'password = None\ntoken = settings.token\nsecret = secret_key\nself.token = next_token,\n',
    'connect(password=password, api_key=config.api_key, token=None)',
    '0198f3b2-7c4e-7d11-9c55-1f6a2b3c4d5e 5D41402ABC4B2A76B9719D911017C592',
    'sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08',
    'AD41402ABC4B2A76B9719D911017C592AD41402ABC4B2A76B9719D911017C592',
    'The default login and the password policy; mysql and curl are installed.',
    'main.py:1200:5: error: name:value',
    'a%20b &amp; c\\u0041 \u200b',
    '<token>$TOKEN</token>'.replace('$TOKEN', ''),
    'class A:\n    password: Annotated[\nb(password=auth[1], secret=Secret(x))',
    'mssql://<username>:<password>@<host> and pg://{user}:{password}@h and pg://$U:${PW}@h\nACCESS_TOKEN = 1256',
    'curl -u $USER https://example.com && mysql -u root db',
)


@pytest.mark.parametrize('name', SHAPED)
@pytest.mark.parametrize('around', ['{}', 'my key is {}, keep it', 'line\\n{}', '{{"output": "{}"}}'])
def test_provider_keys_are_found_by_their_shape(name: str, around: str) -> None:
    secret, kind = SHAPED[name]

    assert redact(around.format(secret)) == around.format(f'[redacted: {kind}]')


@pytest.mark.parametrize('name', BESIDE)
def test_only_the_secret_is_redacted_and_its_context_remains(name: str) -> None:
    before, secret, after = BESIDE[name]

    found = redact(before + secret + after)

    assert found.startswith(before + '[redacted: ')
    assert found.endswith(']' + after)


@pytest.mark.parametrize('text', PLAIN)
def test_text_that_resembles_a_secret_is_unchanged(text: str) -> None:
    assert redact(text) == text


def test_lone_surrogate_does_not_hide_a_secret() -> None:
    assert redact(f'\ud800 ghp_{RANDOM} ü') == '\ud800 [redacted: github token] ü'


@pytest.mark.parametrize(
    'key',
    ['password', 'dbPassword', 'API_KEY', 'x-api-key', 'apiKey', 'Authorization', 'clientSecret', 'access_token',
     'secret_access_key', 'Set-Cookie', 'privateKey', 'credentials', 'auth', 'PGPASSWORD'],
)  # fmt: skip
def test_values_are_redacted_by_key_name_at_any_depth(key: str) -> None:
    found = redact({'a': [{'b': {key: {'c': 'x'}}}], key: 'y'})

    assert json.dumps(found).count('[redacted: ') == 2
    assert '"x"' not in json.dumps(found)


def test_token_counts_are_not_redacted() -> None:
    """Numbers such as `max_tokens` are not redacted by the word `token`."""
    counts: JsonValue = {
        'max_tokens': 5,
        'input_tokens': 7,
        'token_count': 3,
        'token': 9,
        'pass': 12,
        'pass_rate': '0.5',
        'tokenizer': 'o200k',
        'token_type': 'bearer',
    }

    assert redact(counts) == counts


def test_empty_values_and_flags_are_not_redacted() -> None:
    empty: JsonValue = {'password': None, 'api_key': '', 'has_secret': True, 'credentials': [], 'author': 'me'}

    assert redact(empty) == empty


def test_numeric_passwords_are_redacted() -> None:
    assert redact({'password': 1234}) == {'password': '[redacted: password]'}


def test_secrets_in_a_json_string_are_redacted() -> None:
    arguments = json.dumps({'path': '/a', 'headers': {'authorization': 'abc'}})

    assert json.loads(redact(arguments)) == {'path': '/a', 'headers': {'authorization': '[redacted: authorization]'}}


def test_escaped_json_does_not_hide_secrets() -> None:
    assert json.loads(redact(r'{"\u0070assword": "a", "b": "\u0067hp_' + RANDOM + '"}')) == {
        'password': '[redacted: password]',
        'b': '[redacted: github token]',
    }


def test_duplicate_json_keys_do_not_hide_secrets() -> None:
    assert 'hunter' not in redact('{"password": "hunter22", "password": null}')


def test_json_string_without_secrets_is_unchanged() -> None:
    text = '{ "a":1.0,\n"b" : "\\u00e9"}'

    assert redact(text) == text


def test_secrets_in_keys_are_redacted() -> None:
    assert redact({f'ghp_{RANDOM}': 1}) == {'[redacted: github token]': 1}


def test_media_are_not_redacted() -> None:
    data = base64.urlsafe_b64encode(b'\x89PNG' + 3000 * b'\x00' + b'\xff\x02\x82' * 40).decode()
    long = base64.urlsafe_b64encode(3999 * b'\x00').decode() + 'AKIAIOSFODNN7EXAMPLE'
    for each in (data, long, base64.b64encode(b'\xff\xfe\xfd').decode(), ''):
        media: dict[str, JsonValue] = {'kind': 'binary', 'data': each, 'media_type': 'image/png'}
        assert redact({'content': media}) == {'content': media}
        assert redact({**media, 'pass': 'x'}) == {**media, 'pass': '[redacted: pass]'}


@pytest.mark.parametrize(
    'media',
    [
        {'data': f'ghp_{RANDOM}', 'media_type': 'image/png'},
        {'data': f'the key is ghp_{RANDOM}', 'media_type': 'text/plain'},
        {'data': f'ghp_{RANDOM}'},
        {'data': {'password': f'ghp_{RANDOM}'}, 'media_type': 'image/png'},
        {'text': f'ghp_{RANDOM}', 'media_type': 'image/png'},
    ],
)
def test_binary_value_that_is_not_media_is_scanned(media: dict[str, JsonValue]) -> None:
    """A value with `kind: binary` is scanned unless it is base64-encoded media."""
    assert RANDOM not in json.dumps(redact({'kind': 'binary', **media}))


def test_text_media_are_scanned() -> None:
    data = base64.urlsafe_b64encode(b'a: 1\npassword=hunter2\n').decode()
    found: Any = redact({'kind': 'binary', 'media_type': 'text/plain', 'data': data})
    assert base64.urlsafe_b64decode(found['data']) == b'a: 1\npassword=[redacted: secret]\n'
    plain: JsonValue = {'kind': 'binary', 'media_type': 'text/plain', 'data': base64.b64encode(b'hi').decode()}
    assert redact(plain) == plain


@pytest.mark.parametrize(
    'value',
    [
        {'password': '[redacted: hunter2]'},
        {'password': '[redacted: password] hunter2'},
        'password="[redacted: hunter2]"',
        'password="[redacted: password]hunter2"',
        '<password>[redacted: hunter2]</password>',
        {'name': 'password', 'value': 'hunter2'},
        {'Key': 'DB_PASSWORD', 'Value': 'hunter2'},
        [['X-Auth-Token', 'hunter2'], ['Accept', '*']],
        ['run', '--password', 'hunter2'],
        ['mysql', '-u', 'root', '-phunter2'],
        ['curl', '-u', 'me:hunter2', 'https://example.com'],
        'body=a%26password%3Dhunter2',
        'a%2526password%253Dhunter2',
        r'said \u0022password\u0022: \u0022hunter2\u0022',
        r'pass\x77ord=hunter2',
        '&quot;password&quot;: &quot;hunter2&quot;',
        'pass\u200bword=hunter2',
        'pass\u00adword=hun\u200dter2',
        ['a\tb', '--password', 'hunter2'],
    ],
)
def test_disguised_secrets_are_redacted(value: JsonValue) -> None:
    """Values that look redacted, follow their name in an object, pair or argument list, or have escaped characters are
    redacted like any other.
    """
    assert 'ter2' not in json.dumps(redact(value))


def test_pairs_and_arguments_without_secrets_are_unchanged() -> None:
    plain: list[JsonValue] = [
        [['a', 1], ['b', None]],
        ['ls', '-la', '--color', 'never'],
        ['-a\tb', 'c'],
        {'name': 'title', 'value': 'hunter2'},
        {'name': 'password'},
        {'value': 'x', 'key': 7},
        ['username', 'password', 'email'],
        ['--token', 3],
        [],
    ]
    assert redact(plain) == plain


def test_redact_does_not_modify_its_argument() -> None:
    value: dict[str, Any] = {'a': {'password': 'x'}, 'b': [f'ghp_{RANDOM}']}
    before = json.dumps(value)

    redact(value)

    assert json.dumps(value) == before


def test_deeply_nested_value_is_redacted_as_a_whole() -> None:
    deep: JsonValue = 'hunter2'
    for _ in range(200):
        deep = [deep]

    assert 'hunter2' not in json.dumps(redact(deep))


@pytest.mark.parametrize('opening', ['[', '{"a":'])
def test_invalid_json_is_scanned_as_text(opening: str) -> None:
    assert redact(opening * 100_000 + f'ghp_{RANDOM}') == opening * 100_000 + '[redacted: github token]'


def test_custom_names_and_patterns_are_redacted() -> None:
    mine = Redactor(names=['card number'], patterns={'acme key': r'acme_(\d{4})+'})

    assert mine({'cardNumber': 4, 'card_number_of_me': 'x', 'a': 'an acme_12345678!', 'password': 'x'}) == {
        'cardNumber': '[redacted: card number]',
        'card_number_of_me': '[redacted: card number]',
        'a': 'an [redacted: acme key]!',
        'password': '[redacted: password]',
    }


def test_invalid_pattern_is_refused_immediately() -> None:
    with pytest.raises(ValueError, match=r"'\(' is not a valid RE2 expression"):
        Redactor(patterns={'x': '('})


@pytest.mark.parametrize('name', [*SHAPED, *BESIDE])
def test_redaction_is_idempotent(name: str) -> None:
    text = SHAPED[name][0] if name in SHAPED else ''.join(BESIDE[name])
    once = redact({'a': text, 'password': text, 'b': json.dumps({'token': text})})

    assert redact(once) == once


@given(
    st.recursive(
        st.none() | st.booleans() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_redaction_of_any_json_value_is_idempotent(value: JsonValue) -> None:
    once = redact(value)

    assert redact(once) == once


def test_base64_encoded_secrets_are_not_found() -> None:
    """Known limit: base64 is not decoded."""
    encoded = base64.b64encode(b'the password is hunter2').decode()

    assert redact(encoded) == encoded


@pytest.mark.parametrize(
    'seed',
    ['AKIAIOSFODNN7EXAMPLE ', 'eyJ-AKIAIOSFODNN7EXAMPLE ', 'eyJaaaaaaaa.', '-----BEGIN PRIVATE KEY-----', 'sk-ant-',
     'password="', 'password=', '://a:', 'cookie: ', '-----BEGIN PRIVATE KEY-----a: ', '?key=', '{"a":',
     'curl ', 'curl -u a:b ', 'machine a login ', '<password>', 'a:5432:', 'MNOA.', '12345678:', '%70', '\\u0070', '&amp;',
     'password : a ', 'name="password" ', '//', 'mysql -p', 'glsa_', 'PASSWORD=[', '-----BEGIN', 'LS0tLS1CRUdJTiB'],
)  # fmt: skip
def test_hostile_texts_are_scanned_in_linear_time(seed: str) -> None:
    """A million characters each, for which a quadratic scan would take hours."""
    assert isinstance(redact(seed * (1_000_000 // len(seed))), str)
