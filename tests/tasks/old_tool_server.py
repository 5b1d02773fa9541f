"""An MCP server of the 2024-11-05 protocol in plain Python, which starts in no time.

Started as ``python old_tool_server.py STATE``; tells of list changes unasked, as servers of that
time do. STATE as in ``tool_server.py``: tools, page, changes.
"""

import json
import sys
from pathlib import Path

state = json.loads(Path(sys.argv[1]).read_text())
told = 0


def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


for line in sys.stdin:
    request = json.loads(line)
    method, identity = request.get("method"), request.get("id")
    if identity is None:
        continue
    if method == "initialize":
        say(
            id=identity,
            result={
                "protocolVersion": "2024-11-05",
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "old", "version": "1"},
            },
        )
    elif method == "tools/list":
        if told < state.get("changes", 0):
            told += 1
            say(method="notifications/tools/list_changed")
        start = int((request.get("params") or {}).get("cursor") or 0)
        size = state.get("page", 100)
        result = {"tools": state["tools"][start : start + size]}
        if start + size < len(state["tools"]):
            result["nextCursor"] = str(start + size)
        say(id=identity, result=result)
    else:
        say(id=identity, error={"code": -32601, "message": f"Method not found: {method}"})
