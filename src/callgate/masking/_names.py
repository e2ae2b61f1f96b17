"""Which field names hold secrets, and which values are values and no descriptions of one.

Law: that of the package (callgate/masking/__init__.py).

A name is judged by its *last word*: `db_password` and `userPassword` hold a password, `password_policy` and
`token_count` do not. Pagination cursors (`next_page_token`) and a model's own tokens (`eos_token`) are no secrets.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, Literal, TypeAlias

Rule: TypeAlias = Literal[
    "named", "strong", "token", "weak", "count", "digits", "session", "header", "cookie", "signature"
]
"""How sure a name is.

named: the user named it, so any value counts. strong: any value is a secret. token: too, in a field.
weak: only what looks random (`token`, `pass` and `credentials` have other meanings). digits: a short number.
session: only what is as long as a random id is.
count: as weak, and a number is none: `tokens` counts those of a model, and `seed` begins a random series.
header: `Authorization`. cookie: `name=value`. signature: that of a signed address.
"""


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_STRONG: Final = _set(
    "password passwd pwd pw passphrase passcode passwort kennwort contrasena contraseña senha wachtwoord mdp secret "
    "secrets apikey apitoken authtoken accesstoken refreshtoken bearertoken idtoken sessiontoken secretkey "
    "privatekey accesskey signingkey authkey encryptionkey clientsecret jwt passwords apikeys 密码 口令 密钥"
)
_WEAK: Final = _set(
    "令牌 token tokens pass credential credentials creds auth seed mnemonic connectionstring dsn apikeyid"
)
_DIGITS: Final = _set("pin otp totp cvv cvc cvv2 cvc2 tan mfacode")
_KEY_OF: Final = _set(
    "api secret private access signing encryption decryption auth account master hmac deploy webhook admin root "
    "consumer ssh ssl tls shared storage service subscription license client app application gpg pgp rsa session "
    "jwt cipher aes vault recovery backup wallet authentication openai anthropic azure aws gcp google github "
    "gitlab stripe sendgrid twilio mailgun groq mistral cohere huggingface hf deepseek openrouter gemini datadog "
    "sentry slack maps integration routing write ingest functions host"
)
"""The words before `key` that make it a secret; `author_key`, `primary_key`, `public_key` and `cache_key` are none."""
_TOKEN_OF: Final = _set(
    "page next previous prev continuation cursor pagination starting start end eos bos unk pad mask cls sep stop "
    "special first last max min num total count sync change cancellation identity_of input output prompt "
    "completion image word sub syntax resume watch position offset"
)
"""The words before `token` that make it something else: cursors, and the tokens of a language model."""
_GLUED: Final = (
    "password", "passwd", "passphrase", "passwort", "kennwort", "secret", "apikey", "secretkey", "accesskey",
    "privatekey", "signingkey", "accountkey", "authorization", "pwd", "密码", "口令", "密钥", "令牌", "token",
)  # fmt: skip
"""Ends of names that are written as one word: `dbpassword`, `PGPASSWORD`, `githubtoken`."""
_CODE_OF: Final = _set("otp totp pin mfa tan verification security recovery backup")
_PASS_OF: Final = _set("db user admin root my smtp ftp mysql pg mail http login proxy redis ldap web wifi")
"""What stands before `pass` in one word; `bypass` and `compass` are none."""
_CONNECTIONS: Final = _set("connectionstring connstring connstr connectionuri connectionurl")
_LAST: Final = _set(
    "value values raw plain plaintext text string str confirm confirmation confirmed repeat again old new "
    "current b64 base64 base base hex env prod dev staging field input param header"
)
"""Last words that say nothing of their own: `password_confirmation` holds a password."""
_HEADERS: Final = _set("authorization proxyauthorization xauthorization")
_COOKIES: Final = _set("cookie cookies setcookie")


def _rules(*rows: tuple[frozenset[str], Rule]) -> dict[str, Rule]:
    """Word -> rule; the first row counts."""
    return {word: rule for words, rule in reversed(rows) for word in words}


_WHOLE: Final = _rules((_HEADERS, "header"), (_STRONG, "strong"), (_DIGITS, "digits"))
"""Names that are known as a whole, however they are cut into words: `Pass-Word`, `C.V.V`."""
_LAST_WORDS: Final = _rules(
    (_COOKIES, "cookie"), (_set("sig signature"), "signature"), (_STRONG, "strong"), (_DIGITS, "digits")
)
"""Last words that decide alone."""
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|[A-Z]|\d+")
_NAME: Final = re.compile(r"[\w.\-/:$@\s]+")
_LONGEST_VALUE: Final = 100_000
"""Characters of the longest value that may be a secret: larger ones are documents, also under a telling name."""
MAX_NAME: Final = 64
"""Characters of the longest name that is looked at; longer keys are texts."""


def plain(name: str) -> str:
    """The name without case and separators."""
    return re.sub(r"[\W_]+", "", name).lower()


@lru_cache(maxsize=4096)
def rule_of(name: str) -> Rule | None:
    """How a field of this name is to be treated; None: it holds no secret."""
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        return None
    words = [word.lower() for word in _WORDS.findall(name)]
    if "".join(words[-2:]) in _CONNECTIONS:
        return "weak"
    while len(words) > 1 and (words[-1] in _LAST or words[-1].isdigit()):
        words.pop()
    if not words:
        return None
    return _WHOLE.get("".join(words)) or _last_word(words[-1], words[-2] if len(words) > 1 else "")


def _last_word(last: str, before: str) -> Rule | None:
    if (known := _LAST_WORDS.get(last)) is not None:
        return known
    match last:
        case "token" | "tokens":
            return _token(before, plural=last == "tokens")
        case "key" | "keys":
            return "strong" if before in _KEY_OF else None
        case "code" if before in _CODE_OF:
            return "digits"
        case "id" if before in ("session", "sess"):
            return "session"
        case _:
            return _glued(last)


def _glued(last: str) -> Rule | None:
    """A name written as one word: by its end."""
    if last in _WEAK or (last.endswith("pass") and last.removesuffix("pass") in _PASS_OF):
        return "count" if last == "seed" else "weak"
    if last.endswith(("sessionid", "sessid")):  # JSESSIONID, PHPSESSID
        return "session"
    ending = next((end for end in _GLUED if last.endswith(end) and len(last) > len(end)), None)
    if ending == "token":
        return _token(last.removesuffix(ending), plural=False)
    return None if ending is None else "strong"


def _token(before: str, *, plural: bool) -> Rule | None:
    if before in _TOKEN_OF:
        return None
    if plural:
        return "count"
    return "token" if before else "weak"


# --- values -------------------------------------------------------------------------------------------------------

_NO_VALUE: Final = _set(
    "none null nil undefined true false yes no on off str string bytes int integer number float bool boolean "
    "object array list dict any text password secret token required optional default required. optional. "
    "secretstr varchar unset empty missing redacted hidden masked n/a tbd todo changeme? utf-8 utf8 base64 hex "
    "md5 sha1 sha-1 sha256 sha-256 sha512 sha-512 hs256 rs256 es256 oauth oauth2 basic bearer digest bcrypt "
    "argon2 argon2id scrypt pbkdf2 hmac aes-256 rsa rsa-2048 ed25519 x509 env file vault prompt stdin form-data "
    "urlencoded"
)
_PLACEHOLDER: Final = re.compile(
    r"<[^<>]*>|\$\{?\{?\s*[\w.\-]*\s*\}{0,2}|\{\{.*|%\(?\w*\)?s?|%\w+%|\*+|x{3,}|X{3,}|\.{2,}|…|_+|-+|\?+|#+"
    r"|\[[^\[\]]*\]|(?:your|my|the|some|insert|enter)[-_ ](?:\w+[-_ ]){0,3}(?:api.?key|key|token|password|secret)\b.*"
    r"|\{\w*\}|(?:your|my|the|some|insert|enter)_\w*(?:key|token|password|secret)\w*",
    re.IGNORECASE,
)
_TYPE: Final = re.compile(
    r"(?:str|string|bytes|text|int|integer|number|bool|boolean|any|optional|secretstr|union|none|null|varchar)\b[\s(\[,|;:=?].*",
    re.IGNORECASE,
)
_PATH: Final = re.compile(r"(?:~|\.{1,2}|[A-Za-z]:)?(?:/[\w.\-~ ]*)+")
_IDEOGRAPHS: Final = re.compile(r"[\u4e00-\u9fff]")
_SECRET_WORDS: Final = re.compile(
    r"pass(?:word|wort|phrase|code)|kennwort|contrase|senha|\bsecret|\btoken|api.?key|\bpin\b|\bkeys?\b|credential",
    re.IGNORECASE,
)
_SENTENCE: Final = re.compile(
    r"\b(?:your|must|required|enter|please|should|invalid|incorrect|wrong|forgot|at least|characters|optional|the)\b",
    re.IGNORECASE,
)


def _is_label(value: str) -> bool:
    """Whether the text is *about* a secret: a label, a hint of a form, a sentence of a manual."""
    if any(char.isdigit() for char in value) and " " not in value:
        return False
    return bool(_SECRET_WORDS.search(value)) and (" " in value or len(value) < 20)


def is_description(value: str) -> bool:
    """Whether the text stands where a secret would, without being one: a type, a placeholder, a label."""
    text = value.strip()
    low = text.lower()
    if _IDEOGRAPHS.search(text):  # Chinese is what people read: keyboards for passwords write none
        return True
    if not text or low in _NO_VALUE or _PLACEHOLDER.fullmatch(text[:200]) or _TYPE.match(text[:200]):
        return True
    if " " in text:
        return bool(_SECRET_WORDS.search(text) or _SENTENCE.search(text))
    return len(text) < 200 and _is_label(text) and low != "secret"


def is_random(value: str, least: int = 6) -> bool:
    """Whether the text looks generated: letters and digits mixed inside one word, or a long mix of cases."""
    if len(value) < least or any(char.isspace() for char in value):
        return False
    for part in re.split(r"[-_.:/\s]+", value[:400]):
        letters = any(char.isalpha() for char in part)
        digits = any(char.isdigit() for char in part)
        if letters and digits and len(part) >= least and not re.fullmatch(r"v?\d+[a-z]{0,2}", part):
            return True
        if len(part) >= 16 and not (letters and part in (part.lower(), part.upper(), part.title())):
            return not re.fullmatch(r"[A-Z]?[a-z]+(?:[A-Z][a-z]+)*", part)
    return False


# What counts as a value depends on how sure the name is: (value, is the field surely one?) -> is it a secret?


def _is_strong(value: str, structural: bool) -> bool:
    # prose says "the password is wrong": outside of a field a plain word is no password
    return structural or is_random(value, 4) or bool(_SIGNS.search(value.rstrip("!?")))


def _is_weak(value: str, structural: bool) -> bool:
    if is_random(value, 5 if structural else 8):
        return True
    if "://" in value or re.search(r"(?i)(?:password|pwd|key)=", value):  # a connection string
        return True
    marked = any(not char.isalnum() for char in value) and any(char.isdigit() for char in value)
    return len(value) >= 6 and marked and bool(_SIGNS.search(value))


def _is_digits(value: str, structural: bool) -> bool:
    return bool(re.fullmatch(r"\d{3,10}", value)) or is_random(value, 6)


def _is_session(value: str, structural: bool) -> bool:
    """Who has a session's id is in the session. It has 128 random bits (OWASP); shorter ones are of no server."""
    return len(value) >= 16 and is_random(value, 8)


def _is_cookie(value: str, structural: bool) -> bool:
    return "=" in value or is_random(value, 6)


def _is_signature(value: str, structural: bool) -> bool:
    """Of a signed address: base64 or hexadecimal, percent-encoded."""
    return len(value) >= 16 and " " not in value and (is_random(value, 8) or "%" in value)


_SIGNS: Final = re.compile(r"[!@#$%^&*?+=]")
"""Signs that passwords have and names in code do not."""
_KINDS: Final[dict[Rule, Callable[[str, bool], bool]]] = {
    "strong": _is_strong,
    "token": _is_strong,
    "weak": _is_weak,
    "count": _is_weak,
    "digits": _is_digits,
    "session": _is_session,
    "cookie": _is_cookie,
    "signature": _is_signature,
}


SCHEME: Final = re.compile(
    r"(?:bearer|basic|token|api[-_]?key|digest|key|negotiate|ntlm|aws4-hmac-sha256|hmac)[ \t]{1,4}", re.IGNORECASE
)
"""The scheme of an `Authorization` header (RFC 9110, section 11.4), and what servers use beside the registered ones."""


_PROSE: Final = _set("authentication authorization understanding responsibilities credentials required information")


def _is_header(value: str, *, structural: bool) -> bool:
    scheme = SCHEME.match(value)
    rest = value[scheme.end() :].strip() if scheme is not None else value.strip()
    if scheme is None and " " in rest:
        return "=" in rest and is_random(rest[:400].partition(" ")[2].replace(" ", ""), 8)
    if is_description(rest) and not is_random(rest, 8):
        return False
    return (
        is_random(rest, 5)
        or len(rest) >= 16
        or "=" in rest
        or (scheme is not None and len(rest) >= (6 if structural else 10) and rest.lower() not in _PROSE)
    )


def holds_secret(rule: Rule, value: str, *, structural: bool = True) -> bool:
    """Whether the value of a field is a secret. `structural`: the field is surely a field, not a word of a text."""
    if rule == "named":
        return True
    if rule == "header":
        return _is_header(value, structural=structural)
    if len(value) > _LONGEST_VALUE or is_description(value):
        return False
    # a path stands in the place of a secret more often than a secret looks like a path (`/run/secrets/db`); base64
    # may begin with a slash, though, and a strong name with random letters behind it is worth the risk
    if _PATH.fullmatch(value[:400]) and not (rule == "strong" and is_random(value, 16)):
        return False
    return _KINDS[rule](value, structural)


def holds_secret_number(rule: Rule, value: float) -> bool:
    """Whether a number in a field is a secret: a pin has four digits, and a password may be written as a number."""
    return rule in ("named", "strong", "token") or (
        rule in ("digits", "weak") and isinstance(value, int) and abs(value) >= 1000
    )
