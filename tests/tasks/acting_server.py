"""A real MCP server of the official SDK for tests: its tools act, and misbehave.

Started as ``python acting_server.py FOLDER [PORT]``: over stdio, or over streamable HTTP on
loopback. FOLDER gets a line in ``effects`` for each call, and one in ``starts`` for each start; it
may hold ``more`` (names of further tools) and ``elsewhere`` (what the schema of one refers to).
"""

import base64
import json
import os
import sys
import time
from pathlib import Path

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

FOLDER = Path(sys.argv[1])
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NONE = {"type": "object", "properties": {}}
WAIT = {"type": "object", "properties": {"seconds": {"type": "number", "maximum": 60}}}


def tool(name, schema=NONE, output=None, **hints):
    annotations = types.ToolAnnotations.model_validate(hints) if hints else None
    return types.Tool(name=name, input_schema=schema, output_schema=output, annotations=annotations)


TOOLS = [
    tool("shout", TEXT, {"type": "object", "required": ["text"]}, readOnlyHint=True),
    tool("lie", NONE, {"type": "object", "required": ["text"]}),
    tool("say", TEXT),
    tool("say_twice", TEXT),
    tool("draw"),
    tool("mixed"),
    tool("nothing"),
    tool("wait", WAIT, readOnlyHint=True),
    tool("block", WAIT, readOnlyHint=True),
    tool("die"),
    tool("flaky", NONE, idempotentHint=True, destructiveHint=False),
    tool("limited"),
    tool("hopeless"),
    tool("broken"),
    tool("variable", TEXT, readOnlyHint=True),
    tool("leak", TEXT),
    tool("wipe", NONE, destructiveHint=True),
    tool("write", NONE, readOnlyHint=False),
    tool("titled", NONE, title="Only a title"),
]


async def list_tools(ctx, params):
    more = FOLDER / "more"
    late = [tool(name) for name in more.read_text().split()] if more.exists() else []
    elsewhere = FOLDER / "elsewhere"
    if elsewhere.exists():
        reference = {"$ref": elsewhere.read_text()}
        late.append(tool("odd", {"type": "object", "properties": {"x": reference}}))
    return types.ListToolsResult(tools=[*TOOLS, *late])


def texts(*said, error=False, meta=None, structured=None):
    content = [types.TextContent(type="text", text=text) for text in said]
    return types.CallToolResult(
        content=content, is_error=error, _meta=meta, structured_content=structured
    )


async def call_tool(ctx, params):
    name, given = params.name, params.arguments or {}
    with (FOLDER / "effects").open("a") as file:
        file.write(f"{name}\n")
    if name == "shout":
        return texts("ignored", structured={"text": given["text"].upper()})
    if name == "lie":
        return texts("x", structured={"other": 1})
    if name == "say":
        return texts(given["text"])
    if name == "say_twice":
        return texts(given["text"], given["text"])
    if name == "draw":
        data = base64.b64encode(b"png").decode()
        image = types.ImageContent(type="image", data=data, mime_type="image/png")
        return types.CallToolResult(content=[image])
    if name == "mixed":
        held = types.TextResourceContents(uri="file:///a.txt", mime_type="text/plain", text="held")
        resource = types.EmbeddedResource(type="resource", resource=held)
        text = types.TextContent(type="text", text='{"a": 1}')
        return types.CallToolResult(content=[text, resource])
    if name in ("wait", "block"):
        if name == "wait":
            await anyio.sleep(given.get("seconds", 60))
        else:
            time.sleep(given.get("seconds", 60))
        return texts("waited")
    if name == "die":
        print("dying of a broken heart", file=sys.stderr, flush=True)
        os._exit(3)
    if name == "flaky":
        first = FOLDER / "flaky"
        if not first.exists():
            first.touch()
            return texts("The service is temporarily unavailable.", error=True)
        return texts("now")
    if name == "limited":
        return texts("slow down", error=True, meta={"retry_after": 7})
    if name == "hopeless":
        said = json.dumps({"error": {"message": "service unavailable", "retryable": False}})
        return texts(said, error=True)
    if name == "broken":
        raise ZeroDivisionError("division of nothing")
    if name == "variable":
        return texts(os.environ.get(given["text"], ""))
    if name == "leak":
        return texts(f"no entry with {os.environ.get(given['text'])}", error=True)
    return texts()


server = Server("acting", on_list_tools=list_tools, on_call_tool=call_tool)


async def main():
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    with (FOLDER / "starts").open("a") as file:
        file.write(f"{os.getpid()}\n")
    if len(sys.argv) > 2:
        import uvicorn

        app = server.streamable_http_app()
        uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="error")
    else:
        anyio.run(main)
