"""A real MCP server of the official SDK for tests: its tools are those of a JSON file.

Started as ``python tool_server.py STATE [PORT]``: over stdio, or over streamable HTTP on loopback.
STATE holds ``tools``, and how the server misbehaves: ``page`` (tools a page), ``loop`` (the cursor
never changes), ``fail_at`` (no page from that tool on), ``changes`` (says so often that its list
changed), ``flaps`` (every second start or listing lacks all but the first tool), ``ttl``.
"""

import json
import sys
from pathlib import Path

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

STATE = Path(sys.argv[1])
bus = InMemorySubscriptionBus()
told = 0


async def list_tools(ctx, params):
    global told
    state = json.loads(STATE.read_text())
    tools = [types.Tool.model_validate(tool) for tool in state["tools"]]
    if state.get("flaps"):
        counter = STATE.with_suffix(".count")
        count = int(counter.read_text()) if counter.exists() else 0
        counter.write_text(str(count + 1))
        tools = tools[: 1 + count % 2]
    cursor = (params.cursor if params else None) or "0"
    start = int(cursor) if cursor.isdigit() else 0
    if start >= state.get("fail_at", 10**9):
        raise RuntimeError("this page is broken")
    size = state.get("page", 100)
    following = str(start + size) if start + size < len(tools) else None
    if told < state.get("changes", 0):
        told += 1
        await bus.publish(ToolsListChanged())
    return types.ListToolsResult(
        tools=tools[start : start + size],
        next_cursor="same" if state.get("loop") else following,
        ttl_ms=state.get("ttl", 0),
    )


server = Server("weather", on_list_tools=list_tools, on_subscriptions_listen=ListenHandler(bus))


async def main():
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    if len(sys.argv) > 2:
        import uvicorn

        app = server.streamable_http_app()
        uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="error")
    else:
        anyio.run(main)
