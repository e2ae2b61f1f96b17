"""Secrets that a text gives by name: `password=…`, JSON inside texts, headers, addresses, parameters in XML.

Law: that of the package (callgate/masking/__init__.py).

Theory of operation.
1. One pass finds the places where a word like `password`, `token` or `key` is followed by something that separates a
   name from its value. The word's whole name is read (at most 64 characters) and judged by `rule_of`.
2. The separator tells the form, and the form tells how sure the place is. In a quoted JSON field any password counts;
   after a colon in a text only what looks random does, because prose has colons too.
3. A value inside quotes ends at the quote of the same depth of escaping, so that JSON in a text stays JSON. A quote
   that opens after an unquoted name might close a JSON string; then what follows begins with `,`, `:`, `}` or `]`.
4. Each place costs a bounded amount of work: names, values and blanks have limits, and repetitions are possessive.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from callgate.masking._names import MAX_NAME, SCHEME, Rule, holds_secret, is_random, rule_of

Judge = Callable[[str], "Rule | None"]

HINTS: Final = (
    "pass", "pwd", "secret", "token", "key", "cred", "cookie", "auth", "jwt", "otp", "pin", "tan", "cvv", "cvc", "mfa",
    "pw", "sess", "kennwort", "contrase", "senha", "wachtwoord", "seed", "mnemonic", "conn", "dsn", "sig", "mdp",
    "密码", "口令", "密钥", "令牌",
)  # fmt: skip
"""In each name of a secret stands one of these, lower case and without separators."""
_WORD: Final = re.compile(
    rf"(?:{'|'.join(HINTS)})"
    r"[^\W]{0,24}+(?:[\-.][a-z0-9]{1,16}+){0,3}+"
    r"(?P<close>\\{0,16}+[\"'`]?)"
    r"(?P<sep>"
    r"[ \t]{0,4}(?:=>|:=|={1,3}|：|:(?!//|:))"
    r"|>"
    r"|</arg_key>\s{0,4}<arg_value>"
    r"|[ \t]{1,4}"
    r"|[ \t]{0,4},"
    r"|[ \t]?\((?=\s{0,4}[bfru]{0,2}\\{0,16}[\"'])"
    r")"
)
_PAIRED: Final = re.compile(r"\s{0,4},\s{0,4}\\{0,16}+[\"'](?:value|val|content|data)\\{0,16}+[\"']\s{0,4}:")
"""After `"name": "password"`: the value is in the field beside it."""
_INNER: Final = re.compile(
    r"\s{0,4}\[(?=\s{0,4}\\{0,16}+\")|\s{0,4}\{\s{0,4}\\{0,16}+[\"'](?:value|val|content|data)\\{0,16}+[\"']\s{0,4}:"
)
"""After `"password":`: the value is in an object, or the first of a list."""
_ATTRIBUTE: Final = re.compile(r"\s{1,4}value\s?=")
_ASKS: Final = re.compile(
    r"(?:get|has|is|are|find|read|load|fetch|ask|prompt|input|check|validate|verify|need|require|delete|remove|forget)"
    r"(?![a-z])",
)
"""How the name of a function begins that is given the *name* of a secret, or a question: `get_secret("prod/db")`."""
_GIVES: Final = re.compile(
    r"(?:set|with|change|update|reset|put|use|new|add|hash|encode|encrypt|encipher|store|save)(?![a-z])"
)
"""How the name of a function begins that is given the secret itself, whatever it looks like: `setPassword("tiger")`."""
_SPACE: Final = re.compile(r"[ \t]{0,8}+")
_SPACES: Final = re.compile(r"\s{0,8}+")
_OPEN: Final = re.compile(r"(?:[bfru]{1,2})?(\\{0,16}+)([\"'`])")
_BARE: Final = re.compile(r"[^\s\"'`&,;\\{}\[\]()<>|]{1,512}+")
_ESCAPED: Final = re.compile(r"<(?:escape|\|\\{0,4}[\"']\|)>")
_LINE: Final = re.compile(r"[^\r\n\"'`\\<>{}\[\]]{1,4000}+")
_BLANKS: Final = re.compile(r"(?:\s|\\{1,4}[nrt]){0,8}+")
_NO_BEGINNING: Final = ",:;})] \t\r\n"
"""What a value does not begin with, after a quote that may close a JSON string (rule 3)."""
_LONGEST: Final = 4000
"""Characters of the longest value in quotes or tags."""

_SCHEME: Final = re.compile(r"(?:bearer|basic)[ \t]{1,4}(?P<v>[a-z0-9_\-.~+/=]{8,4000}+)")
_ADDRESS: Final = re.compile(
    r"://[^\s/:@\"'<>\\]{0,100}+:(?P<v>(?!\[masked\]@)[^\s/\"'<>{}\[\]\\,?#]{1,200})(?=@[\w\[])"
)
_VALUE: Final = (
    r"(?:'(?P<q>[^'\"\\\n,:;})\]\s][^'\"\\\n]{0,200}+)'"
    r"|\\{0,16}\"(?P<d>[^\"'\\\n,:;})\]\s][^\"'\\\n]{0,200}+)\\{0,16}\""
    r"|(?P<v>[^\s\"'\\\[\]\-,:;|&})][^\s\"'\\\[\];|&]{0,200}+))"
)
"""A word of a command line; a quote that may close a JSON string opens none (rule 3)."""
_GLUED: Final = r"(?<![\w\-])PROGRAM(?=\s)[^\n;|&]{0,400}?\s(?-i:-p)" + _VALUE
_FLAGGED: Final = r"(?<![\w\-])PROGRAM(?=\s)[^\n;|&]{0,400}?\s(?-i:FLAG)\s{1,4}" + _VALUE
_FLAGS: Final = (
    ("mongo", r"mongo\w{0,12}", "-p"),
    ("docker login", "docker login", "-p"),
    ("podman login", "podman login", "-p"),
    ("redis-cli", "redis-cli", "-a"),
    ("ldap", r"ldap(?:search|modify|add|delete|passwd|whoami)", "-w"),
    ("unzip", "unzip", "-P"),
    ("zip", "zip", "-P"),
)
_COMMANDS: Final = tuple(
    (hint, re.compile(pattern, re.IGNORECASE))
    for hint, pattern in (
        (
            "curl",
            r"(?<![\w\-])curl(?=\s)[^\n]{0,400}?\s(?:-u|--user)[ =]{0,2}[\"']?[^\s:\"'\\]{1,64}:"
            r"(?P<v>[^\s\"'\\\[\]]{1,200}+)",
        ),
        ("sshpass", r"(?<![\w\-])sshpass\s{1,4}-p\s{0,4}" + _VALUE),
        # The families of clients that take a password glued to `-p`; a blank behind it means that it is asked for.
        *((hint, _GLUED.replace("PROGRAM", rf"{hint}[\w\-]{{0,16}}")) for hint in ("mysql", "mariadb", "7z")),
        # And those that take it behind a flag of one letter, each with its own.
        *((hint, _FLAGGED.replace("PROGRAM", program).replace("FLAG", flag)) for hint, program, flag in _FLAGS),
        ("identified by", r"identified by\s{1,4}'(?P<v>[^'\"\\\[\]]{1,200}+)'"),
        ("login ", r"(?<!\w)login\s{1,4}\S{1,64}\s{1,4}password\s{1,4}(?P<v>[^\s\"'\\\[\]]{1,200}+)"),  # .netrc
    )
)
"""(one of these stands in the text, lower case; then this is looked for, and its last group is the secret)."""
PROGRAMS: Final = tuple(dict.fromkeys(hint for hint, _ in _COMMANDS))
"""In each command line that holds a secret without naming it stands one of these, lower case."""


def spans(text: str, judge: Judge = rule_of) -> Iterator[tuple[int, int]]:
    """Where in the text the values of secrets stand."""
    lower = text.lower()
    if len(lower) != len(text):  # a letter whose small form is two: places would shift
        lower = "".join(char if len(small := char.lower()) != 1 else small for char in text)
    passed = 0
    for found in _WORD.finditer(lower):
        if found.start() < passed:
            continue
        span = _value_of(text, found, judge)
        if span is not None and span[0] < span[1]:
            yield span
            passed = span[1]
    yield from _schemes(text, lower)
    yield from _addresses(text)
    for hint, pattern in _COMMANDS:
        if hint in lower:
            yield from (found.span(found.lastgroup or "v") for found in pattern.finditer(text))


def _schemes(text: str, lower: str) -> Iterator[tuple[int, int]]:
    if "bearer" not in lower and "basic" not in lower:
        return
    for found in _SCHEME.finditer(lower):
        value = text[slice(*found.span("v"))]
        mixed = value not in (value.lower(), value.upper(), value.capitalize())
        if _random(value) or (len(value) >= 16 and (mixed or "=" in value)) or len(value) >= 24:
            yield found.span("v")


def _random(value: str) -> bool:
    return holds_secret("weak", value, structural=False)


def _addresses(text: str) -> Iterator[tuple[int, int]]:
    at = text.find("://")
    while at >= 0:
        found = _ADDRESS.match(text, at)
        if found is not None:
            yield found.span("v")
        at = text.find("://", found.end() if found is not None else at + 3)


# --- one place ----------------------------------------------------------------------------------------------------


def _name_before(text: str, start: int, end: int) -> tuple[str, int]:
    """The whole name that ends at `end`, and where it begins."""
    first = start
    while first > 0 and start - first <= MAX_NAME and (text[first - 1].isalnum() or text[first - 1] in "_-."):
        first -= 1
    if text[first - 1 : first] == "\\" and text[first] in "nrtbf":
        first += 1  # in JSON a line end before the name reads `\\n`
    return text[first:end], first


def _skip(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found is not None else at


def _value_of(text: str, found: re.Match[str], judge: Judge) -> tuple[int, int] | None:
    """Where the value of this name stands, if it is one and a secret (rule 2)."""
    name, first = _name_before(text, found.start(), found.start("close"))
    flag = name.startswith("--")
    rule = judge(name.strip("-.") if flag or name[-1:] in "-." else name)
    if rule is None:
        return None
    sep, close = found["sep"], found["close"]
    quoted = close.strip("\\") != "" and text[first - 1 : first] == close[-1:]
    if sep == ">" or sep.startswith("</"):
        opened = sep != ">" or text[first - 1 : first] in ("<", "=") or close != ""
        return _tagged(text, found.end(), rule) if opened else None
    if not sep.strip():
        return _after_blank(text, found.start("sep"), found.end(), rule, flag=flag, close=close if quoted else "")
    if sep.endswith("("):
        return _called(text, found.end(), rule, name=name)
    if sep.strip() == ",":
        return _after_comma(text, found, rule) if quoted else None
    return _after_sign(text, found, rule, name=name, quoted=quoted)


def _called(text: str, at: int, rule: Rule, *, name: str) -> tuple[int, int] | None:
    """The first argument of a function whose name ends like that of a secret: `user.setPassword("…")`."""
    verb = name.rpartition(".")[2].lstrip("_")
    verb = verb[:1].lower() + verb[1:]  # Go and C# write `SetPassword`
    place = None if _ASKS.match(verb) else _quoted(text, _skip(_SPACES, text, at))
    if place is None or rule in ("header", "cookie") or text[place[0]] in _NO_BEGINNING or text[place[0]] == "\\":
        return None
    return place if holds_secret(rule, text[slice(*place)], structural=_GIVES.match(verb) is not None) else None


def _after_sign(text: str, found: re.Match[str], rule: Rule, *, name: str, quoted: bool) -> tuple[int, int] | None:
    """The value after a colon, an equals sign or an arrow."""
    at, close = found.end(), found["close"]
    if quoted and (inner := _INNER.match(text, at)):
        at = inner.end()
    if quoted and not _same_depth(text, at, close):
        return None
    begin = _skip(_SPACES, text, at)
    if quoted and text[begin : begin + 1] in ("'", '"') and text[begin] != close[-1]:
        quoted = False  # {'word': "…"}: the second quote may close a string around both
    return _assigned(text, at, rule, name=name, sep=found["sep"], quoted=quoted)


def _same_depth(text: str, at: int, close: str) -> bool:
    """Whether the value's quote is escaped as often as the name's; else it closes a string around both (rule 3)."""
    opened = _OPEN.match(text, _skip(_SPACES, text, at))
    return opened is None or len(opened[1]) == len(close) - 1


def _after_blank(text: str, start: int, at: int, rule: Rule, *, flag: bool, close: str) -> tuple[int, int] | None:
    if close:  # <input name="password" value="…">
        attribute = _ATTRIBUTE.match(text, start)
        return (
            None
            if attribute is None or not _same_depth(text, attribute.end(), close)
            else _assigned(text, attribute.end(), rule, name="", sep="=", quoted=True)
        )
    if not flag:  # … WITH PASSWORD 'x1y2z3'
        place = _in_quotes(text, at, rule, quoted=False) if text[at : at + 1] in ("'", '"') else None
        return place if place is not None and is_random(text[slice(*place)], 5) else None
    if text.startswith("-", at):
        return None
    return _assigned(text, at, rule, name="", sep="=", quoted=False)


def _after_comma(text: str, found: re.Match[str], rule: Rule) -> tuple[int, int] | None:
    start, at, close = found.start("sep"), found.end(), found["close"]
    paired = _PAIRED.match(text, start)
    if paired is not None and _same_depth(text, paired.end(), close):
        return _assigned(text, paired.end(), rule, name="", sep=":", quoted=True)
    place = _quoted(text, _skip(_SPACES, text, at))
    if place is None or not _same_depth(text, at, close):
        return None
    if not holds_secret("header" if rule in ("strong", "token") else rule, text[slice(*place)]):
        return None  # ["password", "username"] is a list of words, ["Authorization", "Token abc1"] a header
    return place


def _assigned(text: str, at: int, rule: Rule, *, name: str, sep: str, quoted: bool) -> tuple[int, int] | None:
    begin = _skip(_SPACES if quoted else _SPACE, text, at)
    if escaped := _ESCAPED.match(text, begin):
        return _tagged(text, escaped.end(), rule)
    if _OPEN.match(text, begin):
        return _in_quotes(text, begin, rule, quoted=quoted)
    if quoted and ":" in sep:
        return None  # a number or a word of JSON: a mask would break it
    if rule in ("header", "cookie"):
        return _line(text, begin, rule)
    bare = _BARE.match(text, begin)
    if bare is None:
        return None
    tight = begin == at and "=" in sep and not sep[:1].isspace()
    value = bare.group().rstrip(".:!?") if not tight else bare.group()
    end = begin + len(value)
    if not _is_bare_secret(text, value, end, rule, name=name, tight=tight):
        return None
    return begin, end


def _is_bare_secret(text: str, value: str, end: int, rule: Rule, *, name: str, tight: bool) -> bool:
    """Rule 2, for a value without quotes: code and prose have names and words there."""
    if text[end : end + 1] in ("(", "[", "{", "<") or re.fullmatch(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+", value):
        return False
    if tight and rule == "strong":
        environment = name.isupper()
        return holds_secret(rule, value) and (len(value) >= 3 and (environment or value.lower() != "secret"))
    return holds_secret(
        rule, value, structural=(tight and rule in ("weak", "count")) or rule in ("digits", "signature")
    )


def _in_quotes(text: str, begin: int, rule: Rule, *, quoted: bool) -> tuple[int, int] | None:
    place = _quoted(text, begin)
    if place is None:
        return None
    start, end = place
    if not quoted and (text[start] in _NO_BEGINNING or text.startswith("\\", start)):
        return None  # rule 3
    if rule == "header":
        scheme = SCHEME.match(text, start)
        start = scheme.end() if scheme is not None and scheme.end() < end else start
        return (start, end) if holds_secret("header", text[place[0] : end]) else None
    return (start, end) if holds_secret(rule, text[start:end]) else None


def _quoted(text: str, begin: int) -> tuple[int, int] | None:
    """The content of the quotes that open at `begin`; up to the end of the line if they do not close (rule 3)."""
    opened = _OPEN.match(text, begin)
    if opened is None:
        return None
    depth, quote, start = len(opened[1]), opened[2], opened.end()
    limit = min(len(text), start + _LONGEST)
    at = text.find(quote, start, limit)
    while at >= 0:
        slashes = _slashes(text, at, start)
        # JSON inside JSON (RFC 8259, section 7): each level doubles the backslashes, so before the quote that closes
        # stand `depth` of them, and twice `depth + 1` more for each backslash that the value ends with.
        if slashes <= depth or slashes % (2 * (depth + 1)) == depth:
            return _checked(text, start, at - slashes if depth else at, quote)
        at = text.find(quote, at + 1, limit)
    line = re.compile(r"[^\r\n\"'`\\]*+").match(text, start, limit)
    return _checked(text, start, line.end() if line is not None else start, quote)


def _slashes(text: str, at: int, least: int) -> int:
    first = at
    while first > least and text[first - 1] == "\\" and at - first < 64:
        first -= 1
    return at - first


def _checked(text: str, start: int, end: int, quote: str) -> tuple[int, int] | None:
    """Not over a line end, and inside other quotes never over a double quote: it may be JSON's."""
    line = text.find("\n", start, end)
    end = line if line >= 0 else end
    if quote != '"':
        for mark in ('"', "\\"):
            found = text.find(mark, start, end)
            end = found if found >= 0 else end
    return (start, end) if start < end else None


def _tagged(text: str, at: int, rule: Rule) -> tuple[int, int] | None:
    """The value before the next tag, without the blanks around it."""
    start = _skip(_BLANKS, text, at)
    end = text.find("<", start, start + _LONGEST)
    if end < 0 or not text.startswith(("</", "<escape", "<|"), end):
        return None
    value = text[start:end]
    while (cut := re.sub(r"(?:\s|(?<!\\)(?:\\{1,4}[nrt]))\Z", "", value)) != value:
        value = cut
    if '"' in value or "\\" in value or not holds_secret(rule, value):
        return None
    return start, start + len(value)


def _line(text: str, begin: int, rule: Rule) -> tuple[int, int] | None:
    """A header: everything up to the end of the line, its scheme left as it is."""
    line = _LINE.match(text, begin)
    if line is None:
        return None
    value = line.group().rstrip()
    if not holds_secret(rule, value, structural=False):
        return None
    scheme = SCHEME.match(text, begin)
    start = scheme.end() if rule == "header" and scheme is not None else begin
    if start == begin and rule == "header" and " " in value:
        return None  # no scheme that is known, and words: prose
    return start, begin + len(value)
