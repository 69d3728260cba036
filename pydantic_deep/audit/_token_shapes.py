"""Shapes of tokens of providers, from the rules of CredSweeper 1.19.5. `scripts/write_token_shapes.py` writes it.

https://github.com/Samsung/CredSweeper, of which the rules are under this licence:

Copyright (c) 2021 SAMSUNG

Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
"""

from __future__ import annotations

from typing import Final

TOKEN_SHAPES: Final = (
    ('amazon bedrock api key', r'(?:^|[^0-9A-Za-z+_-]|\\[nrt]|%[0-9A-Fa-f]{2})(?P<secret>(?:ABSK|bedrock-api-key-)[0-9A-Za-z/+]{28,})'),
    ('aws appsync graphql api key', r'(?:^|[^0-9A-Za-z+_-]|\\[nrt]|%[0-9A-Fa-f]{2})(?P<secret>da2-[a-z0-9]{20,})'),
    ('alibaba access key id', r'(?:^|[^0-9A-Za-z+_-]|\\[nrt]|%[0-9A-Fa-f]{2})(?P<secret>LTAI[0-9A-Za-z]{12,20})'),
    ('aws mws key', r'(?:\b|\\[nrt])(?P<secret>amzn\.mws\.[0-9a-z]{8}-[0-9a-z]{4}-[0-9a-z]{4}-[0-9a-z]{4}-[0-9a-z]{12})'),
    ('defined networking api key', r'(?:\b|\\[nrt])(?P<secret>dnkey-[A-Z2-7]{20,}-[A-Z2-7]{20,})'),
    ('dynatrace api token', r'(?:^|[^0-9A-Za-z+_-]|\\[nrt]|%[0-9A-Fa-f]{2})(?P<secret>dt0[a-z]{1}[0-9]{2}\.[0-9A-Z]{24}\.[0-9A-Z]{64})\b'),
    ('doppler api key', r'(?:\b|\\[nrt])(?P<secret>dp\.(?:pt|st|ct|sa|scim|audit)\.[0-9A-Za-z]{20,})'),
    ('facebook access token', r'(?:^|[^0-9A-Za-z+_-]|\\[nrt]|%[0-9A-Fa-f]{2})(?P<secret>EAA[0-9A-Za-z]{80,})'),
    ('google api key', r'(?:^|[^0-9A-Za-z+_-]|\\[nrt]|%[0-9A-Fa-f]{2})(?P<secret>AIza[0-9A-Za-z_-]{20,})'),
    ('google oauth secret', r'(?:\b|\\[nrt])(?P<secret>GOCSPX-[0-9A-Za-z_-]{20,})'),
    ('google oauth access token', r'(?:\b|\\[nrt])(?P<secret>ya29\.[0-9A-Za-z_-]{20,})'),
    ('heroku key', r'(?:\b|\\[nrt])(?P<secret>HRKU-(?:[0-9A-Za-z_-]{20,}|[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}))'),
    ('instagram access token', r'(?:\b|\\[nrt])(?P<secret>IGQVJ[=0-9A-Za-z_-]{20,})'),
    ('paseto token', r'(?:\b|\\[nrt])(?P<secret>v[1-4]\.(?:public|local)\.[0-9A-Za-z_-]{15,}(?:\.[0-9A-Za-z_-]{0,})?)'),
    ('paserk keys', r'(?:\b|\\[nrt])(?P<secret>k[1-4]\.(?:local|secret)(?:-pw)?\.[0-9A-Za-z_-]{15,})'),
    ('json web token', r'(?:\b|\\[nrt])(?P<secret>eyJ[=0-9A-Za-z_+/-]{15,}(?:\.[=0-9A-Za-z_+/-]{0,}){2,16})'),
    ('mailchimp api key', r'(?:^|[^0-9A-Za-z+_-]|\\[nrt]|%[0-9A-Fa-f]{2})(?P<secret>[0-9A-Za-z_-]{32}-us[0-9]{1,2})'),
    ('paypal braintree access token', r'(?:\b|\\[nrt])(?P<secret>access_token\$production\$[0-9a-z]{16}\$[0-9a-z]{20,})'),
    ('base64 encoded pem private key', r'(?:\b|\\[nrt])(?P<secret>[0-9A-Za-z_/+-]{0,}LS0t(?:LS1CRUdJTiB|LUJFR0lOI|QkVHSU4g)[0-9A-Za-z_/+-]{0,11}(?:UFJJVkFURSBLRVkt|QUklWQVRFIEtFWS0t|FBSSVZBVEUgS0VZ)[0-9A-Za-z_/+-]{1,}LS0t[0-9A-Za-z_/+-]{1,})'),
    ('picatic api key', r'(?:\b|\\[nrt])(?P<secret>sk_live_[0-9a-z]{20,})'),
    ('sendgrid api key', r'(?:^|[^0-9A-Za-z+_-]|\\[nrt]|%[0-9A-Fa-f]{2})(?P<secret>SG\.[0-9A-Za-z_-]{16,32}\.[0-9A-Za-z_-]{16,})'),
    ('clojars deploy token', r'(?:\b|\\[nrt])(?P<secret>CLOJARS_[0-9a-f]{20,})'),
    ('shopify token', r'(?:\b|\\[nrt])(?P<secret>shp(?:at|ca|pa|ss|tka)_[0-9A-Fa-f]{20,})'),
    ('slack token', r'(?:\b|\\[nrt])(?P<secret>(?:xapp|xox[a-z])\-[0-9A-Za-z-]{10,})'),
    ('slack webhook', r'(?:hooks\.slack\.com/services)(?P<secret>/T[0-9A-Z]{8,16}/B[0-9A-Z]{8,16}/[0-9A-Za-z_]{24})'),
    ('stripe key', r'(?:\b|\\[nrt])(?P<secret>(?:whsec|[prs]k_(?:test|live))_[0-9A-Za-z]{24,})'),
    ('square access token', r'(?:^|[^0-9A-Za-z+_-]|\\[nrt]|%[0-9A-Fa-f]{2})(?P<secret>EAAA[0-9A-Za-z_-]{20,})'),
    ('square key', r'(?:^|[^0-9A-Za-z+_-]|\\[nrt]|%[0-9A-Fa-f]{2})(?P<secret>sq0[a-z]{3}-[0-9A-Za-z_-]{22}(?:[0-9A-Za-z_-]{21})?)'),
    ('twilio key', r'(?:^|[^0-9A-Za-z+_-]|\\[nrt]|%[0-9A-Fa-f]{2})(?P<secret>(?:AC|AD|AL|CA|CF|CL|CN|CR|FW|IP|KS|MM|NO|PK|PN|QU|RE|SC|SD|SK|SM|TR|UT|XE|XR)(?:[0-9A-F]{32}|[0-9a-f]{32}))\b'),
    ('telegram bot api token', r'(?:^|[^0-9A-Za-z+_-]|\\[nrt]|%[0-9A-Fa-f]{2})(?P<secret>[0-9]{8,10}:[0-9A-Za-z_-]{35})'),
    ('pypi api token', r'(?:\b|\\[nrt])(?P<secret>pypi-[0-9A-Za-z_-]{20,})'),
    ('npm token', r'(?:^|[^0-9A-Za-z+_-]|\\[nrt]|%[0-9A-Fa-f]{2})(?P<secret>npm_[0-9A-Za-z_-]{20,})'),
    ('github app installation token', r'(?:\b|\\[nrt])(?P<secret>ghs_[0-9]{1,20}_eyJ[0-9A-Za-z_-]{15,}(?:\.[0-9A-Za-z_-]{0,}){2,8})'),
    ('github classic token', r'(?:^|[^0-9A-Za-z+_-]|\\[nrt]|%[0-9A-Fa-f]{2})(?P<secret>gh[pousr]_[0-9A-Za-z_-]{20,})'),
    ('github fine-granted token', r'(?:\b|\\[nrt])(?P<secret>github_pat_[0-9A-Za-z_]{20,})'),
    ('jfrog token', r'(?:\b|\\[nrt])(?P<secret>(?:cmVmdGtuO[0-9A-Za-z_-]{55}|AKCp[0-9A-Za-z_-]{69}))'),
    ('azure access token', r'(?:\b|\\[nrt])(?P<secret>eyJ[=0-9A-Za-z_-]{50,}\.eyJ[=0-9A-Za-z_-]{8,}\.[=0-9A-Za-z_-]{18,})'),
    ('azure secret value', r'(?:^|[^0-9A-Za-z+_-]|\\[nrt]|%[0-9A-Fa-f]{2})(?P<secret>[0-9A-Za-z_~.-]{3}8Q~[0-9A-Za-z_~.-]{34})'),
    ('azure storage account key', r'(?:^|[^0-9A-Za-z+_-]|\\[nrt]|%[0-9A-Fa-f]{2})(?P<secret>[0-9A-Za-z]{52}JQQJ9[9DH][0-9A-Za-z]{26}(?:[0-9A-Za-z=]{4})?)'),
    ('bitbucket app password', r'(?:\b|\\[nrt])(?P<secret>ATBB[0-9A-Za-z]{20,}[A-F0-9]{8})'),
    ('bitbucket repository access token', r'(?:\b|\\[nrt])(?P<secret>ATCTT3xFfGN0[0-9A-Za-z_-]{20,}(?:\\?=|(?:%|\\u00)3[dD])[A-F0-9]{8})'),
    ('bitbucket http access token', r'(?:\b|\\[nrt])(?P<secret>BBDC-[MNO][ADQTgjwz][AEIMQUYcgk][012345wxyz][0-9A-Za-z_-]{20,})'),
    ('atlassian key', r'(?:\b|\\[nrt])(?P<secret>ATATT3xFfGF0[0-9A-Za-z_-]{20,}(?:\\?=|(?:%|\\u00)3[dD])[A-F0-9]{8})'),
    ('circleci personal api token', r'(?:\b|\\[nrt])(?P<secret>CCIPAT_[0-9A-Za-z]{20,}_[0-9a-f]{20,})'),
    ('digital ocean token', r'(?:\b|\\[nrt])(?P<secret>do[oprs]_v1_[a-f0-9]{20,})'),
    ('dropbox oauth2 api access token', r'(?:^|[^0-9A-Za-z+_-]|\\[nrt]|%[0-9A-Fa-f]{2})(?P<secret>sl\.(?:u\.)?[0-9A-Za-z_-]{20,})'),
    ('nuget api key', r'(?:^|[^0-9A-Za-z+_-]|\\[nrt]|%[0-9A-Fa-f]{2})(?P<secret>oy2[a-z0-9]{43})\b'),
    ('gitlab prefix token', r'(?:\b|\\[nrt])(?P<secret>(?:_gitlab_session=|GR1348941|gl(?:agent|soat|ffct|p[at]t|oas|cbt|imt|rtr|[dfrw]t)-)[0-9A-Za-z_-]{20,}(?:\.[0-9A-Za-z_-]{2,16}){0,2})'),
    ('grafana access policy token', r'(?:\b|\\[nrt])(?P<secret>glc_eyJ[0-9A-Za-z_-]{20,})'),
    ('grafana service account token', r'(?:\b|\\[nrt])(?P<secret>glsa_[0-9A-Za-z_-]{20,}_[0-9A-Fa-f]{8})'),
    ('x app-only authentication bearer token', r'(?:^|[^0-9A-Za-z+_-]|\\[nrt]|%[0-9A-Fa-f]{2})(?P<secret>AAAAAAAAAAAAAAAAAAAAA[0-9A-Za-z%]{20,}(?:%|\\u00)3[dD][0-9A-Za-z]{20,})'),
    ('planetscale key', r'(?:\b|\\[nrt])(?P<secret>pscale_(?:tkn|oauth|pw)_[.0-9A-Za-z_-]{20,})'),
    ('newrelic key', r'(?:\b|\\[nrt])(?P<secret>NRAK-[0-9A-Z]{20,}|NRBR-[0-9a-f]{19,20}|NRII-[0-9A-Za-z_-]{20,}|NRJS-[0-9a-z]{19}|[0-9a-z]{5}[0-9a-f]{20,}NRAL)'),
    ('linear api key', r'(?:\b|\\[nrt])(?P<secret>lin_api_[0-9A-Za-z]{20,})'),
    ('cloudflare api token', r'(?:\b|\\[nrt])(?P<secret>cf(?:at|ut|k)_[0-9A-Za-z]{20,}[0-9a-f]{8})'),
    ('age secret key', r'(?:\b|\\[nrt])(?P<secret>AGE-SECRET-KEY-1[0-9A-Z]{20,})'),
    ('hashicorp vault token', r'(?:^|[^0-9A-Za-z+_-]|\\[nrt]|%[0-9A-Fa-f]{2})(?P<secret>hv[brs]\.[0-9A-Za-z_-]{20,})'),
    ('hashicorp terraform token', r'(?:\b|\\[nrt])(?P<secret>[0-9A-Za-z_-]{14}\.atlasv1\.[0-9A-Za-z_-]{67})'),
    ('airtable api key', r'(?:^|[^0-9A-Za-z+_-]|\\[nrt]|%[0-9A-Fa-f]{2})(?P<secret>pat[0-9A-Za-z]{14}\.[0-9a-f]{64})\b'),
    ('openai token', r'(?:\b|\\[nrt])(?P<secret>sk-[0-9A-Za-z_-]{16,}(?:T3BlbkFJ|9wZW5BS|PcGVuQU)[0-9A-Za-z_-]{16,})'),
    ('openrouter api key', r'(?:\b|\\[nrt])(?P<secret>sk-or-v1-[0-9a-f]{20,})'),
    ('docker access token', r'(?:\b|\\[nrt])(?P<secret>dckr_[op]at_[0-9A-Za-z_-]{20,})'),
    ('docker swarm token', r'(?:\b|\\[nrt])(?P<secret>SWMTKN-1-[0-9a-z]{20,}-[0-9a-z]{20,})'),
    ('docker swarm key', r'(?:\b|\\[nrt])(?P<secret>SWMKEY-1-[0-9A-Za-z]{20,})'),
    ('groq api key', r'(?:^|[^0-9A-Za-z+_-]|\\[nrt]|%[0-9A-Fa-f]{2})(?P<secret>gsk_[0-9A-Za-z_-]{8,40}(?:WGdyb3FY|hncm9xW|YZ3JvcV)[0-9A-Za-z_-]{8,40})'),
    ('x ai api key', r'(?:^|[^0-9A-Za-z+_-]|\\[nrt]|%[0-9A-Fa-f]{2})(?P<secret>xai-[0-9A-Za-z_-]{20,})'),
    ('notion integration token', r'(?:^|[^0-9A-Za-z+_-]|\\[nrt]|%[0-9A-Fa-f]{2})(?P<secret>ntn_[0-9]{9}[0-9A-Za-z_-]{20,})'),
    ('hugging face user access token', r'(?:^|[^0-9A-Za-z+_-]|\\[nrt]|%[0-9A-Fa-f]{2})(?P<secret>hf_[0-9A-Za-z_-]{20,})'),
    ('anthropic api key', r'(?:\b|\\[nrt])(?P<secret>sk-ant-(?:api|admin)0[1-4]-[0-9A-Za-z_-]{20,})'),
    ('perplexity api key', r'(?:\b|\\[nrt])(?P<secret>pplx-[0-9A-Za-z_-]{20,})'),
    ('tailscale key', r'(?:\b|\\[nrt])(?P<secret>tskey-(?:api|auth|client|scim|webhook)-[0-9A-Za-z]{12,24}-[0-9A-Za-z]{20,})'),
    ('contentful key', r'(?:\b|\\[nrt])(?P<secret>CFPAT-[0-9A-Za-z_-]{20,})'),
    ('pulumi personal access token', r'(?:\b|\\[nrt])(?P<secret>pul-[0-9a-f]{20,})'),
    ('deepseek api key', r'(?:^|[^0-9A-Za-z+_-]|\\[nrt]|%[0-9A-Fa-f]{2})(?P<secret>sk-[0-9a-f]{20,})'),
    ('tavily api key', r'(?:\b|\\[nrt])(?P<secret>tvly-[0-9A-Za-z_-]{20,})'),
    ('figma personal access token', r'(?:\b|\\[nrt])(?P<secret>figd_[0-9A-Za-z_-]{20,})'),
    ('1password account token', r'(?:\b|\\[nrt])(?P<secret>ops_eyJ[0-9A-Za-z_-]{20,})'),
    ('brevo api key', r'(?:\b|\\[nrt])(?P<secret>xkeysib-[0-9a-f]{20,}-[0-9A-Za-z_-]{16})'),
    ('together ai api key', r'(?:\b|\\[nrt])(?P<secret>tgp_v1_[0-9A-Za-z_-]{20,})'),
    ('llama api key', r'(?:^|[^0-9A-Za-z+_-]|\\[nrt]|%[0-9A-Fa-f]{2})(?P<secret>llx-[0-9A-Za-z_-]{20,})'),
    ('sonarqube key', r'(?:\b|\\[nrt])(?P<secret>sq[apu]_[0-9a-f]{20,})'),
    ('sentry organization auth token', r'(?:\b|\\[nrt])(?P<secret>sntrys_eyJ[0-9A-Za-z_-]{20,}=*(?:[0-9A-Za-z_-]{20,})?)'),
    ('sentry user auth token', r'(?:\b|\\[nrt])(?P<secret>sntryu_[0-9a-f]{20,})'),
    ('discord bot token', r'(?:\b|\\[nrt])(?P<secret>[MNO][ADQTgjwz][AEIMQUYcgk][012345wxyz][0-9A-Za-z_-]{20,24}\.[0-9A-Za-z_-]{6}\.[0-9A-Za-z_-]{30,40})'),
    ('discord webhook', r'(?:discord(?:app)?\.com/api/webhooks)(?P<secret>/[0-9]{16,22}/[0-9A-Za-z_-]{40,})'),
    ('nylas api key', r'(?:\b|\\[nrt])(?P<secret>nyk_v0_[0-9A-Za-z_-]{20,})'),
    ('wakatime api key', r'(?:\b|\\[nrt])(?P<secret>waka_[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})'),
    ('riot games api key', r'(?:\b|\\[nrt])(?P<secret>RGAPI-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})'),
    ('sourcegraph key', r'(?:\b|\\[nrt])(?P<secret>sgp_(?:local_|[0-9a-f]{16}_)?[0-9a-f]{20,})'),
    ('rubygems api key', r'(?:\b|\\[nrt])(?P<secret>rubygems_[0-9a-f]{20,})'),
    ('databricks access token', r'(?:\b|\\[nrt])(?P<secret>dapi[0-9a-f]{20,})'),
    ('wundergraph api key', r'(?:\b|\\[nrt])(?P<secret>cosmo_[0-9a-f]{20,})'),
    ('supabase key', r'(?:\b|\\[nrt])(?P<secret>sbp_(?:v0_)?[0-9a-f]{20,})'),
    ('postman key', r'(?:\b|\\[nrt])(?P<secret>(?:PMAK-[0-9a-f]{24}-[0-9a-f]{34}|PMAT-[0-9A-Z]{26}))\b'),
    ('ntlm token', r'(?:\b|\\[nrt])(?P<secret>TlRMTVNTUAA[BCD]AAAA[=0-9A-Za-z_/+-]{20,})'),
)  # fmt: skip
"""Kinds and expressions of RE2, whose group `secret` is the token."""
