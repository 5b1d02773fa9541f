"""The toolbox as an MCP server."""

import inspect
from collections.abc import Callable
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

from tasks.errors import ToolRefused
from tasks.toolbox import audio, files, images, tables, texts
from tasks.toolbox.sandbox import Sandbox

Tool = Callable[..., Any]

READERS: tuple[Tool, ...] = (
    texts.read_document, texts.count_words, texts.summarize_text, texts.find_lines,
    texts.replace_words, texts.extract_keywords, texts.translate_words, tables.summarize_column,
    tables.table_to_text, images.describe_image, audio.describe_audio, files.checksum_file,
)  # fmt: skip
"""They change nothing."""

MAKERS: tuple[Tool, ...] = (
    texts.write_document, tables.filter_rows, tables.sort_rows, tables.join_tables,
    tables.draw_chart, images.resize_image, images.rotate_image, images.gray_image,
    images.write_on_image, images.join_images, audio.make_tone, audio.trim_audio,
    audio.join_audio, audio.draw_waveform,
)  # fmt: skip
"""They add a file, and the same file when they are called again."""

DESTROYERS: tuple[Tool, ...] = (files.delete_file,)

_INSTRUCTIONS = (
    "Tools for the texts, tables, pictures and recordings in one folder. Files are given by their "
    "path relative to that folder; results that are files lie in its subfolder made/."
)


def make_server(box: Sandbox) -> MCPServer[Any]:
    """The server of all tools, over one sandbox."""
    server: MCPServer[Any] = MCPServer("toolbox", instructions=_INSTRUCTIONS, log_level="WARNING")
    for tools, is_read_only, is_destructive in (
        (READERS, True, False),
        (MAKERS, False, False),
        (DESTROYERS, False, True),
    ):
        annotations = ToolAnnotations(
            read_only_hint=is_read_only,
            destructive_hint=is_destructive,
            idempotent_hint=not is_destructive,
            open_world_hint=False,
        )
        for tool in tools:
            server.add_tool(
                _bound(tool, box),
                name=tool.__name__,
                description=" ".join((tool.__doc__ or "").split()),
                annotations=annotations,
                structured_output=True,
            )
    return server


def _bound(tool: Tool, box: Sandbox) -> Tool:
    """The tool over one sandbox, which is no longer in its signature."""

    def call(**arguments: Any) -> Any:
        try:
            return tool(box, **arguments)
        except ToolRefused as error:
            raise ToolError(str(error)) from error

    signature = inspect.signature(tool)
    kept = [parameter for name, parameter in signature.parameters.items() if name != "box"]
    call.__name__ = tool.__name__
    call.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    return call
