"""Tokens of many providers are redacted completely and labelled with their kind, without false positives."""

from __future__ import annotations

import base64
import json
import random
import re
from collections.abc import Mapping

import pytest
from pydantic import JsonValue

from pydantic_deep.audit import redact
from pydantic_deep.audit._token_shapes import named_shapes, token_shapes

HEX = '0a1b2c3d4e5f6789' * 12
LETTERS = 'q7w8e9r1t2y3u4i5o6p' * 12
MIXED = 'aB3dE6gH9jK2mN5pQ8sT' * 12
UUID = '3f2b8c1d-4e5a-4b6c-8d7e-9f0a1b2c3d4e'

TOKENS: Mapping[str, tuple[str, ...]] = {
    '1password secret key': ('A3-ABCDE1-ABCDE2FGHIJ-ABCD3-ABCD4-ABCD5',),
    '1password account token': (f'ops_eyJ{MIXED}',),
    'adobe client secret': (f'p8e-{LETTERS[:32]}',),
    'age secret key': (f'AGE-SECRET-KEY-1{"QPZRY9X8GF2TVDW0S3JN" * 3}'[:74],),
    'alibaba access key id': (f'LTAI{LETTERS[:20]}',),
    'atlassian api token': (f'ATATT3{MIXED[:186]}', f'ATATT3{MIXED[:40]}-_=x'),
    'authress service client access key': (f'sc_{LETTERS[:12]}.{LETTERS[:5]}.acc_{LETTERS[:12]}.{LETTERS[:40]}',),
    'azure ad client secret': (f'aB38Q~{MIXED[:34]}'.replace('8Q', '7Q'),),
    'clojars api token': (f'CLOJARS_{LETTERS[:60]}',),
    'clojars deploy token': (f'CLOJARS_{HEX[:60]}',),
    'cloudflare origin ca key': (f'v1.0-{HEX[:24]}-{HEX[:146]}',),
    'databricks access token': (f'dapi{HEX[:32]}',),
    'digital ocean token': (f'doo_v1_{HEX[:64]}', f'dor_v1_{HEX[:64]}'),
    'doppler api key': (f'dp.pt.{MIXED[:43]}',),
    'duffel api token': (f'duffel_test_{LETTERS[:43]}', f'duffel_live_{MIXED[:43]}'),
    'dynatrace api token': (f'dt0c01.{LETTERS[:24].upper()}.{LETTERS[:64].upper()}',),
    'easypost api token': (f'EZAK{LETTERS[:54]}',),
    'easypost test api token': (f'EZTK{MIXED[:54]}',),
    'flutterwave encryption key': (f'FLWSECK_TEST-{HEX[:12]}', f'FLWSECK_TEST-{HEX[:32]}'),
    'flyio access token': (f'fo1_{MIXED[:43]}', f'fm1r_{MIXED[:120]}', f'fm2_{MIXED[:120]}=='),
    'frameio api token': (f'fio-u-{LETTERS[:64]}',),
    'gitlab token': (f'glptt-{HEX[:40]}', f'glrt-{MIXED[:20]}', f'gldt-{MIXED[:20]}'),
    'grafana token': (f'glc_{MIXED[:40]}',),
    'harness api key': (f'pat.{MIXED[:22]}.{HEX[:24]}.{MIXED[:20]}', f'sat.{MIXED[:22]}.{HEX[:24]}.{MIXED[:20]}'),
    'hashicorp terraform token': (f'{MIXED[:14]}.atlasv1.{MIXED[:70]}',),
    'hashicorp tf api token': (f'{MIXED[:14]}.atlasv1.{MIXED[:60]}', f'{MIXED[:14]}.atlasv1.{LETTERS[:64]}='),
    'heroku key': (f'HRKU-AA{MIXED[:58]}',),
    'huggingface organization api token': (f'api_org_{"abcdefghijklmnopq" * 2}', f'api_org_{MIXED[:34]}'),
    'infracost api token': (f'ico-{MIXED[:32]}',),
    'intra42 client secret': (f's-s4t2ud-{HEX[:64]}', f's-s4t2af-{HEX[:64]}'),
    'jwt': (f'ey{MIXED[:30]}.ey{MIXED[:60]}.{MIXED[:43]}', f'eyJ{MIXED[:30]}.{LETTERS[:60]}.{MIXED[:43]}'),
    'linear api key': (f'lin_api_{MIXED[:40]}',),
    'maxmind license key': (f'{MIXED[:6]}_{MIXED[:29]}_mmk',),
    'microsoft teams webhook': (
        f'https://acme.webhook.office.com/webhookb2/{UUID}@{UUID}/IncomingWebhook/{HEX[:32]}/{UUID}',
    ),
    'newrelic key': (f'NRAK-{LETTERS[:27].upper()}',),
    'octopus deploy api key': (f'API-{LETTERS[:26].upper()}',),
    'openshift user token': (f'sha256~{MIXED[:43]}',),
    'plaid api token': (f'access-sandbox-{UUID}', f'access-production-{UUID}'),
    'planetscale key': (f'pscale_tkn_{MIXED[:43]}', f'pscale_pw_{MIXED[:43]}', f'pscale_oauth_{MIXED[:43]}'),
    'postman key': (f'PMAK-{HEX[:24]}-{HEX[:34]}',),
    'prefect api token': (f'pnu_{MIXED[:36]}',),
    'pulumi personal access token': (f'pul-{HEX[:40]}',),
    'readme api token': (f'rdme_{LETTERS[:70]}',),
    'rubygems api key': (f'rubygems_{HEX[:48]}',),
    'scalingo api token': (f'tk-us-{MIXED[:48]}',),
    'brevo api key': (f'xkeysib-{HEX[:64]}-{LETTERS[:16]}',),
    'sentry user auth token': (f'sntryu_{HEX[:64]}',),
    'settlemint application access token': (f'sm_aat_{MIXED[:16]}',),
    'settlemint personal access token': (f'sm_pat_{MIXED[:16]}',),
    'settlemint service access token': (f'sm_sat_{MIXED[:16]}',),
    'shippo api token': (f'shippo_live_{HEX[:40]}', f'shippo_test_{HEX[:40]}'),
    'shopify token': (f'shpss_{HEX[:32]}', f'shppa_{HEX[:32]}'),
    'sourcegraph access token': (f'sgp_{HEX[:40].upper()}',),
    'square access token': (f'EAAA{MIXED[:60]}',),
    'stripe access token': (f'sk_prod_{MIXED[:24]}',),
    'twilio key': (f'SK{HEX[:32]}',),
    'typeform api token': (f'tfp_{MIXED[:59]}',),
    'hashicorp vault token': (f'hvs.{MIXED[:95]}', f'hvb.{MIXED[:150]}'),
}
"""Tokens recognized by their shape, keyed by the replacement label."""

NAMED: Mapping[str, tuple[str, str]] = {
    'adafruit api key': ('ADAFRUIT_IO_KEY', LETTERS[:32]),
    'airtable api key': ('airtable', LETTERS[:17]),
    'algolia api key': ('algolia-admin', LETTERS[:32]),
    'atlassian api token': ('jira', f'{LETTERS[:20]}{HEX[:4]}'),
    'bitbucket client secret': ('bitbucket', MIXED[:64]),
    'cisco meraki api key': ('meraki', HEX[:40]),
    'cloudflare api key': ('cloudflare', LETTERS[:40]),
    'codecov access token': ('codecov', LETTERS[:32]),
    'cohere api token': ('cohere', MIXED[:40]),
    'coinbase access token': ('coinbase', LETTERS[:64]),
    'confluent access token': ('confluent', LETTERS[:16]),
    'datadog access token': ('datadog', LETTERS[:40]),
    'discord api token': ('discord', HEX[:64]),
    'discord client secret': ('discord', LETTERS[:32]),
    'dropbox api token': ('dropbox', LETTERS[:15]),
    'etsy access token': ('etsy', LETTERS[:24]),
    'facebook secret': ('facebook', HEX[:32]),
    'fastly api token': ('fastly', MIXED[:32]),
    'heroku api key': ('heroku', UUID),
    'hubspot api key': ('hubspot', UUID),
    'jfrog identity token': ('artifactory', LETTERS[:64]),
    'linkedin client secret': ('linkedin', LETTERS[:16]),
    'lob api key': ('lob', f'live_{HEX[:35]}'),
    'mailgun signing key': ('mailgun', f'{HEX[:32]}-{HEX[:8]}-{HEX[:8]}'),
    'mapbox api token': ('mapbox', f'pk.{LETTERS[:60]}.{LETTERS[:22]}'),
    'mattermost access token': ('mattermost', LETTERS[:26]),
    'netlify access token': ('netlify', MIXED[:43]),
    'okta access token': ('okta', f'00{MIXED[:40]}'),
    'sidekiq secret': ('BUNDLE_GEMS__CONTRIBSYS__COM', 'cafebabe:deadbeef'),
    'sonar api token': ('sonar.login', LETTERS[:40]),
    'squarespace access token': ('squarespace', UUID),
    'twitch api token': ('twitch', LETTERS[:30]),
    'twitter api key': ('twitter', LETTERS[:25]),
    'yandex api key': ('yandex', f'AQVN{MIXED[:36]}'),
    'zendesk secret key': ('zendesk', LETTERS[:40]),
}
"""Values recognized by the name of their provider, keyed by the replacement label."""

COMMANDS: Mapping[str, tuple[str, str, str]] = {
    'curl, options in one': ('curl -su me:', 'hunter2', ' https://example.com'),
    'curl, more of them': ('curl -fsSLu me:', 'hunter2', ' https://example.com'),
    'curl, after an address': ("curl 'https://example.com/?a=1&b=2' -u me:", 'hunter2', ''),
    'curl, over lines': ('curl https://example.com \\\n  -u me:', 'hunter2', ''),
    'an element': ('<apiKey value="', 'hunter2', '"/>'),
    'an element with more': ("<x:apiKey id='3' value='", 'hunter2', "' />"),
    'a value before its name': ('<setting value="', 'hunter2', '" name="apiKey"/>'),
    'a quote in a value': ('<add key="Password" value="', "it's hunter2", '" />'),
    'blocks of characters': ('<password><![CDATA[', 'hunter2', ']]></password>'),
    'smbclient': ('smbclient -U me%', 'hunter2', ' //host/share'),
    'smbclient, of a domain': ('smbclient //host/share -U "DOMAIN\\me%', 'hunter2', '"'),
    'smbclient, in one word': ('smbclient -NUme%', 'hunter2', ' //host/share'),
    'smbclient, in words': ('smbclient --user=me%', 'hunter2', ' //host/share'),
    'rpcclient': ('rpcclient -Ume%', 'hunter2', ' host'),
    'net': ('net rpc info -U me%', 'hunter2', ''),
    'bundle': ('bundle config set gems.contribsys.com ', 'cafebabe:deadbeef', ''),
    'a gem': ('https://', 'cafebabe:deadbeef', '@gems.contribsys.com/'),
    'a name of two words': ('discord token = "', 'not a word', '"'),
    'a name in one': ("const discordToken = '", 'hunter2', "';"),
    'slack': ('https://hooks.slack.com/triggers/', f'T0000/{HEX[:40]}', ''),
}

PLAIN = (
    'commit 4b1d0a1b2c3d4e5f67890a1b2c3d4e5f67890a1b\nAuthor: me <me@example.com>\n',
    f'Merge {HEX[:40]} into main; see {HEX[:7]}..{HEX[8:15]} and sha256:{HEX[:64]}.',
    f'session {UUID}, run {UUID.upper()}',
    '/usr/share/icons/ico-large/tk-us-keyboard/pul-request/api_org_chart.py',
    'Sentry, Linear and Discord: the keys are in the vault. Heroku = a host; dropbox: a box, twitter = gone.',
    'self.dropbox = DropboxClientV2(confluent=SchemaRegistry1, linkedin=None)',
    'discord.py==2.3.2\nsentry-sdk>=1.40,<3 ; datadog: 0.49.1\nalgolia = "^4.22.1"',
    'pnu_ and rdme_ and tfp_, fio-u-, duffel_test_: prefixes alone; EZAKIEL and EZTK.',
    'access-production-servers, access-sandbox-1; sm_pat_terns; sgp_bank; API-FIRST-DESIGN-IN-2024',
    'curl -su https://example.com; curl --user-agent x; net use; the net is 100% up -U',
    'bundle config set path vendor/bundle',
    '<apiKey required="true"/><setting name="title" value="hunter2"/><value key="a">b</value>',
    'smbclient -L host -N',
    'if token == "abc":\n    tokenizer = "o200k"',
    's.getComputedTextLengthNow(s.selection)',
    'eyebrows.eyelashes.eyes and eyeglasses-frame.component.ts',
)


@pytest.mark.parametrize(('kind', 'token'), [(kind, token) for kind, tokens in TOKENS.items() for token in tokens])
@pytest.mark.parametrize('around', ['{}', 'it is {}, keep it', 'line\\n{}', '{{"output": "{}"}}', 'x={} y'])
def test_provider_tokens_are_redacted_completely_with_their_kind(kind: str, token: str, around: str) -> None:
    """Audit records contain no token of a known provider, at any position in a text."""
    assert redact(around.format(token)) == around.format(f'[redacted: {kind}]')


@pytest.mark.parametrize('kind', NAMED)
@pytest.mark.parametrize('around', ['{} = "{}"', 'export {}={}\n', '{{"{}": "{}"}}', '{} token: {}.', "{}: '{}',"])
def test_values_next_to_a_provider_name_are_redacted(kind: str, around: str) -> None:
    """Keys that only their provider's name identifies are redacted."""
    name, secret = NAMED[kind]

    found = redact(around.format(name, secret))

    assert secret not in found
    assert found == around.format(name, f'[redacted: {kind}]')


@pytest.mark.parametrize('kind', NAMED)
def test_provider_name_may_be_a_json_key(kind: str) -> None:
    name, secret = NAMED[kind]
    values: list[JsonValue] = [{name: secret}, {'name': name, 'value': secret}, [[name, secret]]]

    for value in values:
        assert secret not in json.dumps(redact(value))
        assert redact(redact(value)) == redact(value)
    assert redact({name: 'a plain word'}) == {name: 'a plain word'}
    assert redact({name: 7}) == {name: 7}


@pytest.mark.parametrize('name', COMMANDS)
def test_passwords_in_commands_and_xml_elements_are_redacted(name: str) -> None:
    """Passwords in command lines and XML elements are redacted."""
    before, secret, after = COMMANDS[name]

    found = redact(before + secret + after)

    assert re.fullmatch(re.escape(before) + r'\[redacted: [a-z ]+\]' + re.escape(after), found)
    assert redact(found) == found


@pytest.mark.parametrize('text', PLAIN)
def test_text_with_a_provider_name_but_no_secret_is_unchanged(text: str) -> None:
    """Prose, commit hashes, UUIDs, paths and programs are not redacted."""
    assert redact(text) == text


def test_images_are_unchanged() -> None:
    image = base64.b64encode(random.Random(7).randbytes(60_000)).decode()
    media: JsonValue = {'kind': 'binary', 'data': image, 'media_type': 'image/png'}

    assert redact(media) == media
    assert redact(f'<img src="data:image/png;base64,{image}">') == f'<img src="data:image/png;base64,{image}">'


def test_token_prefixes_are_scanned_in_linear_time() -> None:
    """A million characters of each shape's prefix, for which a quadratic scan would take hours."""
    begins = [re.sub(r'.*\(\?P<secret>|\(\?:|\(\?i:|\(\?i\)|[\[({].*|\\', '', shape) for _, shape in token_shapes()]
    names = [re.sub(r'^\(\?i:(\(\?:|\(\?-i:)?|[|)\[(].*', '', shape) for _, shape in named_shapes()]
    for seed in (''.join(begins), '-'.join(begins), ' = '.join(names), ''.join(f'{name}=x' for name in names)):
        assert len(seed) > 300
        assert isinstance(redact(seed * (1_000_000 // len(seed))), str)


@pytest.mark.parametrize('seed', ['<password ', 'value="x" ', 'name="token" ', 'smbclient -U ', 'net -U %', 'curl \\\n -u ',
                                  'a a token = ', 'adafruit = ', 'eyAAAAAAAAAAAAAAAAAA.ey/', 'bundle config a '])  # fmt: skip
def test_hostile_commands_and_xml_elements_are_scanned_in_linear_time(seed: str) -> None:
    assert isinstance(redact(seed * (1_000_000 // len(seed))), str)
