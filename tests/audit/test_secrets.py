"""Keys of many providers are found by their shape, and other secrets by their context."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from pydantic_deep.audit import redact

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


@pytest.mark.parametrize('name', [*SHAPED, *BESIDE])
def test_redaction_is_idempotent(name: str) -> None:
    text = SHAPED[name][0] if name in SHAPED else ''.join(BESIDE[name])
    once = redact({'a': text, 'password': text, 'b': json.dumps({'token': text})})

    assert redact(once) == once
