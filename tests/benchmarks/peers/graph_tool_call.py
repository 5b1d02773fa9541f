"""graph-tool-call, a retrieval product on PyPI: installed by whoever compares, never by us."""

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

from models.types import Embedder, ToolGraph

_PACKAGE = "graph_tool_call"


def missing_graph_tool_call() -> str | None:
    """Why it cannot be measured here, or None."""
    if importlib.util.find_spec(_PACKAGE) is None:
        return "graph-tool-call is not installed: pip install --no-deps graph-tool-call==0.47.0"
    return None


class GraphToolCall:
    """Its hybrid retrieval (BM25 and the relations it detects in the schemas), as documented.

    It ranks tools and gives no plan. Mined edges are not handed to it.

    Args:
        graph: Only its tools are offered; their names must be distinct.
        catalogue: Tool records: name, description, parameters.
        embed: Switches its semantic part on, with this encoder in place of its own default.
    """

    def __init__(
        self,
        graph: ToolGraph,
        catalogue: Sequence[Mapping[str, Any]],
        embed: Embedder | None = None,
    ) -> None:
        from graph_tool_call import ToolGraph as Product

        self.name = "graph-tool-call" if embed is None else "graph-tool-call, embedding"
        self._keys = {key.split("/", 1)[1]: key for key in graph.keys}
        self._product = Product()
        self._product.add_tools(
            [_function(tool) for tool in catalogue if tool["name"] in self._keys]
        )
        if embed is not None:
            self._product.enable_embedding(lambda texts: embed(list(texts)).tolist())

    def retrieve(self, requests: Sequence[str], k: int) -> list[list[str]]:
        """The keys of at most ``k`` tools for each request, best first."""
        return [
            [self._keys[tool.name] for tool in self._product.retrieve(request, top_k=k)]
            for request in requests
        ]


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool record as an OpenAI function, the format its README reads first."""
    parameters = tool.get("parameters") or []
    return {
        "name": tool["name"],
        "description": tool.get("description") or "",
        "parameters": {
            "type": "object",
            "properties": {
                parameter["name"]: {
                    "type": parameter.get("type") or "string",
                    "description": parameter.get("description") or "",
                }
                for parameter in parameters
            },
            "required": [p["name"] for p in parameters if p.get("required")],
        },
    }
