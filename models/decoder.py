"""The graph readout of GTool: a pointer decoder that writes plans tool by tool."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

PAD = -1
"""Fills a batch of plans behind the last tool of the shorter ones."""

RARE = 0.01
"""Memory scores below this count as this when their logarithm is taken."""


@dataclass(frozen=True)
class EdgeRows:
    """Mined edges sorted by source, so that the edges of any tool are one slice.

    Attributes:
        start: Edges of tool ``i`` are ``start[i]:start[i + 1]``.
        target: Tool that each edge leads to.
        counts: Adjacent and dataflow counts of each edge.
    """

    start: Int[Tensor, " num_tools_and_one"]
    target: Int[Tensor, " num_edges"]
    counts: Float[Tensor, "num_edges 2"]

    @staticmethod
    def from_edges(
        edge_index: Int[Tensor, "2 num_edges"],
        edge_counts: Float[Tensor, "num_edges 2"],
        num_tools: int,
    ) -> "EdgeRows":
        """Sort the edges of a graph by source."""
        order = edge_index[0].argsort(stable=True)
        degree = torch.bincount(edge_index[0], minlength=num_tools)
        start = torch.cat([degree.new_zeros(1), degree.cumsum(0)])
        return EdgeRows(start, edge_index[1, order], edge_counts[order])

    def dense(self, tools: Int[Tensor, " rows"]) -> Float[Tensor, "rows num_tools 2"]:
        """Counts from each given tool to all tools; zeros for ``PAD``."""
        source = tools.clamp_min(0)
        degree = (self.start[source + 1] - self.start[source]) * (tools != PAD)
        row = torch.repeat_interleave(torch.arange(tools.numel(), device=tools.device), degree)
        within = torch.arange(row.numel(), device=row.device) - (degree.cumsum(0) - degree)[row]
        edge = self.start[source][row] + within
        out = self.counts.new_zeros(tools.numel(), self.start.numel() - 1, 2)
        out[row, self.target[edge]] = self.counts[edge]
        return out


class ToolSide(NamedTuple):
    """What decoding needs of the tools, the same for all requests."""

    x: Float[Tensor, "num_tools text_channels"]
    key: Float[Tensor, "num_tools hidden_channels"]
    step_input: Float[Tensor, "num_tools hidden_channels"]
    edges: EdgeRows


class RequestSide(NamedTuple):
    """What decoding needs of each request."""

    features: Float[Tensor, "batch text_and_state_channels"]
    start: Float[Tensor, "batch hidden_channels"]
    similarity: Float[Tensor, "batch num_tools"]
    relevance: Float[Tensor, "batch num_tools"]
    first: Float[Tensor, "batch num_tools"]

    def repeat(self, times: int) -> "RequestSide":
        """Every request ``times`` times in a row."""
        return RequestSide(*(part.repeat_interleave(times, dim=0) for part in self))


class PointerDecoder(nn.Module):
    r"""Writes a plan as a walk over tool states that ends with END.

    A GRU starts from the request and reads the tools chosen so far. Step :math:`k` scores tool
    :math:`t` after the previous tool :math:`p` by

    .. math::
        s_k(t) = \frac{2}{\sqrt d} q_k^T \kappa_t + w_s x_r^T x_t + w_e^T e(c_{pt})
            + w_m^T m_k(f_t(r)) + w_c [t \in \tau_{<k}]

    with :math:`q_k` from GRU state and request, :math:`\kappa_t` from tool text and tool state,
    :math:`e` the log1p of the mined counts and whether the pair was ever adjacent, and :math:`m_k`
    the request memory's score and its logarithm. END is scored by :math:`q_k` and by the memory's
    scores of tools not chosen yet. No weight belongs to a single tool, so tools may come and go.

    Args:
        text_channels: Channels of text vectors.
        state_channels: Channels of encoder states.
        hidden_channels: Channels :math:`d` of GRU, queries and keys.
        dropout: Share of hidden channels dropped in training. (default: 0.0)
    """

    def __init__(
        self, text_channels: int, state_channels: int, hidden_channels: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.hidden_channels = hidden_channels
        both = text_channels + state_channels
        self.lin_start = nn.Linear(both, hidden_channels)
        self.lin_input = nn.Linear(both, hidden_channels)
        self.lin_query = nn.Linear(hidden_channels + both, hidden_channels)
        self.lin_key = nn.Linear(both, hidden_channels)
        self.lin_end = nn.Linear(hidden_channels, 1)
        self.gru = nn.GRU(hidden_channels, hidden_channels, batch_first=True)
        self.similarity_weight = nn.Parameter(torch.empty(1))
        self.edge_weight = nn.Parameter(torch.empty(3))
        self.memory_weight = nn.Parameter(torch.empty(6))
        self.chosen_weight = nn.Parameter(torch.empty(1))
        self.left_weight = nn.Parameter(torch.empty(2))
        self.dropout = nn.Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all matrices anew; the scalar weights start where they already help."""
        for module in [self.lin_start, self.lin_input, self.lin_query, self.lin_key, self.lin_end]:
            module.reset_parameters()
        self.gru.reset_parameters()
        nn.init.constant_(self.similarity_weight, 5.0)
        nn.init.constant_(self.edge_weight, 0.5)
        nn.init.constant_(self.chosen_weight, -1.0)
        nn.init.zeros_(self.left_weight)
        with torch.no_grad():
            self.memory_weight.copy_(torch.tensor([3.0, 1.0, 0.0, 0.0, 0.0, 0.0]))

    def read_tools(
        self,
        x: Float[Tensor, "num_tools text_channels"],
        h: Float[Tensor, "num_tools state_channels"],
        edges: EdgeRows,
    ) -> ToolSide:
        """Project the tools once."""
        both = torch.cat([x, self.dropout(h)], dim=1)
        return ToolSide(x, self.lin_key(both), self.lin_input(both), edges)

    def read_requests(
        self,
        x: Float[Tensor, "batch text_channels"],
        r: Float[Tensor, "batch state_channels"],
        memory: Float[Tensor, "batch two_num_tools"],
        tools: ToolSide,
    ) -> RequestSide:
        """Project the requests once; ``memory`` is what the request memory says of them."""
        features = torch.cat([x, self.dropout(r)], dim=1)
        relevance, first = memory.chunk(2, dim=1)
        start = self.lin_start(features).tanh()
        return RequestSide(features, start, x @ tools.x.T, relevance, first)

    def log_probs(
        self,
        tools: ToolSide,
        requests: RequestSide,
        plans: Int[Tensor, "batch length"],
        leave_own_out: bool = False,
    ) -> Float[Tensor, "batch steps tools_and_end"]:
        """Log probabilities of every next choice along given plans (teacher forcing).

        Args:
            tools: The tools.
            requests: One request a plan.
            plans: Tool rows, padded with -1.
            leave_own_out: Take the pairs of the plan itself out of the mined counts first. Right
                for plans that the graph was mined from: to them their own edges are no evidence.

        Returns:
            For each position 0..length the log probabilities of all tools, then of END. END has
            -inf at position 0. Rows behind the end of a plan mean nothing.
        """
        batch, length = plans.shape
        num_tools = tools.x.size(0)
        step_input = self.dropout(nn.functional.embedding(plans.clamp_min(0), tools.step_input))
        read, _ = self.gru(step_input, requests.start.unsqueeze(0).contiguous())
        state = torch.cat([requests.start.unsqueeze(1), read], dim=1)
        one_hot = torch.zeros(batch, length + 1, num_tools + 1, device=plans.device)
        one_hot[:, 1:].scatter_(2, plans.where(plans >= 0, num_tools).unsqueeze(2), 1.0)
        chosen = one_hot[..., :-1].cumsum(dim=1).clamp_max(1.0)
        previous = torch.cat([plans.new_full((batch, 1), PAD), plans], dim=1)
        counts = tools.edges.dense(previous.flatten()).view(batch, length + 1, num_tools, 2)
        if leave_own_out:
            source, follower = plans[:, :-1], one_hot[:, 2:, :-1]
            same = (previous.unsqueeze(2) == source.unsqueeze(1)) & (source >= 0).unsqueeze(1)
            own = torch.einsum("bkj,bjn->bkn", same.to(follower.dtype), follower)
            counts = (counts - own.unsqueeze(3)).clamp_min(0.0)
        logits = torch.cat(
            [
                self._logits(state[:, :1], tools, requests, counts[:, :1], chosen[:, :1], True),
                self._logits(state[:, 1:], tools, requests, counts[:, 1:], chosen[:, 1:], False),
            ],
            dim=1,
        )
        return logits.log_softmax(dim=-1)

    @torch.no_grad()
    def beam_search(
        self,
        tools: ToolSide,
        requests: RequestSide,
        width: int,
        max_length: int,
        allowed: Bool[Tensor, " num_tools"] | None = None,
    ) -> tuple[Int[Tensor, "batch beams max_length"], Float[Tensor, "batch beams"]]:
        """The likeliest plans of each request.

        Args:
            tools: The tools.
            requests: The requests.
            width: Plans kept at each step.
            max_length: Most tools of a plan.
            allowed: Tools that may be chosen; ``None`` allows all.

        Returns:
            Plans padded with -1, likeliest first, and their log probabilities; -inf marks places
            for which there was no plan.
        """
        batch, num_tools, end = requests.start.size(0), tools.x.size(0), tools.x.size(0)
        beams = 1
        state, log_prob = requests.start, requests.start.new_zeros(batch, 1)
        plans = torch.full((batch, 1, max_length), PAD, device=state.device)
        done = torch.zeros(batch, 1, dtype=torch.bool, device=state.device)
        chosen = state.new_zeros(batch, num_tools)
        previous = torch.full((batch,), PAD, device=state.device)
        blocked = state.new_zeros(num_tools + 1, dtype=torch.bool)
        if allowed is not None:
            blocked[:-1] = ~allowed
        for step in range(max_length + 1):
            if step == max_length:
                blocked[:-1] = True
            logits = self._logits(
                state.unsqueeze(1),
                tools,
                requests.repeat(beams),
                tools.edges.dense(previous).unsqueeze(1),
                chosen.unsqueeze(1),
                step == 0,
            ).squeeze(1)
            logits = logits.masked_fill(blocked, -torch.inf)
            if bool(blocked[:-1].all()) and step == 0:
                return plans, log_prob.fill_(-torch.inf)
            choice = logits.log_softmax(dim=-1).view(batch, beams, num_tools + 1)
            choice = choice.masked_fill(done.unsqueeze(2), -torch.inf)
            choice[..., end] = choice[..., end].masked_fill(done, 0.0)
            total = (log_prob.unsqueeze(2) + choice).flatten(1)
            log_prob, flat = total.topk(min(width, total.size(1)), dim=1)
            beam, tool = flat // (num_tools + 1), flat % (num_tools + 1)
            row = (beam + beams * torch.arange(batch, device=beam.device).unsqueeze(1)).flatten()
            beams = beam.size(1)
            done = done.gather(1, beam) | (tool == end) | log_prob.isneginf()
            plans = plans.flatten(0, 1)[row].view(batch, beams, max_length)
            if bool(done.all()):
                break
            plans[:, :, step] = tool.where(~done, PAD)
            previous = tool.clamp_max(num_tools - 1).flatten()
            chosen = chosen[row].scatter(1, previous.unsqueeze(1), 1.0)
            read, _ = self.gru(
                tools.step_input[previous].unsqueeze(1), state[row].unsqueeze(0).contiguous()
            )
            state = read.squeeze(1)
        return plans, log_prob

    def _logits(
        self,
        state: Float[Tensor, "batch steps hidden_channels"],
        tools: ToolSide,
        requests: RequestSide,
        counts: Float[Tensor, "batch steps num_tools 2"],
        chosen: Float[Tensor, "batch steps num_tools"],
        is_first: bool,
    ) -> Float[Tensor, "batch steps tools_and_end"]:
        """Scores of all tools and of END after each state."""
        features = requests.features.unsqueeze(1).expand(-1, state.size(1), -1)
        query = self.lin_query(torch.cat([self.dropout(state), features], dim=-1))
        query = self.dropout(nn.functional.gelu(query))
        score = query @ tools.key.T * (2 / self.hidden_channels**0.5)
        score = score + self.similarity_weight * requests.similarity.unsqueeze(1)
        score = score + self.chosen_weight * chosen
        logs = counts.log1p()
        seen = (counts[..., 0] > 0).to(logs.dtype)
        score = score + torch.cat([logs, seen.unsqueeze(-1)], dim=-1) @ self.edge_weight

        weight, left_weight = self.memory_weight, self.left_weight
        relevance = requests.relevance.unsqueeze(1)
        log_relevance = relevance.clamp(RARE, 1.0).log()
        free = 1.0 - chosen
        score = score + relevance * (weight[0] * free + weight[2] * chosen)
        score = score + log_relevance * (weight[1] + weight[3] * chosen)
        left = relevance.clamp(0.0, 1.0) * free
        end = self.lin_end(query)
        end = end + left_weight[0] * left.sum(dim=-1, keepdim=True)
        end = end + left_weight[1] * left.amax(dim=-1, keepdim=True)
        if is_first:
            first = requests.first.unsqueeze(1)
            score = score + weight[4] * first + weight[5] * first.clamp(RARE, 1.0).log()
            end = torch.full_like(end, -torch.inf)
        return torch.cat([score, end], dim=-1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.hidden_channels})"


def plan_agreement(
    a: Int[Tensor, "*#rows a_length"], b: Int[Tensor, "*#rows b_length"]
) -> Float[Tensor, "... 3"]:
    r"""How well two padded plans agree, pair by pair along the leading axes (which broadcast).

    Returns:
        Multiset node F1, multiset F1 of adjacent pairs (1 where neither plan has any), and
        :math:`2 \mathrm{LCS} / (|a| + |b|)`, which is 1 - NED; all in 0..1, 1 for two empty plans.
    """
    num = int(max(a.max(), b.max())) + 2
    pairs_a = torch.where(a[..., 1:] >= 0, a[..., :-1] * num + a[..., 1:], PAD)
    pairs_b = torch.where(b[..., 1:] >= 0, b[..., :-1] * num + b[..., 1:], PAD)
    size = (a >= 0).sum(-1) + (b >= 0).sum(-1)
    common = torch.zeros_like(size)
    row = [common] * (b.size(-1) + 1)
    for i in range(a.size(-1)):
        diagonal = common
        for j in range(b.size(-1)):
            equal = (a[..., i] == b[..., j]) & (a[..., i] >= 0)
            best = torch.maximum(row[j + 1], row[j])
            diagonal, row[j + 1] = row[j + 1], torch.where(equal, diagonal + 1, best)
    order = torch.where(size > 0, 2 * row[-1] / size.clamp_min(1), 1.0)
    return torch.stack([_multiset_f1(a, b), _multiset_f1(pairs_a, pairs_b), order], dim=-1)


def _multiset_f1(a: Tensor, b: Tensor) -> Tensor:
    """F1 of two padded multisets: the k-th copy of an item counts if the other has k copies."""
    if a.size(-1) == 0 or b.size(-1) == 0:
        size = (a >= 0).sum(-1) + (b >= 0).sum(-1)
        return (size == 0).float()
    copies = torch.ones(a.size(-1), a.size(-1), device=a.device).tril().bool()
    rank = ((a.unsqueeze(-1) == a.unsqueeze(-2)) & copies).sum(-1)
    others = (a.unsqueeze(-1) == b.unsqueeze(-2)).sum(-1)
    common = ((rank <= others) & (a >= 0)).sum(-1)
    size = (a >= 0).sum(-1) + (b >= 0).sum(-1)
    return torch.where(size > 0, 2 * common / size.clamp_min(1), 1.0)


def rank_by_agreement(
    plans: Int[Tensor, "batch beams length"], log_prob: Float[Tensor, "batch beams"]
) -> tuple[Int[Tensor, "batch beams"], Float[Tensor, "batch beams"]]:
    """Order plans by how well they are expected to agree with the right one.

    The right plan is taken to be one of the beams with the probability the decoder gave it; a plan
    scores its mean agreement (:func:`plan_agreement`, mean of the three) with such a draw. A plan
    that shares most tools with many likely ones so beats a slightly likelier odd one out.

    Returns:
        Beam positions, best first, and their scores in 0..1; -inf for places without a plan.
    """
    agreement = plan_agreement(plans.unsqueeze(2), plans.unsqueeze(1)).mean(dim=-1)
    weight = log_prob.softmax(dim=1).nan_to_num(0.0)
    score = torch.einsum("bij,bj->bi", agreement, weight)
    score = score.masked_fill(log_prob.isneginf() | (plans[..., 0] == PAD), -torch.inf)
    ordered, order = score.sort(dim=1, descending=True, stable=True)
    return order, ordered
