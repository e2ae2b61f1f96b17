"""The HTTP client of a server that is reached by its URL: limits on an answer, and the end of a session made known.

The SDK limits the events of a stream, but reads a plain JSON body to its end; and of a 404 it passes on whatever the
body says, so that an expired session looks like any error of the server.

Law: no answer of a server is held beyond MAX_MESSAGE bytes.
(tests/test_mcp_trust.py::test_a_plain_json_body_has_a_limit)
Law: only a 404 to a request of a session says that the session has ended.
(tests/test_mcp_sessions.py::test_words_of_an_expired_session_in_an_ordinary_answer_prove_nothing)
"""

from __future__ import annotations

import functools
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from callgate.mcp._encoding import sound_json
from callgate.mcp._pipes import MAX_MESSAGE

SESSION: Final = "mcp-session-id"


def limited_client(headers: Mapping[str, str], *, expired: str, auth: Any = None) -> Any:
    """An `httpx2.AsyncClient` whose plain answers end with a StreamError at MAX_MESSAGE bytes.

    The answer to a request of a session that the server does not know any more becomes a JSON-RPC error whose `data`
    is `expired`: a word that the server cannot know.
    """
    import httpx2

    async def limit(response: Any) -> None:
        """Counts bytes as they come, so an answer that is compressed although nobody asked for it is refused."""
        if response.status_code == 404 and SESSION in response.request.headers:
            return _replace(response, expired)
        if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            await response.aclose()
            raise httpx2.StreamError("the server compressed its answer, which nobody asked for")
        events = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        response.stream = _body()(_limited(response.stream, events=events), response.stream)
        return None

    return httpx2.AsyncClient(
        headers={**headers, "Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(30.0, read=300.0),
        event_hooks={"response": [limit]},
        auth=auth,
    )


def _replace(response: Any, expired: str) -> None:
    """Says of a session that has ended the same in every case, whatever the server's body is."""
    if response.request.method == "DELETE":
        response.status_code = 204  # what is to be ended has ended
    error = {"code": -32600, "message": "the server knows this session no more", "data": expired}
    text = json.dumps({"jsonrpc": "2.0", "id": 0, "error": error})
    response.stream = _body()(_instead(text.encode()), response.stream)
    response.headers["content-type"] = "application/json"
    for name in ("content-encoding", "content-length", "transfer-encoding"):
        response.headers.pop(name, None)


@functools.cache
def _body() -> Any:
    """The class of a body made of other chunks than the server's."""
    import httpx2

    class Body(httpx2.AsyncByteStream):
        def __init__(self, chunks: AsyncIterator[bytes], stream: Any) -> None:
            self.chunks = chunks
            self.stream = stream

        def __aiter__(self) -> AsyncIterator[bytes]:
            return self.chunks

        async def aclose(self) -> None:
            await self.stream.aclose()

    return Body


async def _instead(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def _limited(stream: Any, *, events: bool) -> AsyncIterator[bytes]:
    """The body of one answer, counted and without half characters; of a stream of events only a line is limited."""
    import httpx2

    pieces: list[bytes] = []
    size = 0
    async for chunk in stream:
        size += len(chunk)
        if size > MAX_MESSAGE:
            raise httpx2.StreamError(f"the server sent more than {MAX_MESSAGE} bytes (MAX_MESSAGE)")
        pieces.append(chunk)
        if events and b"\n" in chunk:
            whole, line, rest = b"".join(pieces).rpartition(b"\n")
            pieces, size = [rest], len(rest)
            yield sound_json(whole) + line
    yield sound_json(b"".join(pieces))
