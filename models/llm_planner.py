"""GTool's LLM readout: a frozen LLM reads request and graph tokens and names the tools."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from models.errors import GraphMismatch, PromptTooLong
from models.graph_tokens import GraphTokens, LLMConfig
from models.gtool import GTool
from models.links import plan_links
from models.llm import FrozenLLM, Reader
from models.llm_decoding import DecodeStats, constrained_search
from models.prompt import PLANNING, Frame, Names, frame
from models.trie import TokenTrie
from models.types import Embedder, Plan, ToolGraph

DECODE_BATCH = 16
"""Requests read side by side; more share a pass of the model, and its memory."""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The tools of a graph as one LLM reads and writes them.

    Attributes:
        names: How each tool is written.
        offered: Rows of the tools that plans may hold, in key order.
        trie: Their lines.
    """

    names: Names
    offered: tuple[int, ...]
    trie: TokenTrie

    @staticmethod
    def of(llm: FrozenLLM, graph: ToolGraph, allowed: Collection[str] | None = None) -> "Catalogue":
        """All tools of the graph, or those of them whose key is allowed."""
        names = Names.of(llm, graph.keys)
        offered = tuple(
            row for row, key in enumerate(graph.keys) if allowed is None or key in allowed
        )
        return Catalogue(names, offered, TokenTrie({row: names.lines[row] for row in offered}))

    def planning_frame(self, llm: FrozenLLM, config: LLMConfig) -> Frame:
        """The constant parts of the planning prompt, with the tool list if there is one."""
        listed = [self.names.written[row] for row in self.offered]
        return frame(llm, PLANNING, listed if config.tool_list == "all" else None)


def request_limit(llm: FrozenLLM, catalogue: Catalogue, planning: Frame, config: LLMConfig) -> int:
    """Tokens of a request that are read, so that prompt, graph tokens and any answer fit.

    Raises:
        PromptTooLong: Not one token is left for the request.
    """
    lines = catalogue.names.lines
    longest = max((len(lines[row]) for row in catalogue.offered), default=0)
    graph = 3 + min(config.candidates, len(lines))
    used = len(planning.before) + graph + len(planning.after)
    used += longest * (config.max_length or 1) + 1
    if used >= llm.max_positions:
        raise PromptTooLong(
            f"expected at most {llm.max_positions} tokens for {llm.name!r}, got {used} before any "
            f"request ({len(planning.before)} of them up to the tool list of "
            f"{len(catalogue.offered)} tools); take a model that reads more, or leave the list out "
            "of the prompt (setting llm_tool_list = none)."
        )
    return min(config.max_request_tokens, llm.max_positions - used)


def request_vectors(llm: FrozenLLM, request: str, limit: int) -> Float[Tensor, "tokens width"]:
    """A request as input vectors; what is longer than the limit is cut at its end."""
    return llm.embed(llm.tokens(request)[:limit] or llm.tokens("\n"))


class LLMPlanner:
    """Plans with a frozen LLM that is told a request and, after it, graph tokens.

    Args:
        config: Of the readout, ``max_length`` filled in.
        tokens: The trained graph tokens; ``None`` leaves them out (the paper's ablation without a
            graph: names and instruction only).
        model: The graph readout, whose memory of past requests names the candidates.
        graph: The graph both were trained on.
        tool_x: Text vectors of the graph's tools.
        embed: The text encoder that made them.
        llm: The frozen language model.
        dataflow_namespaces: Namespaces whose plans link by dataflow.
        allowed: Keys of the tools that plans may hold; ``None``: all.

    Raises:
        GraphMismatch: The tokens were trained for an LLM of another width.
        PromptTooLong: The tool list is longer than the LLM reads.
    """

    name = "gtool-llm"

    def __init__(
        self,
        config: LLMConfig,
        tokens: GraphTokens | None,
        model: GTool,
        graph: ToolGraph,
        tool_x: Float[Tensor, "num_tools text_channels"],
        embed: Embedder,
        llm: FrozenLLM,
        dataflow_namespaces: Collection[str] = (),
        allowed: Collection[str] | None = None,
    ) -> None:
        if config.max_length is None:
            raise ValueError("expected a config with max_length, got None; take a trained one's")
        if tokens is not None and tokens.graph_marker.size(1) != llm.width:
            raise GraphMismatch(
                f"expected a language model with {tokens.graph_marker.size(1)} channels, got "
                f"{llm.width} in {llm.name!r}; set the one that the planner was trained with"
            )
        self.config, self.max_length = config, config.max_length
        self.tokens = tokens.eval().to(llm.device) if tokens is not None else None
        self.memory = model.memory.eval()
        self.graph, self.embed, self.llm = graph, embed, llm
        self.dataflow_namespaces = frozenset(dataflow_namespaces)
        self.catalogue = Catalogue.of(llm, graph, allowed)
        self.frame = self.catalogue.planning_frame(llm, config)
        self.limit = request_limit(llm, self.catalogue, self.frame, config)
        self.reader = Reader(llm).start(self.frame.before)
        self.after = llm.embed(self.frame.after)
        self.stats = DecodeStats()
        self._blocked: Tensor | None = None
        if len(self.catalogue.offered) < graph.num_tools:
            self._blocked = torch.ones(graph.num_tools, dtype=torch.bool)
            self._blocked[list(self.catalogue.offered)] = False
        if self.tokens is not None:
            with torch.no_grad():
                self.layers = self.tokens.encode_tools(
                    tool_x.float().to(llm.device),
                    graph.edge_index.to(llm.device),
                    graph.edge_counts.to(llm.device),
                )

    @torch.no_grad()
    def plan(self, requests: Sequence[str], top: int = 1) -> list[list[Plan]]:
        """Ranked plans for each request, best first, at most ``top`` (and at most the beam)."""
        if top < 1:
            raise ValueError(f"expected top >= 1, got {top}")
        if not self.catalogue.offered:
            return [[] for _ in requests]
        ranked: list[list[Plan]] = []
        for start in range(0, len(requests), DECODE_BATCH):
            ranked += self._plan(requests[start : start + DECODE_BATCH], top)
        return ranked

    def prompts(self, requests: Sequence[str]) -> list[Float[Tensor, "tokens width"]]:
        """What stands behind the shared text for each request, up to its answer."""
        words = [request_vectors(self.llm, request, self.limit) for request in requests]
        if self.tokens is None:
            return [torch.cat([word, self.after]) for word in words]
        request_x = self.embed(requests).float()
        memory = self.memory(request_x.to(self.memory.requests.device)).to(self.llm.device)
        if self._blocked is not None:
            memory = memory.masked_fill(self._blocked.repeat(2).to(memory.device), -1.0)
        x, most = request_x.to(self.llm.device), len(self.catalogue.offered)
        pieces = self.tokens.graph_pieces(x, self.layers, memory, most).to(self.llm.dtype)
        return [
            torch.cat([word, piece, self.after]) for word, piece in zip(words, pieces, strict=True)
        ]

    def _plan(self, requests: Sequence[str], top: int) -> list[list[Plan]]:
        """Plans of one batch."""
        reader = self.reader.fork()
        segments, logits = reader.read([(reader.root, prompt) for prompt in self.prompts(requests)])
        found = constrained_search(
            reader,
            segments,
            logits,
            self.catalogue.trie,
            self.frame.end,
            width=max(self.config.beam_width, top),
            max_length=self.max_length,
            stats=self.stats,
        )
        return [
            [self._named(ranked.plan, ranked.log_prob) for ranked in group[:top]] for group in found
        ]

    def _named(self, rows: Sequence[int], log_prob: float) -> Plan:
        """A plan by key, with links; its score is the probability of its choices."""
        tools = tuple(self.graph.keys[row] for row in rows)
        links = plan_links(tools, self.graph, self.dataflow_namespaces)
        return Plan(tools, links, float(torch.tensor(log_prob).exp()), self.name)
