"""Mistral: `[TOOL_CALLS]` and a list, or a name and its arguments.

Law: that of the room (callgate/dialects/__init__.py).
"""

from __future__ import annotations

from callgate.dialects._spec import THINK, Calls, Dialect, JsonArgs, JsonItems, Region

DIALECTS = (
    Dialect(
        "mistral_list",
        "Mistral 7B v0.3, Nemo, Large 2, Mixtral (pre-v11 tokenizers)",
        calls=(
            Calls(JsonItems(several=False), open=("[TOOL_CALLS]",)),
            Calls(JsonItems(), guard=True),  # a required call comes without its marker
        ),
        drop=("</s>",),
    ),
    Dialect(
        "mistral_args",
        "Mistral Small 3.1/3.2, Medium 3, Large 3, Devstral, Magistral, Ministral 3",
        calls=(
            Calls(
                JsonArgs(),
                open=("[TOOL_CALLS]",),
                or_items=True,
                header={"name": {"[CALL_ID]": "id", "[ARGS]": "", "&{": ""}, "id": {"[ARGS]": "", "&{": ""}},
            ),
        ),
        regions=(Region(("[THINK]",), ("[/THINK]",)), THINK),
        drop=("</s>",),
    ),
)
