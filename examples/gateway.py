"""The gateway in front of a server that mangles tool calls: the client gets a call that fits its schema.

The server here writes its call into the text and the number as a string, as many do. `callgate serve` stands between it
and the official client, and neither of them has to change.

python examples/gateway.py
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from openai import OpenAI

LEAKED = 'I look.\n<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo", "days": "3"}}</tool_call>'
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}


class Mangling(BaseHTTPRequestHandler):
    """A server of the chat completions API with a parser that knows nothing of its model."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """The models."""
        self.answer({"object": "list", "data": [{"id": "tiny", "object": "model"}]})

    def do_POST(self) -> None:
        """The same answer to every question."""
        self.rfile.read(int(self.headers["Content-Length"]))
        message = {"role": "assistant", "content": LEAKED}
        self.answer(
            {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
        )

    def answer(self, value: object) -> None:
        """Sends JSON."""
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@contextmanager
def gateway(backend: str) -> Iterator[str]:
    """The address of a gateway in front of this backend."""
    command = [sys.executable, "-m", "callgate", "serve", "--port", "0", backend]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().removeprefix("callgate ").strip()
        process.terminate()


with ThreadingHTTPServer(("127.0.0.1", 0), Mangling) as server:
    Thread(target=server.serve_forever, daemon=True).start()
    with (
        gateway(f"http://127.0.0.1:{server.server_port}/v1") as url,
        OpenAI(base_url=f"{url}/v1", api_key="none") as web,
    ):
        answer = web.chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": "How is the weather in Oslo?"}],
            tools=[{"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}],
        )
    server.shutdown()

choice = answer.choices[0]
print(choice.message.content, choice.finish_reason)
for call in choice.message.tool_calls or ():
    assert call.type == "function"
    print(call.function.name, call.function.arguments)
print(getattr(answer, "callgate", None))
