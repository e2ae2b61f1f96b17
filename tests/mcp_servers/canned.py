"""A server of which everything is given as JSON: `canned.py SPEC` with {"tools": […], "results": {tool: result}}.

A result may hold "progress": [how often, seconds between] and "meta".
"""

import json
import sys
import time
from typing import Any

SPEC: dict[str, Any] = json.loads(sys.argv[1])


def send(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def called(number: Any, params: dict[str, Any]) -> None:
    result = dict(SPEC["results"].get(params["name"], {"content": []}))
    times, pause = result.pop("progress", (0, 0))
    token = (params.get("_meta") or {}).get("progressToken")
    for done in range(times):
        time.sleep(pause)
        send({"method": "notifications/progress", "params": {"progressToken": token, "progress": done}})
    for request in result.pop("asks", []):
        send({"id": "q", **request})
        reply = json.loads(sys.stdin.readline())
        result = {"content": [{"type": "text", "text": json.dumps(reply.get("result", reply.get("error")))}]}
    send({"id": number, "result": result})


for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    params = message.get("params") or {}
    if number is None:
        continue
    if method == "initialize":
        info = {"name": "canned", "version": "1"}
        capabilities = SPEC.get("capabilities", {"tools": {}})
        version = params["protocolVersion"]
        send({"id": number, "result": {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}})
    elif method in SPEC:
        send({"id": number, "result": SPEC[method]})
    elif method == "tools/list":
        send({"id": number, "result": {"tools": SPEC["tools"]}})
    elif method == "tools/call":
        called(number, params)
    else:
        send({"id": number, "error": {"code": -32601, "message": f"no {method}"}})
