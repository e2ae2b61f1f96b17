"""Formats of well-known tokens: facts, one a line.

Law: that of the package (callgate/masking/__init__.py).

The prefixes, alphabets and lengths are those of the rules of gitleaks v8.30 (MIT licence, config/gitleaks.toml) and of
the providers' own documentation; the patterns are written anew. Lengths are minima and mostly shorter than the real
ones, so that a token that was cut off is masked too. Each pattern ends in one greedy class and is tried only inside a
long run of characters, so that the cost is linear.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from callgate.masking._names import is_random

_FORMATS: Final = (
    r"gh[pousr]_[A-Za-z0-9]{20,}",  # GitHub
    r"github_pat_[A-Za-z0-9_]{20,}",
    r"gl(?:pat|dt|ft|rt|ptt|soat|cbt|imt|agent|oas|ffct)-[A-Za-z0-9_\-.]{16,}",  # GitLab
    r"GR1348941[A-Za-z0-9_\-]{16,}",
    r"xox[abeoprs](?:\.xox[bp])?-[A-Za-z0-9\-]{10,}",  # Slack
    r"xapp-\d-[A-Za-z0-9\-]{10,}",
    r"(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])",  # AWS
    r"ABSK[A-Za-z0-9+/]{60,}=*",
    r"bedrock-api-key-[A-Za-z0-9+/=]{16,}",
    r"AIza[A-Za-z0-9_\-]{30,}",  # Google
    r"ya29\.[A-Za-z0-9_\-]{20,}",
    r"GOCSPX-[A-Za-z0-9_\-]{20,}",
    r"(?:hf|api_org)_[A-Za-z0-9]{20,}",  # Hugging Face
    r"npm_[A-Za-z0-9]{30,}",
    r"pypi-Ag[A-Za-z0-9_\-]{16,}",
    r"rubygems_[a-f0-9]{32,}",
    r"CLOJARS_[A-Za-z0-9]{40,}",
    r"SG\.[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-=]{10,}",  # SendGrid
    r"gsk_[A-Za-z0-9]{20,}",  # Groq
    r"xai-[A-Za-z0-9]{20,}",
    r"pplx-[A-Za-z0-9]{20,}",
    r"r8_[A-Za-z0-9]{30,}",  # Replicate
    r"nvapi-[A-Za-z0-9_\-]{20,}",
    r"csk-[A-Za-z0-9]{20,}",  # Cerebras
    r"fw_[A-Za-z0-9]{20,}",  # Fireworks
    r"jina_[A-Za-z0-9]{20,}",
    r"tvly-(?:dev-)?[A-Za-z0-9]{20,}",  # Tavily
    r"[srp]k_(?:live|test|prod)_[A-Za-z0-9]{10,}",  # Stripe
    r"whsec_[A-Za-z0-9+/=]{16,}",
    r"sk_[a-f0-9]{40,}",  # ElevenLabs
    r"do[opr]_v1_[a-f0-9]{32,}",  # DigitalOcean
    r"shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{20,}",  # Shopify
    r"sq0(?:atp|csp|idp)-[A-Za-z0-9_\-]{20,}",  # Square
    r"EAA[A-Z][A-Za-z0-9_\-]{40,}",  # Square, Meta
    r"lin_(?:api|oauth)_[A-Za-z0-9]{20,}",  # Linear
    r"ntn_[A-Za-z0-9]{30,}",  # Notion
    r"secret_[A-Za-z0-9]{40,}",
    r"dapi[a-f0-9]{32}(?:-\d)?",  # Databricks
    r"hv[sbr]\.[A-Za-z0-9_\-]{20,}",  # HashiCorp
    r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_\-=]{40,}",
    r"ATATT3[A-Za-z0-9_\-=]{30,}",  # Atlassian
    r"glsa_[A-Za-z0-9_]{30,}",  # Grafana
    r"glc_[A-Za-z0-9+/=]{32,}",
    r"sntry[su]_[A-Za-z0-9+/=_]{30,}",  # Sentry
    r"PMAK-[A-Za-z0-9\-]{30,}",  # Postman
    r"NR(?:AK|II|JS)-[A-Za-z0-9\-]{16,}",  # New Relic
    r"dckr_(?:pat|oat)_[A-Za-z0-9_\-]{20,}",  # Docker
    r"AGE-SECRET-KEY-1[A-Z0-9]{40,}",
    r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.\-=]{20,}",  # PlanetScale
    r"pul-[a-f0-9]{32,}",  # Pulumi
    r"dp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9_.\-]{20,}",  # Doppler
    r"sbp_[a-f0-9]{32,}",  # Supabase
    r"sb_secret_[A-Za-z0-9_\-]{20,}",
    r"figd_[A-Za-z0-9_\-]{20,}",  # Figma
    r"LTAI[A-Za-z0-9]{16,}",  # Alibaba
    r"ops_eyJ[A-Za-z0-9+/=]{40,}",  # 1Password
    r"A3-[A-Z0-9]{6}-[A-Z0-9]{6,11}-[A-Z0-9\-]{11,}",
    r"eyJ[A-Za-z0-9_\-]{8,}(?:\.[A-Za-z0-9_\-]*){1,4}\.[A-Za-z0-9_\-]{4,}",  # JSON web tokens (RFC 7519, 7516)
    r"SK[0-9a-f]{32}(?![A-Za-z0-9])",  # Twilio
    r"key-[0-9a-f]{32}(?![A-Za-z0-9])",  # Mailgun
    r"[0-9a-f]{32}-us\d{1,2}(?![A-Za-z0-9])",  # Mailchimp
    r"xkeysib-[a-f0-9]{40,}(?:-[A-Za-z0-9]+)?",  # Brevo
    r"tfp_[A-Za-z0-9_.\-=]{30,}",  # Typeform
    r"EZ[AT]K[A-Za-z0-9]{40,}",  # EasyPost
    r"FLWSECK(?:_TEST)?-[A-Za-z0-9]{12,}(?:-X)?",  # Flutterwave
    r"rdme_[a-z0-9]{40,}",  # ReadMe
    r"shippo_(?:live|test)_[A-Fa-f0-9]{30,}",
    r"duffel_(?:live|test)_[A-Za-z0-9_\-=]{30,}",
    r"dt0[a-z]\d\d\.[A-Z0-9]{20,}\.[A-Za-z0-9]{40,}",  # Dynatrace
    r"fio-u-[A-Za-z0-9_\-=]{40,}",  # Frame.io
    r"AKCp[A-Za-z0-9]{50,}",  # Artifactory
    r"cmVmd[A-Za-z0-9]{50,}",
    r"HRKU-[A-Za-z0-9_\-]{40,}",  # Heroku
    r"ico-[A-Za-z0-9]{32}(?![A-Za-z0-9])",
    r"pnu_[A-Za-z0-9]{36}(?![A-Za-z0-9])",  # Prefect
    r"sgp_(?:[A-Fa-f0-9]{16}_|local_)?[A-Fa-f0-9]{30,}",  # Sourcegraph
    r"sha256~[A-Za-z0-9_\-]{40,}",  # OpenShift
    r"AQVN[A-Za-z0-9_\-]{30,}",  # Yandex
    r"sm_[aps]at_[A-Za-z0-9]{16,}",  # SettleMint
    r"dnkey-[A-Za-z0-9_\-=]{30,}",
    r"fo1_[A-Za-z0-9_\-]{40,}",  # Fly.io
    r"fm[12][ar]?_[A-Za-z0-9+/]{60,}=*",
    r"p8e-[A-Za-z0-9]{30,}",  # Adobe
    r"v1\.0-[a-f0-9]{24}-[a-f0-9]{100,}",  # Cloudflare
    r"pat[A-Za-z0-9]{14}\.[a-f0-9]{40,}",  # Airtable
    r"(?P<judged>(?:[srp]k|sess)-[A-Za-z0-9_\-]{16,})",  # OpenAI, Anthropic and their like
)
_TOKEN: Final = re.compile(r"(?<![A-Za-z0-9])(?:" + "|".join(_FORMATS) + ")")
_RUN: Final = re.compile(r"(?<![A-Za-z0-9_\-.~])[A-Za-z0-9_\-.~]{16,}+")
"""Where a token may stand: prose has hardly any run of this length."""
_BEYOND: Final = 400
"""Characters after the run in which a token with `/`, `+` or `=` may end."""

_PLACED: Final = (
    ("hooks.slack.com/", re.compile(r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<v>[A-Za-z0-9+/]{20,})")),
    ("/api/webhooks/", re.compile(r"/api/webhooks/\d{5,25}/(?P<v>[A-Za-z0-9_\-]{30,})")),  # Discord
    ("webhook.office.com/", re.compile(r"webhook\.office\.com/webhookb2/(?P<v>[A-Za-z0-9@/\-]{30,})")),
    (":AA", re.compile(r"(?<!\d)\d{6,12}:(?P<v>AA[A-Za-z0-9_\-]{30,})")),  # Telegram
    ("Q~", re.compile(r"(?<![\w~.])(?P<v>[A-Za-z0-9_~.]{3}\dQ~[A-Za-z0-9_~.\-]{31,34})(?![\w~])")),  # Entra ID
)
"""(one of these stands in the text; then this is looked for, and its group `v` is the secret)."""

_PEM: Final = re.compile(r"-----(?P<edge>BEGIN|END) (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_BODY: Final = re.compile(
    r"(?:\s|\\+[nr]|[A-Za-z0-9+/=]{16,}+|[A-Z][A-Za-z\-]{2,20}: [^\n\\\"'<]{1,80}|[A-Za-z0-9+/=]+(?=\s|\\|-----|$))*+"
)
_BROKEN: Final = re.compile(r"[\"'<]|\\+(?![nr\\])")
_LONGEST: Final = 100_000
"""Characters of a key block; a head without an end within them is taken as cut off."""


def spans(text: str) -> Iterator[tuple[int, int]]:
    """Where in the text tokens and private keys stand."""
    for run in _RUN.finditer(text):
        start = run.start()
        if text[start - 1 : start] == "\\" and text[start] in "nrtbf":
            start += 1  # in JSON a line end before the token reads `\\n`
        for found in _TOKEN.finditer(text, start, min(len(text), run.end() + _BEYOND)):
            if found.start() >= run.end():
                break
            if found.lastgroup != "judged" or _is_key(found.group()):
                yield found.span()
    for hint, pattern in _PLACED:
        if hint in text:
            yield from (found.span("v") for found in pattern.finditer(text))
    if "PRIVATE KEY" in text:
        yield from _keys(text)


def _is_key(token: str) -> bool:
    """`sk-abc…123` is a key, `sk-learn-preprocessing` a word."""
    _, _, rest = token.partition("-")
    return is_random(rest, 5) or bool(re.search(r"[a-z][A-Z]{2,}", rest))


def _keys(text: str) -> Iterator[tuple[int, int]]:
    edges = list(_PEM.finditer(text))
    for index, head in enumerate(edges):
        if head["edge"] == "END":
            continue
        end = edges[index + 1] if index + 1 < len(edges) else None
        whole = end is not None and end["edge"] == "END" and end.start() - head.end() <= _LONGEST
        if whole and end is not None and not _BROKEN.search(text, head.end(), end.start()):
            yield head.start(), end.end()
        else:  # cut off: what looks like the body, and never beyond the string that it stands in
            body = _BODY.match(text, head.end(), head.end() + _LONGEST)
            stop = body.end() if body is not None and body.group().strip() else head.end()
            yield head.start(), head.end() + len(text[head.end() : stop].rstrip())
