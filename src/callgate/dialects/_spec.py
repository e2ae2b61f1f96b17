"""The words a dialect is written in: regions, call shapes and payloads, as data.

Law: a dialect is data: equal data reads equally, and nothing of it changes while a message is read.
(tests/test_dialects_reading.py::test_a_plan_is_made_once_and_never_changes)

Layer 1, regions: stretches of text that are reasoning or nothing at all. Layer 2, `Calls`: an optional section around
calls, a call's opener, header fields, a payload, a closer. Four payloads cover all dialects: `JsonItems` (the name is
inside the JSON), `JsonArgs` (header, then an object), `Params` (tagged parameters), `Literals` (Python-style keyword
arguments and Gemma's bare keys); `Raw` is code or plain text.

A word stands here only if several dialects need it. What one family alone does is a function in its own file, given as
`Calls.read`, `Calls.arguments`, `Calls.named`, `Params.value` or `Channels.headers`.
(tests/test_dialects_reading.py::test_a_word_of_the_spec_is_used_by_more_than_one_dialect)
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeAlias

from callgate.dialects._response_template import CallFormat, read_template

Texts: TypeAlias = tuple[str, ...]
Header: TypeAlias = Mapping[str, Mapping[str, str]]
"""For each field the markers that may end it, and which field comes next: "" is the payload. A marker written with a
leading "&" is not consumed (it belongs to what follows). The first field listed is the first in the text; one whose
name begins with "_" holds nothing, and with "" among its markers it may be missing."""

# The grammars import this module, so their types cannot be named here; each field says what its function is given.
Reads: TypeAlias = Callable[..., Generator[None, None, bool]]
Takes: TypeAlias = Callable[..., Generator[None, None, None]]
TakesValue: TypeAlias = Callable[..., Generator[None, None, "str | None"]]
Named: TypeAlias = Callable[..., "tuple[str | None, str | None]"]

NAME_KEYS: Texts = ("name", "tool", "tool_name", "function")
ARGS_KEYS: Texts = ("arguments", "parameters", "args", "input")
ID_KEYS: Texts = ("id", "tool_call_id")


@dataclass(frozen=True, slots=True)
class Region:
    """Text between markers that is not content.

    A region without closers is written in words, as in `Thought: …`: its markers count only at the start of a line,
    and the next opener of the dialect, which stays in the text, ends it.
    """

    open: Texts
    close: Texts
    kind: Literal["reasoning", "sealed", "drop", "text"] = "reasoning"
    """`sealed`: reasoning in which no call counts, even if it never closes (policy K); `drop`: nobody sees it;
    `text`: the opener is markup, what follows is content."""
    first: bool = False
    """The opener counts only before anything visible."""


@dataclass(frozen=True, slots=True)
class JsonItems:
    """JSON objects that hold name and arguments: one, a list, or several in a row."""

    name_keys: Texts = NAME_KEYS
    args_keys: Texts = ARGS_KEYS
    several: bool = True
    """More objects may follow one another without a list."""

    def __hash__(self) -> int:
        return hash((self.name_keys, self.args_keys))


@dataclass(frozen=True, slots=True)
class JsonArgs:
    """One JSON object after a header."""


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
    trim: Literal["none", "each", "pair"] = "none"
    """One newline goes on each side; or only if both are there."""
    json_body: bool = False
    """A JSON object may stand in place of the parameters."""
    blanks: Texts = ()
    """Texts between tags that count as white space."""
    value: TakesValue | None = None
    """Reads a parameter behind its key, in place of `_params.tagged_value`."""


@dataclass(frozen=True, slots=True)
class Literals:
    """Python-style or Gemma-style values, turned into JSON as they arrive."""

    style: Literal["python", "gemma", "words"] = "python"
    """`words`: as in Python, but unquoted words are strings."""
    mark: str = ""
    """Gemma's string mark."""


@dataclass(frozen=True, slots=True)
class Raw:
    """Code up to the closer or the end of the text, as one string argument."""

    key: str = "code"


@dataclass(frozen=True, slots=True)
class Undecided:
    """Any of several dialects: what follows the opener tells which (`"auto"`)."""


Payload: TypeAlias = JsonItems | JsonArgs | Params | Literals | Raw | Undecided


@dataclass(frozen=True, slots=True)
class Calls:
    """How calls are written."""

    payload: Payload
    open: Texts = ()
    close: Texts = ()
    header: Header = field(default_factory=dict, hash=False)
    section: Texts = ()
    section_close: Texts = ()
    inner: Texts = ()
    """Markers after a call's closer that belong to it."""
    line: bool = False
    """Openers count only at the start of a line."""
    guard: bool = False
    """No markup of its own: only a known tool makes a call, else the text comes back. `open`, if given, says which
    of `{`, `[` and a code fence may begin one."""
    fence: bool = False
    """The payload may stand in a code fence."""
    attributes: bool = False
    """The header's name is among attributes: `name="N"`."""
    named: Named | None = None
    """(reading, the header's fields) -> (name, id): how the header names a tool, if not by its name alone. A name of
    None is none; "" has to be guessed from the arguments."""
    arguments: Takes | None = None
    """(reading, calls, the header's fields): reads the arguments, in place of the payload's grammar."""
    read: Reads | None = None
    """(reading, the marker's rule, look-ahead): reads everything behind the opener."""
    or_items: bool = False
    """JSON objects with names may stand in place of header and payload."""
    in_section: bool = False
    """These calls stand in a section: white space behind one is no text."""
    again: Texts = ()
    """Behind a call's payload: another call follows in the same block, its header next."""
    known: bool = False
    """Only a known tool's name makes this opener a call."""
    closed_by_end: bool = False
    """Tagged parameters: the end of the text ends a call too (its closer is a stop token)."""


class ReadsHeaders(Protocol):
    """What reads the headers of messages, and decides what their bodies are."""

    def begin(self, r: Any, written: str, *, prompted: bool) -> Generator[None, None, bool]:
        """The message's start; `written` is what the prompt holds of a header."""
        ...

    def message(self, r: Any, hold: Any, opener: str) -> Generator[None, None, bool]:
        """One message whose header has begun by its opener."""
        ...


@dataclass(frozen=True, slots=True)
class Channels:
    """Messages with a header that tells what the body is (harmony and its like)."""

    start: Texts
    body: Texts
    end: Texts
    """None: a message has no end but the next one's start, and a header is nothing but a recipient's name."""
    tail: Texts
    """Ends of a prompt after which the text begins inside a header."""
    headers: ReadsHeaders
    """How headers are read and routed: a `_channels.Headers`, or what a family derives from it."""


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

    @staticmethod
    def from_response_template(template: Mapping[str, object] | str, *, name: str = "response_template") -> Dialect:
        """The dialect that a checkpoint's own `response_template` describes (an object, or its JSON text).

        Raises ValueError that names the place which is not understood.
        """
        found = read_template(template)
        return Dialect(
            name=name,
            calls=(_calls_of(found.call),) if found.call is not None else (),
            regions=tuple(Region(opens, closes) for opens, closes in found.reasoning),
            drop=found.drop,
        )

    def but(self, **changes: object) -> Dialect:
        """This dialect with other fields."""
        return replace(self, **changes)  # type: ignore[arg-type]


def _calls_of(form: CallFormat) -> Calls:
    """Calls as a response template describes them."""
    payload: Payload
    if form.tag is not None:
        opener, key_end, mid, close = form.tag
        payload = Params((opener,), (close,), key_end=(key_end,), mid=(mid,) if mid else (), trim="each")
    elif form.mark or form.relaxed:
        payload = Literals("gemma", mark=form.mark or '"')
    elif form.named:
        payload = JsonArgs()
    else:
        payload = JsonItems(
            name_keys=(form.name_key,) if form.name_key else NAME_KEYS,
            args_keys=(form.args_key,) if form.args_key else ARGS_KEYS,
        )
    ends = {form.name_end: ""} if form.name_end else {"&{": ""}
    if form.tag is not None:
        ends |= {f"&{form.tag[0]}": "", **{f"&{close}": "" for close in form.close}}
    return Calls(
        payload,
        open=form.open,
        close=form.close,
        header={"name": ends} if form.named else {},
        section=form.section,
        section_close=form.section_close,
    )


THINK = Region(("<think>",), ("</think>",))
END_TOKENS: Texts = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "</s>")
