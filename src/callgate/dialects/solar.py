"""Token pairs around every part: Solar Open, PLaMo 3; and names on lines of their own: Step-Audio 2, CWM."""

from __future__ import annotations

from callgate.dialects._spec import THINK, Calls, Dialect, JsonArgs, Region

DIALECTS = (
    Dialect(
        "solar_open",
        "Solar Open 100B",
        calls=(
            Calls(
                JsonArgs(),
                section=("<|tool_calls|>",),
                section_close=("<|calls|>",),
                open=("<|tool_call:begin|>",),
                close=("<|tool_call:end|>",),
                header={"id": {"<|tool_call:name|>": "name"}, "name": {"<|tool_call:args|>": ""}},
            ),
        ),
        regions=(Region(("<|think|>",), ("<|end|>",)),),
        drop=("<|begin|>assistant", "<|content|>", "<|end|>", "<|flush|>", "<|calls|>"),
    ),
    Dialect(
        "plamo3",
        "PLaMo 3",
        calls=(
            Calls(
                JsonArgs(),
                section=("<|plamo:begin_tool_requests:plamo|>",),
                section_close=("<|plamo:end_tool_requests:plamo|>",),
                section_needed=False,
                open=("<|plamo:begin_tool_request:plamo|>",),
                close=("<|plamo:end_tool_arguments:plamo|>",),
                inner=("<|plamo:end_tool_request:plamo|>",),
                header={
                    "_before": {"<|plamo:begin_tool_name:plamo|>": "name"},
                    "name": {"<|plamo:end_tool_name:plamo|>": "_between"},
                    "_between": {"<|plamo:begin_tool_arguments:plamo|>": "arguments"},
                    "arguments": {"<|plamo:constrain|>": "kind", "<|plamo:msg|>": "", "&{": ""},
                    "kind": {"<|plamo:msg|>": "", "&{": ""},
                },
            ),
        ),
        regions=(Region(("<|plamo:begin_think:plamo|>",), ("<|plamo:end_think:plamo|>",)),),
        drop=("<|plamo:tag|>", "<|plamo:op|>", "<|plamo:msg|>", "<|plamo:eos|>"),
    ),
    Dialect(
        "step_audio2",
        "Step-Audio 2",
        calls=(
            Calls(
                JsonArgs(),
                open=("<tool_call>",),
                close=("</tool_call>",),
                header={"type": {"\n": "name"}, "name": {"\n": "", "&{": ""}},
            ),
        ),
        drop=("<|EOT|>", "<|endoftext|>"),
    ),
    Dialect(
        "cwm",
        "CWM-style `<tool: …>`",
        calls=(
            Calls(
                JsonArgs(text_key="command"),
                open=("<tool:",),
                close=("</tool>",),
                hook="first_word",
            ),
        ),
        regions=(THINK,),
        drop=("<|eot_id|>", "<|end_of_text|>"),
    ),
)
