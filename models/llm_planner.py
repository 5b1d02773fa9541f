"""GTool's LLM readout: a frozen LLM reads request and graph tokens and names the tools."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from models.ablation import Ablation
from models.candidates import embed_requests
from models.errors import GraphMismatch, PromptTooLong
from models.graph_tokens import GraphTokens, LLMConfig
from models.gtool import GToolPlanner
from models.llm import FrozenLLM, Reader
from models.llm_decoding import DecodeStats, Ranked, constrained_search
from models.prompt import PLANNING, Frame, Names, frame, listed, plan_tokens
from models.readings import Readings, offered, read_vectors, with_edges
from models.trie import ROOT, TokenTrie
from models.types import Plan, ToolGraph

DECODE_BATCH = 16
"""Requests read side by side; more share a pass of the model, and its memory."""


class Target(NamedTuple):
    """Where an answer is judged: places in its tokens, legal tokens there, and the right one."""

    places: list[int]
    legal: list[list[int]]
    right: list[int]


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
    def of(llm: FrozenLLM, graph: ToolGraph, allowed: Collection[int] | None = None) -> "Catalogue":
        """All tools of the graph, or those of them whose row is allowed."""
        names = Names.of(llm, graph.keys)
        rows = tuple(range(graph.num_tools)) if allowed is None else tuple(sorted(allowed))
        return Catalogue(names, rows, TokenTrie({row: names.lines[row] for row in rows}))

    def planning_frame(self, llm: FrozenLLM, config: LLMConfig) -> Frame:
        """The constant parts of the planning prompt, with the list of all tools if it is there."""
        written = [self.names.written[row] for row in self.offered]
        return frame(llm, PLANNING, written if config.tool_list == "all" else None)

    def choices(self, plan: Sequence[int], end: int, max_length: int) -> Target:
        """The places of an answer where the trie leaves a choice (see ``constrained_search``).

        Args:
            plan: Tool rows.
            end: Token that ends an answer.
            max_length: Most tools of a plan.
        """
        target = Target([], [], [])
        steps = [
            (node, number, token)
            for number, row in enumerate(plan)
            for node, token in zip(
                self.trie.walk(self.names.lines[row]), self.names.lines[row], strict=True
            )
        ]
        for place, (node, number, token) in enumerate([*steps, (ROOT, len(plan), end)]):
            legal = self.trie.legal(node, number, end, max_length)
            if len(legal) > 1:
                target.places.append(place)
                target.legal.append(legal)
                target.right.append(legal.index(token))
        return target

    def request_tokens(
        self, llm: FrozenLLM, request: str, limit: int, candidates: Sequence[int] | None
    ) -> list[int]:
        """A request, cut at its end where it is longer than the limit, and the tools listed.

        Args:
            llm: The model.
            request: Its text.
            limit: Most tokens of the text.
            candidates: Rows to list below it, padded with -1; ``None`` for no list.
        """
        ids = llm.tokens(request)[:limit]
        if candidates is not None:
            ids += listed(llm, [self.names.written[row] for row in candidates if row >= 0])
        return ids or llm.tokens("\n")


def request_limit(llm: FrozenLLM, catalogue: Catalogue, planning: Frame, config: LLMConfig) -> int:
    """Tokens of a request that are read, so that prompt, graph tokens and any answer fit.

    Raises:
        PromptTooLong: Not one token is left for the request.
    """
    lines, names = catalogue.names.lines, catalogue.names.written
    longest = max(catalogue.offered, key=lambda row: len(lines[row]), default=None)
    line = 0 if longest is None else len(lines[longest])
    used = len(planning.before) + 3 + (config.max_length or 1) * (line + 2) + 1
    if config.tool_list == "topk" and longest is not None:
        shown = min(config.candidates, len(catalogue.offered))
        used += len(listed(llm, [names[longest]] * shown))
    used += len(planning.after)
    if used >= llm.max_positions:
        raise PromptTooLong(
            f"expected at most {llm.max_positions} tokens for {llm.name!r}, got {used} before any "
            f"request ({len(planning.before)} of them up to the tool list of "
            f"{len(catalogue.offered)} tools); take a model that reads more, or list the "
            "candidates alone or no tool in the prompt (setting llm_tool_list = topk or none)."
        )
    return min(config.max_request_tokens, llm.max_positions - used)


class LLMPlanner:
    """Plans with a frozen LLM that is told a request and, after it, graph tokens.

    With ``mode = steps`` the tokens spell the graph readout's plan, so most answers are that plan;
    the LLM departs from it where the request tells it to.

    Args:
        config: Of the readout, ``max_length`` filled in.
        tokens: The trained graph tokens.
        drawn: The graph readout that they were trained beside.
        llm: The frozen language model.

    Raises:
        GraphMismatch: The tokens were trained for an LLM of another width.
        PromptTooLong: The tool list is longer than the LLM reads.
    """

    def __init__(
        self, config: LLMConfig, tokens: GraphTokens, drawn: GToolPlanner, llm: FrozenLLM
    ) -> None:
        if config.max_length is None:
            raise ValueError("expected a config with max_length, got None; take a trained one's")
        if tokens.graph_marker.size(1) != llm.width:
            raise GraphMismatch(
                f"expected a language model with {tokens.graph_marker.size(1)} channels, got "
                f"{llm.width} in {llm.name!r}; set the one that the planner was trained with"
            )
        self.config, self.max_length = config, config.max_length
        self.name = f"gtool-llm-{config.mode}"
        self.tokens = tokens.eval().to(llm.device)
        self.graph, self.llm = drawn.graph, llm
        if config.ablation is Ablation.LLM_LINKS:
            drawn = with_edges(drawn, tokens.with_links(drawn.graph))
        self.drawn = drawn
        self.catalogue = Catalogue.of(llm, self.graph, offered(drawn))
        self.frame = self.catalogue.planning_frame(llm, config)
        self.limit = request_limit(llm, self.catalogue, self.frame, config)
        self.reader = Reader(llm).start(self.frame.before)
        self.after = llm.embed(self.frame.after)
        self.stats = DecodeStats()
        with torch.no_grad():
            self.layers = self.tokens.encode_tools(
                drawn.tool_x.float().to(llm.device),
                drawn.graph.edge_index.to(llm.device),
                drawn.graph.edge_counts.to(llm.device),
            )

    @torch.no_grad()
    def plan(self, requests: Sequence[str], top: int = 1) -> list[list[Plan]]:
        """Ranked plans for each request, best first, at most ``top`` (and at most the beam)."""
        if top < 1:
            raise ValueError(f"expected top >= 1, got {top}")
        found = self.search(requests, max(self.config.beam_width, top))
        return [
            [self.named(some.plan, math.exp(some.log_prob)) for some in group[:top]]
            for group in found
        ]

    @torch.no_grad()
    def search(self, requests: Sequence[str], width: int) -> list[list[Ranked]]:
        """The likeliest plans of each request as tool rows, at most ``width``."""
        if not self.catalogue.offered:
            return [[] for _ in requests]
        found: list[list[Ranked]] = []
        for start in range(0, len(requests), DECODE_BATCH):
            prompts = self.prompts(requests[start : start + DECODE_BATCH])
            reader = self.reader.fork()
            segments, logits = reader.read([(reader.root, prompt) for prompt in prompts])
            found += constrained_search(
                reader,
                segments,
                logits,
                self.catalogue.trie,
                self.frame.end,
                width=width,
                max_length=self.max_length,
                stats=self.stats,
            )
        return found

    @torch.no_grad()
    def judge(
        self, requests: Sequence[str], plans: Sequence[Sequence[Sequence[int]]]
    ) -> list[list[Ranked]]:
        """What the LLM says of given plans: tool rows that it may write, several a request."""
        if not self.catalogue.offered:
            return [[] for _ in requests]
        judged: list[list[Ranked]] = []
        for start in range(0, len(requests), DECODE_BATCH):
            part = slice(start, start + DECODE_BATCH)
            judged += self._judge(requests[part], plans[part])
        return judged

    def prompts(self, requests: Sequence[str]) -> list[Float[Tensor, "tokens width"]]:
        """What stands behind the shared text for each request, up to its answer."""
        vectors = embed_requests(requests, self.drawn.embed)
        readings = read_vectors(self.drawn, requests, vectors, self.config.candidates)
        words = [self.llm.embed(ids) for ids in self._words(requests, readings)]
        if self.config.ablation is Ablation.NO_GRAPH:
            return [torch.cat([word, self.after]) for word in words]
        x = vectors.x.float().to(self.llm.device)
        pieces = self.tokens.graph_pieces(x, self.layers, readings)
        return [
            torch.cat([word, piece.to(self.llm.dtype), self.after])
            for word, piece in zip(words, pieces, strict=True)
        ]

    def prompt_tokens(self, requests: Sequence[str]) -> list[int]:
        """Tokens that the LLM reads for each request before it answers, the shared ones too."""
        return [len(self.frame.before) + prompt.size(0) for prompt in self.prompts(requests)]

    def named(self, rows: Sequence[int], score: float) -> Plan:
        """A plan by key, with links."""
        tools = tuple(self.graph.keys[row] for row in rows)
        links = self.drawn.links([self.drawn.graph.keys[row] for row in rows])
        return Plan(tools, links, score, self.name)

    def _words(self, requests: Sequence[str], readings: Readings) -> list[list[int]]:
        """Tokens of the requests and of what is listed with each."""
        shown = readings.candidates.tolist() if self.config.tool_list == "topk" else None
        return [
            self.catalogue.request_tokens(
                self.llm, request, self.limit, None if shown is None else shown[i]
            )
            for i, request in enumerate(requests)
        ]

    def _judge(
        self, requests: Sequence[str], plans: Sequence[Sequence[Sequence[int]]]
    ) -> list[list[Ranked]]:
        reader, end = self.reader.fork(), self.frame.end
        starts, first = reader.read([(reader.root, prompt) for prompt in self.prompts(requests)])
        flat = [(i, tuple(plan)) for i, some in enumerate(plans) for plan in some]
        targets = [self.catalogue.choices(plan, end, self.max_length) for _, plan in flat]
        answers = [plan_tokens(self.catalogue.names.lines, plan, end)[:-1] for _, plan in flat]
        wanted, at = [], 0
        for target, answer in zip(targets, answers, strict=True):
            wanted += [at + place - 1 for place in target.places if place]
            at += len(answer)
        pieces = [(starts[i], self.llm.embed(a)) for (i, _), a in zip(flat, answers, strict=True)]
        said = iter(reader.read(pieces, wanted)[1]) if wanted else iter(())
        judged: list[list[Ranked]] = [[] for _ in requests]
        for (i, plan), target in zip(flat, targets, strict=True):
            total = 0.0
            for place, legal, right in zip(*target, strict=True):
                row = next(said) if place else first[i]
                total += float(row[torch.tensor(legal, device=row.device)].log_softmax(0)[right])
            judged[i].append(Ranked(plan, total, len(target.places)))
        return judged
