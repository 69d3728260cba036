"""The names and formats of secrets, as a table.

This module has the formats of values next to a name, in a URL or on a command line, and of tokens whose kind is named
in records. `_token_shapes` has the tokens of other providers, generated from a published rule set. All expressions are
RE2 and match bytes. No expression may start a match again within text that it has already scanned in vain, so that
replacing all matches takes linear time, too.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Shape(NamedTuple):
    """The format of one kind of secret in text."""

    kind: str
    """The kind, which replaces the secret: `[redacted: kind]`."""
    expression: str
    """The RE2 expression. Its group `secret`, or the whole match without one, is redacted."""
    is_random: bool = False
    """Whether a match must also contain a digit or a capital letter, as words would match otherwise."""
    is_code: bool = False
    """Whether a match may also be program code, such as a variable name, which is not redacted."""


SECRET_NAMES: Final = (
    'password', 'passwords', 'passwd', 'passphrase', 'passcode', 'pgpassword', 'pwd', 'secret', 'secrets', 'credential', 'credentials',
    'authorization', 'auth', 'cookie', 'cookies', 'jwt', 'bearer', 'token', 'pass',
    'api key', 'apikey', 'access key', 'account key', 'private key', 'secret key', 'signing key', 'encryption key',
    'connection string',
)  # fmt: skip
"""Names of secrets, as words: a key is secret if it ends with one, or contains one that is not in `COUNTED_NAMES`."""

COUNTED_NAMES: Final = ('token', 'pass')
"""Names that mark a secret only at the end of a key. Their numeric values are counts and are not redacted."""

_START = r'(?:\b|\\[nrt])'
"""Matches where a key may start. The letter of an escaped line break would otherwise be taken for a part of the key."""

_NAME = (
    r'(?:pass(?:word|wd|phrase)|secret|(?:api|access|account|private|secret|signing|encryption)[_-]?key'
    r'|[_-]pwd|(?:[_-]|access|auth|refresh|api|id)token|authorization|x-goog-api-key|x-api-key)'
)
"""Names in text other than JSON: variables, headers and forms."""

_SHORT_NAME = rf'(?:{_NAME}|\b(?:token|pwd|pass)\b)'
"""The same with short names, which are matched only where a value is assigned."""

_WITH_DIGIT = r'[^\s"\'`;&,\\({<$]{2,}[0-9][^\s"\'`;&,\\)]*|[0-9][^\s"\'`;&,\\)]{3,}'
"""A value in the middle of a line. Passwords usually contain a digit, and words of a sentence do not."""

_XML_NAME = rf'(?:key|name)\s*=\s*["\'][a-z0-9_.:-]*{_SHORT_NAME}["\']'
"""The same in an XML attribute, next to another attribute with the value."""

_CONSTANT = r'(?:TOKEN|SECRET|PASSWORD|PASSWD|PASS|PASSPHRASE|CREDENTIALS?|(?:API|ACCESS|PRIVATE|SECRET)_?KEY)'
"""Names in environment variables."""

SHAPES: Final = (
    Shape(
        'private key',
        r'-----BEGIN[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:\s|\\[nr])*'
        r'(?:[A-Za-z-]{1,30}: [^\n\\]{0,200}(?:\r?\n|\\r|\\n)+)*[A-Za-z0-9+/=\s\\]*'
        r'(?:-----END[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?',
    ),
    Shape('anthropic key', _START + r'(?P<secret>sk-ant-[A-Za-z0-9_-]{16,})'),
    Shape('api key', _START + r'(?P<secret>sk-[A-Za-z0-9_-]{16,})', is_random=True),
    Shape('api key', _START + r'(?P<secret>(?:gsk_|xai-|pplx-|hf_|r8_|npm_|pypi-|dop_v1_|pylf_v1_)[A-Za-z0-9_-]{24,})'),
    Shape(
        'api key',
        _START + r'(?P<secret>(?:sntrys_|nfp_|FLWSECK-|EAACEdEose0cBA|FlyV1 fm[12]_)'
        r'[A-Za-z0-9_=+/-]{24,})',
    ),
    Shape('api key', _START + r'(?P<secret>SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,})'),
    Shape('api key', _START + r'(?P<secret>pd_[A-Za-z0-9-]{4,}_[A-Za-z0-9_-]{20,})'),
    Shape('aws key', _START + r'(?P<secret>(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16})\b'),
    Shape('github token', _START + r'(?P<secret>gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})'),
    Shape('gitlab token', _START + r'(?P<secret>gl[a-z]{2,5}-[A-Za-z0-9_-]{20,})', is_random=True),
    Shape('slack token', _START + r'(?P<secret>xox[a-z]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,})'),
    Shape('slack webhook', r'hooks\.slack\.com/(?:services|workflows|triggers)/(?P<secret>[A-Za-z0-9/_-]{20,})'),
    Shape('google key', _START + r'(?P<secret>AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,}|GOCSPX-[A-Za-z0-9_-]{20,})'),
    Shape('stripe key', _START + r'(?P<secret>(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9]{20,})'),
    Shape('jwt', _START + r'(?P<secret>eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)'),
    Shape('authorization', r'(?i)\bauthorization["\']?\s*[:=]\s*["\']?(?P<secret>(?:basic|digest|token|bearer)\s+[^\s"\'\[]{4,})'),
    Shape('authorization', r'(?i)\bbearer\s+(?P<secret>[A-Za-z0-9._~+/=-]{16,})', is_random=True),
    Shape('cookie', r'(?i)\bcookie["\']?: {0,4}(?P<secret>[^\s"\'][^\r\n"\'\\]{3,})'),
    Shape('notion token', _START + r'(?P<secret>(?:secret|ntn)_[A-Za-z0-9]{32,})', is_random=True),
    Shape('grafana token', _START + r'(?P<secret>glc_[A-Za-z0-9+/=_-]{24,})', is_random=True),
    Shape('mailgun key', _START + r'(?P<secret>key-[0-9a-f]{32})\b'),
    Shape('telegram token', r'(?:^|[^0-9A-Za-z_-]|/bot|\\[nrt])(?P<secret>[0-9]{8,10}:[A-Za-z0-9_-]{32,})', is_random=True),
    Shape('discord token', _START + r'(?P<secret>[MNO][A-Za-z0-9_-]{22,27}\.[A-Za-z0-9_-]{6,7}\.[A-Za-z0-9_-]{25,})'),
    Shape('password', r'://[^\s/:@"\'\\]*:(?P<secret>[^\s/"\'\\]+)@', is_code=True),
    Shape('password', r'://(?P<secret>[^\s/:@"\'\\?#]{16,})@', is_random=True),
    Shape(
        'signature',
        r'(?i)[?&](?:(?:x-amz-|x-goog-)?(?:signature|security-token)|sig|key|token)=(?P<secret>[^\s&"\'#\\]{8,})',
        is_random=True,
    ),
    Shape('secret', rf'(?i){_NAME}\\*["\']?\s*(?::\s*[a-z]+\s*)?(?::=|[:=]>?)\s*"(?P<secret>(?:[^"\r\n\\]|\\[^\r\n]){{2,}})'),
    Shape('secret', rf"(?i){_NAME}\\*[\"']?\s*(?::\s*[a-z]+\s*)?(?::=|[:=]>?)\s*'(?P<secret>(?:[^'\r\n\\]|\\[^\r\n]){{2,}})"),
    Shape('secret', rf'(?i){_NAME}\\+["\']\s*[:=]\s*\\+["\'](?P<secret>(?:[^"\'\r\n\\]|\\+[^"\'\r\n\\]){{2,}})'),
    Shape('secret', rf'(?i){_NAME}=(?P<secret>[^\s"\'`;&,\\({{<$][^\s"\'`;&,\\)]{{2,}})', is_code=True),
    Shape('secret', rf'(?:\b|_){_CONSTANT}=(?P<secret>[^\s"\'`;&,\\({{<$][^\s"\'`;&\\)]{{1,}})', is_code=True),
    Shape('secret', r'(?i)[;?&]pwd=(?P<secret>[^\s"\'`;&,\\({<$][^\s"\'`;&,\\)]{1,})'),
    Shape(
        'secret',
        rf'(?im)^[ \t-]*[a-z0-9_.-]*{_SHORT_NAME}[ \t]*:?=[ \t]*(?P<secret>[^\s"\'\\({{<$]{{2,}})[ \t\r]*$',
        is_code=True,
    ),
    Shape(
        'secret',
        rf'(?im)^[ \t-]*(?:[a-z0-9_.$-]+[ \t]+){{0,3}}[a-z0-9_.$-]*(?:{_SHORT_NAME}|token)[ \t]*:?=[ \t]*'
        r'["\'](?P<secret>[^"\'\r\n]{2,})["\'][;,]?[ \t\r]*$',
    ),
    Shape('secret', r'(?i)(?:-|\b)(?:api|auth|access)[_-]?(?:key|token): {1,4}(?P<secret>[A-Za-z0-9._~+/=-]{16,})', is_random=True),
    Shape('secret', rf'(?i){_SHORT_NAME}[ \t]{{1,4}}:?=[ \t]{{0,4}}(?P<secret>{_WITH_DIGIT})', is_code=True),
    Shape('secret', rf'(?im){_SHORT_NAME}: {{1,4}}(?P<secret>{_WITH_DIGIT})[ \t\r]*$', is_code=True),
    Shape('secret', r'(?i)["\'](?:[a-z0-9]{1,20}-){0,4}(?:token|key|secret|password): {0,4}(?P<secret>[^\s"\'\\]{4,})["\']'),
    Shape(
        'secret',
        rf'(?i)\b(?:define|set|setenv|putenv|setdefault)\(\s*["\'][a-z0-9_.-]*{_SHORT_NAME}["\']\s*,\s*["\'](?P<secret>[^"\'\r\n]+)',
    ),
    Shape(
        'secret',
        rf'(?i)\bname:[ \t]*["\']?[a-z0-9_.-]*{_SHORT_NAME}["\']?[ \t\r]*\n[ \t]*value:[ \t]*["\']?(?P<secret>[^\s"\']+)',
    ),
    Shape('secret', r'(?m)^[ \t]*_auth[ \t]*=[ \t]*(?P<secret>\S+)'),
    Shape('password', r"(?i)\b(?:password|identified by)\s+'(?P<secret>[^'\r\n]+)'"),
    Shape(
        'secret',
        rf'(?im)^[ \t-]*[a-z0-9_.-]*{_SHORT_NAME}: {{1,4}}(?P<secret>[^\s"\'\\({{<$][^\s"\'\\]{{3,}})'
        r'(?:[ \t]+#[^\n]*)?[ \t\r]*$',
        is_random=True,
        is_code=True,
    ),
    Shape(
        'secret',
        rf'(?im)(?:^|\s)--[a-z0-9-]*{_SHORT_NAME}[ \t]{{1,4}}["\']?(?P<secret>[^\s"\'\\({{<$-][^\s"\'\\]{{3,}})',
        is_random=True,
    ),
    Shape('secret', r'(?i)\b(?:x-goog-api-key|x-api-key): {0,4}(?P<secret>[^\s"\'\\]{4,})'),
    Shape('password', rf'(?i)<[a-z0-9_.:-]*{_SHORT_NAME}(?:\s[^<>]*)?>\s*(?P<secret>[^<>\s][^<>]*)</'),
    Shape('password', rf'(?i)<[a-z0-9_.:-]*{_SHORT_NAME}(?:\s[^<>]*)?>\s*<!\[CDATA\[(?P<secret>[^\]]+)\]\]>'),
    *(
        Shape('password', expression)
        for quoted in ('"(?P<secret>[^"]+)"', "'(?P<secret>[^']+)'")
        for expression in (
            rf'(?i)(?:<[a-z0-9_.:-]*{_SHORT_NAME}|{_XML_NAME})(?:\s[^<>]*?\s|\s*)(?:value|content|data)\s*=\s*{quoted}',
            rf'(?i)\svalue\s*=\s*{quoted}(?:\s[^<>]*?)?\s{_XML_NAME}',
        )
    ),
    Shape(
        'password',
        r'(?i)\b(?:curl|wget|http|https|xh)\s(?:(?:[^\n|;&\\]|&[^\s&]|\\.|\\\r?\n)*?\s)?(?:-[A-Za-z]{0,8}[uU]|--user|--proxy-user|--auth|-a)(?:\s+|=)?'
        r'["\']?[^\s:"\'/]*:(?P<secret>(?:[^\s"\'/]|/[^\s"\'/])[^\s"\']*)',
    ),
    Shape('cookie', r'\bcurl\s(?:[^\n|;&]*?\s)?(?:-b|--cookie)(?:\s+|=)["\']?[^\s"\'=]+=(?P<secret>[^\s"\']+)'),
    Shape('authorization', r'--oauth2-bearer(?:\s+|=)["\']?(?P<secret>[^\s"\']+)'),
    Shape('password', r'\b(?:mysql|mariadb)[a-z]{0,8}\s(?:[^\n|;&]*?\s)?-p["\']?(?P<secret>[^\s"\'-][^\s"\']*)'),
    Shape(
        'password',
        r'\b(?:sshpass\s(?:[^\n|;&]*?\s)?-p|redis-cli\s(?:[^\n|;&]*?\s)?-a|docker\s+login\s(?:[^\n|;&]*?\s)?-p'
        r'|mongo[a-z]{0,8}\s(?:[^\n|;&]*?\s)?-p|ldap[a-z]{1,8}\s(?:[^\n|;&]*?\s)?-w|az\s+login\s(?:[^\n|;&]*?\s)?-p'
        r'|7z[a-z]?\s(?:[^\n|;&]*?\s)?-p|(?:sqlcmd|unzip)\s(?:[^\n|;&]*?\s)?-P)'
        r'\s*["\']?(?P<secret>[^\s"\'$-][^\s"\']*)',
    ),
    Shape(
        'password',
        r'\b(?:smb[a-z]{2,9}|rpcclient|net|winexe|wmic|pth-[a-z]{2,10})\s(?:[^\n|;&]*?\s)?(?:-[A-Za-z]{0,4}U|--user)(?:\s+|=)?'
        r'["\']?[^\s%"\']*%(?P<secret>[^\s"\']+)',
    ),
    Shape('password', r'\bbundle\s+config\s(?:[^\n|;&]*?\s)?(?P<secret>[^\s:/]+:[^\s:/]+)'),
    Shape('password', r'-pass(?:in|out)?\s+pass:(?P<secret>[^\s"\']+)'),
    Shape(
        'password',
        r'\b(?:machine\s+\S+|default)(?:\s+(?:login|account)\s+\S+){0,2}\s+password\s+(?P<secret>\S+)',
    ),
    Shape('password', r'(?m)^[A-Za-z0-9.*_-]+:(?:\*|\d{4,5}):[^\s:]+:[^\s:]+:(?P<secret>[^\s:]+)$'),
)  # fmt: skip
"""Formats of secrets in matching order, narrower kinds first."""
