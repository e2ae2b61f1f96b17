"""The words a dialect is written in: regions, call shapes and payloads, as data.

One law: a dialect says *what* its markup is; how it is read is the reader's business, once for all.

Layer 1, regions: stretches of text that are reasoning or nothing at all. Layer 2, `Calls`: an optional section around
calls, a call's opener, header fields, a payload, a closer. Four payloads cover all dialects: `JsonItems` (the name is
inside the JSON), `JsonArgs` (header, then an object), `Params` (tagged parameters), `Literals` (Python-style keyword
arguments and Gemma's bare keys); `Raw` is code or plain text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

Texts: TypeAlias = tuple[str, ...]
Header: TypeAlias = Mapping[str, Mapping[str, str]]
"""For each field the markers that may end it, and which field comes next: "" is the payload. A marker written with a
leading "&" is not consumed (it belongs to what follows). The first field listed is the first in the text; one whose
name begins with "_" holds nothing."""

NAME_KEYS: Texts = ("name", "tool", "tool_name", "function")
ARGS_KEYS: Texts = ("arguments", "parameters", "args", "input")
ID_KEYS: Texts = ("id", "tool_call_id")


@dataclass(frozen=True, slots=True)
class Region:
    """Text between markers that is not content."""

    open: Texts
    close: Texts
    kind: Literal["reasoning", "drop", "text"] = "reasoning"
    """`text`: the opener is markup, what follows is content."""
    ends_at: Texts = ()
    """Markers that end the region and stay in the text."""
    prefilled: Texts = ()
    """Ends of a prompt that open the region, besides the openers themselves."""
    first: bool = False
    """The opener counts only before anything visible."""
    line: bool = False
    """The markers count only at the start of a line."""
    note: str = ""
    """A problem to name when the region opens."""


@dataclass(frozen=True, slots=True)
class JsonItems:
    """JSON objects that hold name and arguments: one, a list, or several in a row."""

    name_keys: Texts = NAME_KEYS
    args_keys: Texts = ARGS_KEYS
    id_keys: Texts = ID_KEYS
    name_is_key: bool = False
    """`{NAME: {arguments}}`."""
    in_list: bool = False
    """The opener already contains the list's bracket."""
    several: bool = True
    """More objects may follow one another without a list."""
    skip: Texts = ()
    """Names that mean "no call"."""


@dataclass(frozen=True, slots=True)
class JsonArgs:
    """One JSON object after a header."""

    text_key: str | None = None
    """What is no JSON is plain text for this parameter; "" for the tool's only string parameter."""
    to_line: bool = False
    """Plain text ends with its line."""


@dataclass(frozen=True, slots=True)
class Params:
    """Tagged parameters: open, key, middle, value, close."""

    open: Texts
    close: Texts
    key_end: Texts = (">",)
    mid: Texts = ()
    """Between key and value, white space around it (`<arg_value>`)."""
    attributes: bool = False
    """The key is among attributes: `name="K" string="true"`."""
    type_open: Texts = ()
    type_close: Texts = ()
    trim: Literal["none", "each", "pair"] = "none"
    """One newline goes on each side; or only if both are there."""
    cdata: bool = False
    json_body: bool = False
    """A JSON object may stand in place of the parameters."""
    entities: bool = False
    """Values escape `&`, `<`, `>` and quotes as in HTML."""
    blanks: Texts = ()
    """Texts between tags that are white space, as it were."""
    tokens: bool = False
    """Its markers are special tokens, never text: any of them ends a value."""
    nested: str = ""
    """MiniMax M3: the token before every tag; the tag's name is the key, and values nest."""


@dataclass(frozen=True, slots=True)
class Literals:
    """Python-style or Gemma-style values, turned into JSON as they arrive."""

    style: Literal["python", "gemma"] = "python"
    mark: str = ""
    """Gemma's string mark."""
    bare_words: bool = False
    """Unquoted words are strings."""


@dataclass(frozen=True, slots=True)
class Raw:
    """Code up to the closer or the end of the text, as one string argument."""

    key: str = "code"


Payload: TypeAlias = JsonItems | JsonArgs | Params | Literals | Raw


@dataclass(frozen=True, slots=True)
class Calls:
    """How calls are written."""

    payload: Payload
    open: Texts = ()
    close: Texts = ()
    header: Header = field(default_factory=dict, hash=False)
    section: Texts = ()
    section_close: Texts = ()
    section_needed: bool = True
    """A call without its section is a slip (policy M), not a habit."""
    inner: Texts = ()
    """Markers after a call's closer that belong to it."""
    line: bool = False
    """Openers count only at the start of a line."""
    guard: bool = False
    """No markup of its own: only a known tool makes a call, else the text comes back."""
    fence: bool = False
    """The payload may stand in a code fence."""
    fence_only: bool = False
    """Unmarked calls count in a code fence only."""
    name: Literal["plain", "attributes", "kimi", "code", "double"] = "plain"
    """How the header's name is read: as it is; among attributes; `functions.NAME:N`; the code tool;
    among attributes, and `x.x` is x."""
    text_end: str = ""
    """The header's last marker behind which stands plain text for the tool's only string parameter."""
    or_items: bool = False
    """JSON objects with names may stand in place of header and payload."""
    known: bool = False
    """Only a known tool's name makes this opener a call."""
    closed_by_end: bool = False
    """Tagged parameters: the end of the text ends a call too (its closer is a stop token)."""
    separator: Literal["", "\n"] = ""
    """Python-style calls in one block stand on lines of their own."""
    hook: Literal["", "python_tag", "first_word", "choose"] = ""
    """What data cannot say (see _plain)."""


@dataclass(frozen=True, slots=True)
class Channels:
    """Messages with a header that says what the body is (harmony and its like)."""

    start: Texts
    body: Texts
    end: Texts
    tail: Texts
    """Ends of a prompt after which the text begins inside a header."""
    payload: Payload = field(default_factory=JsonArgs)
    marked: bool = False
    """The dialect's calls are marked up inside the body; the header only tells for whom it is."""
    recipient: bool = False
    """The header is nothing but a recipient."""
    space: bool = False
    """One space after every special token is part of it."""
    reasoning: Texts = ("analysis",)
    text: Texts = ("final", "commentary")
    to_text: Texts = ("user", "all")
    to_reasoning: Texts = ("self",)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one family of models writes reasoning and calls."""

    name: str
    models: str = ""
    calls: tuple[Calls, ...] = ()
    regions: tuple[Region, ...] = ()
    channels: Channels | None = None
    drop: Texts = ()
    """Tokens that are markup and nothing else: ends of turn, wrappers of the answer."""
    suffix: bool = False
    """Every `<tag>` may carry a tokenizer's suffix: `<tag:suffix>`."""
    reasoning_calls: bool = True
    """Whether a call in reasoning that never closes counts (policy K)."""
    aliases: Texts = ()
    """Other names: of the parser in a server (vLLM, SGLang), of models that the table of names does not know."""

    def __hash__(self) -> int:
        return hash(self.name)

    @staticmethod
    def tagged(start: str, end: str) -> Dialect:
        """A dialect for one's own tags around JSON calls. Raises ValueError for an empty tag."""
        if not start or not end:
            raise ValueError("Dialect.tagged: both tags need at least one character")
        return Dialect(name=f"{start}…{end}", calls=(Calls(JsonItems(), open=(start,), close=(end,), fence=True),))

    def but(self, **changes: object) -> Dialect:
        """This dialect with other fields."""
        return replace(self, **changes)  # type: ignore[arg-type]


THINK = Region(("<think>",), ("</think>",))
END_TOKENS: Texts = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "</s>")
