"""The graph readout of GTool: a pointer decoder that writes plans tool by tool."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from models.candidates import RARE, Candidates
from models.edges import EdgeTable
from models.memory import PAD

FEATURES: dict[str, tuple[str, ...]] = {
    "text": (
        "cosine",
        "likeness",
        "named",
        "blend",
        "moved on",
        "distance",
        "previous cosine",
        "clause cosine",
        "clause share",
        "clause share left",
        "clause moved on",
        "clause distance",
    ),
    "memory": (
        "relevance",
        "log relevance",
        "relevance if free",
        "first",
        "log first",
        "votes",
        "votes left",
        "log votes left",
        "votes to follow",
        "log votes to follow",
        "votes of equal beginnings",
        "log votes of equal beginnings",
    ),
    "graph": (
        "log adjacent",
        "log dataflow",
        "seen",
        "share",
        "log adjacent two back",
        "log adjacent reversed",
        "dependency",
    ),
    "use": ("log used", "never used", "comes first", "chosen", "again", "times chosen", "repeats"),
}
"""What is known of choosing a tool next, by where it comes from."""

END_FEATURES = (
    "relevance left",
    "most relevance left",
    "votes left",
    "most votes left",
    "votes to end",
    "log votes to end",
    "votes of equal plans",
    "log votes of equal plans",
    "tools expected",
    "tools chosen",
    "comes last",
    "log words",
    "clauses left",
    "most left of a clause",
    "clauses",
)
"""What is known of ending a plan."""

NUM_FEATURES = sum(map(len, FEATURES.values()))
_PLACE = {name: i for i, name in enumerate(name for part in FEATURES.values() for name in part)}
_AT_START = {"cosine": 5.0, "likeness": 3.0, "blend": 0.5, "votes": 1.0, "relevance": 1.0}
_FEATURE_CHANNELS = 32
_END_CHANNELS = 16


class ToolSide(NamedTuple):
    """What decoding needs of the tools, the same for all requests.

    Attributes:
        x: Text vectors.
        state: Encoder states.
        key: What queries are held against.
        step_input: What the GRU reads of a chosen tool.
        asked: States as the first half of the dependency scorer leaves them.
        edges: The graph.
        use: How often each tool is in past plans, first, last and again at once.
    """

    x: Float[Tensor, "num_tools text_channels"]
    state: Float[Tensor, "num_tools state_channels"]
    key: Float[Tensor, "num_tools hidden_channels"]
    step_input: Float[Tensor, "num_tools hidden_channels"]
    asked: Float[Tensor, "num_tools state_channels"]
    edges: EdgeTable
    use: Float[Tensor, "num_tools 4"]


class RequestSide(NamedTuple):
    """What decoding needs of each request besides its candidates."""

    features: Float[Tensor, "batch text_and_state_channels"]
    start: Float[Tensor, "batch hidden_channels"]


class PointerDecoder(nn.Module):
    r"""Writes a plan as a walk over a shortlist of tools that ends with END.

    A GRU starts from the request and reads the tools chosen so far. Step :math:`k` scores tool
    :math:`t` by

    .. math::
        s_k(t) = \frac{2 w}{\sqrt d} q_k^T \kappa_t + v^T \phi_k(t) + \mathrm{MLP}(\phi_k(t))

    with :math:`q_k` from GRU state and request, :math:`\kappa_t` from tool text and tool state,
    and :math:`\phi_k(t)` the features of :data:`FEATURES`: how well request and tool agree in
    text, what similar past requests did at this point, what the graph knows of the pair
    (previous tool, tool), and how the tool is used in general. END is scored alike, from
    :data:`END_FEATURES`. No weight belongs to a single tool, so tools may come and go.

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
        self.gru = nn.GRU(hidden_channels, hidden_channels, batch_first=True)
        self.neural_weight = nn.Parameter(torch.ones(1))
        self.lin_tool = nn.Linear(NUM_FEATURES, 1, bias=False)
        self.mlp_tool = _mlp(NUM_FEATURES, _FEATURE_CHANNELS, dropout / 3)
        self.lin_end = nn.Linear(hidden_channels + len(END_FEATURES), 1)
        self.mlp_end = _mlp(len(END_FEATURES), _END_CHANNELS, 0.0)
        self.sharpness = nn.Parameter(torch.full((1,), 15.0 / SHARPNESS_SCALE))
        self.clause_sharpness = nn.Parameter(torch.full((1,), 15.0 / SHARPNESS_SCALE))
        self.dropout = nn.Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all matrices anew; the linear features start where they already help."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.GRU):
                module.reset_parameters()
        nn.init.zeros_(self.lin_tool.weight)
        with torch.no_grad():
            for name, value in _AT_START.items():
                self.lin_tool.weight[0, _PLACE[name]] = value
        for mlp in (self.mlp_tool, self.mlp_end):
            last = mlp[-1]
            assert isinstance(last, nn.Linear)
            nn.init.zeros_(last.weight)

    def read_tools(
        self,
        x: Float[Tensor, "num_tools text_channels"],
        state: Float[Tensor, "num_tools state_channels"],
        asked: Float[Tensor, "num_tools state_channels"],
        edges: EdgeTable,
        use: Float[Tensor, "num_tools 4"],
    ) -> ToolSide:
        """Project the tools once."""
        both = torch.cat([x, self.dropout(state)], dim=1)
        return ToolSide(x, state, self.lin_key(both), self.lin_input(both), asked, edges, use)

    def read_requests(
        self,
        x: Float[Tensor, "batch text_channels"],
        state: Float[Tensor, "batch state_channels"],
    ) -> RequestSide:
        """Project the requests once."""
        features = torch.cat([x, self.dropout(state)], dim=1)
        return RequestSide(features, self.lin_start(features).tanh())

    def log_probs(
        self,
        tools: ToolSide,
        requests: RequestSide,
        candidates: Candidates,
        plans: Int[Tensor, "batch length"],
    ) -> Float[Tensor, "batch steps size_and_end"]:
        """Log probabilities of every next choice along given plans (teacher forcing).

        Args:
            tools: The tools.
            requests: One request a plan.
            candidates: Their candidates.
            plans: Positions in the shortlists, padded with -1.

        Returns:
            For each step 0..length the log probabilities of all candidates, then of END. END has
            -inf at step 0. Steps behind the end of a plan mean nothing.
        """
        length = plans.size(1)
        row = candidates.tools.gather(1, plans.clamp_min(0))
        step_input = self.dropout(nn.functional.embedding(row, tools.step_input))
        read, _ = self.gru(step_input, requests.start.unsqueeze(0).contiguous())
        state = torch.cat([requests.start.unsqueeze(1), read], dim=1)
        before = torch.ones(length + 1, length, device=plans.device).tril(-1).bool()
        prefix = torch.where(before, plans.unsqueeze(1), PAD)
        fixed = self.fix(tools, candidates)
        return self.step_log_probs(tools, requests, fixed, prefix, state)

    def step_log_probs(
        self,
        tools: ToolSide,
        requests: RequestSide,
        fixed: "Fixed",
        prefix: Int[Tensor, "batch steps length"],
        state: Float[Tensor, "batch steps hidden_channels"],
    ) -> Float[Tensor, "batch steps size_and_end"]:
        """Log probabilities of the next choice after each of several beginnings of plans."""
        features = requests.features.unsqueeze(1).expand(-1, state.size(1), -1)
        query = self.lin_query(torch.cat([self.dropout(state), features], dim=-1))
        query = self.dropout(nn.functional.gelu(query))
        phi, end = self._features(tools, fixed, prefix)
        score = (self.lin_tool(phi) + self.mlp_tool(phi)).squeeze(-1)
        pointed = query @ fixed.key.mT
        score = score + self.neural_weight * pointed * (2 / self.hidden_channels**0.5)
        stop = self.lin_end(torch.cat([query, end], dim=-1)) + self.mlp_end(end)
        empty = (prefix[..., :1] < 0) if prefix.size(2) else torch.ones_like(stop).bool()
        logits = torch.cat([score, stop.masked_fill(empty, -torch.inf)], dim=-1)
        return logits.log_softmax(dim=-1)

    def fix(self, tools: ToolSide, candidates: Candidates) -> "Fixed":
        """What stays the same at every step of a plan."""
        size, rows = candidates.size, candidates.tools
        cosine, likeness, named, blend, place = candidates.text.unsqueeze(1).unbind(dim=3)
        relevance, first = candidates.memory.unsqueeze(1).unbind(dim=3)
        use = tools.use[rows].unsqueeze(1)
        used = use[..., 0]

        near = candidates.plans
        closeness = candidates.similarity - candidates.similarity[:, :1]
        weight = (closeness * self.sharpness * SHARPNESS_SCALE).softmax(dim=1)
        held, length = _count(near, size), (near >= 0).sum(dim=2)
        following = nn.functional.pad(near, (0, 1), value=PAD)

        spoken = candidates.clauses
        there = (spoken > -1.0).any(dim=1).float()
        share = (spoken * self.clause_sharpness * SHARPNESS_SCALE).softmax(dim=1)
        share = share * there.unsqueeze(1)
        number = there.sum(dim=1, keepdim=True)
        order = torch.arange(share.size(2), device=share.device) / number.sub(1.0).clamp_min(1.0)
        shares = share.sum(dim=2)
        parts = {
            "cosine": cosine,
            "likeness": likeness,
            "named": named,
            "blend": blend,
            "clause cosine": spoken.amax(dim=2).unsqueeze(1),
            "clause share": shares.unsqueeze(1),
            "relevance": relevance,
            "log relevance": relevance.clamp(RARE, 1.0).log(),
            "first": first,
            "log first": first.clamp(RARE, 1.0).log(),
            "votes": torch.einsum("bk,bks->bs", weight, held.clamp_max(1.0)).unsqueeze(1),
            "log used": used.log1p(),
            "never used": (used == 0).float(),
            "comes first": (use[..., 1] + 0.1) / (used + 1.0),
            "repeats": use[..., 3] / (used + 1.0),
        }
        return Fixed(
            parts=parts,
            rows=rows,
            key=nn.functional.embedding(rows, tools.key),
            state=nn.functional.embedding(rows, tools.state),
            x=nn.functional.embedding(rows, tools.x),
            place=place.squeeze(1),
            words=candidates.length,
            weight=weight,
            near=near,
            near_length=length,
            held=held,
            following=following.where(following >= 0, size),
            expected=(weight * length).sum(dim=1, keepdim=True),
            share=share,
            served=nn.functional.pad(
                share / share.amax(dim=1, keepdim=True).clamp_min(1e-9), (0, 0, 0, 1)
            ),
            there=there,
            number=number,
            clause_place=torch.einsum("bsm,bm->bs", share, order) / shares.clamp_min(1e-9),
        )

    def _features(
        self,
        tools: ToolSide,
        fixed: "Fixed",
        prefix: Int[Tensor, "batch steps length"],
    ) -> tuple[Float[Tensor, "batch steps size num"], Float[Tensor, "batch steps num_end"]]:
        """The features of every candidate, and of END, after each beginning."""
        batch, steps, _ = prefix.shape
        size, num_tools = fixed.rows.size(1), tools.x.size(0)
        length = (prefix >= 0).sum(dim=2)
        last, last_but_one = (_back(prefix, length, k) for k in (1, 2))
        at_last = last.clamp_min(0)
        inside = (last >= 0).unsqueeze(2).float()
        at_first = 1.0 - inside
        times = _count(prefix, size)
        chosen = (times > 0).float()
        free = 1.0 - chosen
        again = (torch.arange(size, device=prefix.device) == last.unsqueeze(2)).float()
        votes = _votes(fixed, prefix, length, last, times)
        open_ = _open(fixed, prefix)

        rows = fixed.rows.unsqueeze(1)
        source = fixed.rows.gather(1, at_last)
        earlier = fixed.rows.gather(1, last_but_one.clamp_min(0)).unsqueeze(2)
        behind = source.unsqueeze(2)
        pairs = (behind * num_tools + rows, rows * num_tools + behind, earlier * num_tools + rows)
        after, before, two_back = tools.edges.of(torch.stack(pairs)).unbind(dim=0)
        adjacent, dataflow = (after * inside.unsqueeze(3)).unbind(dim=3)
        two_back = two_back[..., 0] * (last_but_one >= 0).unsqueeze(2)
        dependency = nn.functional.embedding(source, tools.asked) @ fixed.state.mT
        alike = nn.functional.embedding(source, tools.x) @ fixed.x.mT
        moved = (fixed.place.unsqueeze(1) - fixed.place.gather(1, at_last).unsqueeze(2)) * inside
        clause = fixed.clause_place
        clause = (clause.unsqueeze(1) - clause.gather(1, at_last).unsqueeze(2)) * inside
        relevance = fixed.parts["relevance"]
        parts = fixed.parts | {
            "moved on": moved,
            "distance": moved.abs(),
            "previous cosine": alike * inside,
            "clause share left": open_ @ fixed.share.mT,
            "clause moved on": clause,
            "clause distance": clause.abs(),
            "relevance if free": relevance * free,
            "first": fixed.parts["first"] * at_first,
            "log first": fixed.parts["log first"] * at_first,
            "votes left": votes.left,
            "log votes left": _log(votes.left),
            "votes to follow": votes.follow[..., :-1],
            "log votes to follow": _log(votes.follow[..., :-1]),
            "votes of equal beginnings": votes.equal[..., :-1],
            "log votes of equal beginnings": _log(votes.equal[..., :-1]),
            "log adjacent": adjacent.log1p(),
            "log dataflow": dataflow.log1p(),
            "seen": (adjacent > 0).float(),
            "share": adjacent / (tools.edges.out_count[source].unsqueeze(2) + 1.0),
            "log adjacent two back": two_back.log1p(),
            "log adjacent reversed": (before[..., 0] * inside).log1p(),
            "dependency": dependency.tanh() * inside,
            "comes first": fixed.parts["comes first"] * at_first,
            "chosen": chosen,
            "again": again,
            "times chosen": times.clamp_max(4.0),
            "repeats": fixed.parts["repeats"] * again,
        }
        phi = torch.stack([parts[name].expand(batch, steps, size) for name in _PLACE], dim=3)

        left = relevance.clamp(0.0, 1.0) * free
        ended = tools.use[source]
        stop = (
            left.sum(dim=2),
            left.amax(dim=2),
            votes.left.sum(dim=2),
            votes.left.amax(dim=2),
            votes.follow[..., -1],
            _log(votes.follow[..., -1]),
            votes.equal[..., -1],
            _log(votes.equal[..., -1]),
            fixed.expected - length,
            length.float(),
            (ended[..., 2] + 0.5) / (ended[..., 0] + 1.0) * inside.squeeze(2),
            fixed.words.expand(batch, steps),
            open_.sum(dim=2),
            open_.amax(dim=2),
            fixed.number.expand(batch, steps),
        )
        return phi, torch.stack(stop, dim=2)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.hidden_channels})"


SHARPNESS_SCALE = 30.0
"""The sharpness of votes is learnt in units of this, so that it moves as fast as other weights."""


class Fixed(NamedTuple):
    """What stays the same at every step of a plan.

    Attributes:
        parts: Features that depend on request and tool alone, shape ``[batch, 1, size]``.
        rows: Tool rows of the candidates.
        key: What queries are held against.
        state: Encoder states.
        x: Text vectors.
        place: Where the words shared with each candidate stand.
        words: Logarithm of the request's length.
        weight: Say of each of the nearest past requests.
        near: Their plans as positions.
        near_length: Length of these.
        held: How often each candidate stands in each.
        following: The plans, filled with END behind the last tool.
        expected: Mean length of the plans.
        share: Which candidates each clause speaks of; sums to 1 over them.
        served: Share against the best candidate's, with a row of zeros for none.
        there: Whether there is such a clause.
        number: Number of clauses.
        clause_place: Where the clauses that speak of each candidate stand.
    """

    parts: dict[str, Tensor]
    rows: Int[Tensor, "batch size"]
    key: Float[Tensor, "batch size hidden_channels"]
    state: Float[Tensor, "batch size state_channels"]
    x: Float[Tensor, "batch size text_channels"]
    place: Float[Tensor, "batch size"]
    words: Float[Tensor, "batch 1"]
    weight: Float[Tensor, "batch neighbours"]
    near: Int[Tensor, "batch neighbours length"]
    near_length: Int[Tensor, "batch neighbours"]
    held: Float[Tensor, "batch neighbours size"]
    following: Int[Tensor, "batch neighbours length_and_one"]
    expected: Float[Tensor, "batch 1"]
    share: Float[Tensor, "batch size clauses"]
    served: Float[Tensor, "batch size_and_one clauses"]
    there: Float[Tensor, "batch clauses"]
    number: Float[Tensor, "batch 1"]
    clause_place: Float[Tensor, "batch size"]


class _Votes(NamedTuple):
    """Weighted votes of the nearest plans; END is the last choice where there is one more."""

    left: Float[Tensor, "batch steps size"]
    follow: Float[Tensor, "batch steps size_and_end"]
    equal: Float[Tensor, "batch steps size_and_end"]


def _votes(
    fixed: Fixed,
    prefix: Int[Tensor, "batch steps length"],
    length: Int[Tensor, "batch steps"],
    last: Int[Tensor, "batch steps"],
    times: Float[Tensor, "batch steps size"],
) -> _Votes:
    """What the plans of the nearest past requests say at each step."""
    near, weight, size = fixed.near, fixed.weight, fixed.rows.size(1)
    batch, steps, _ = prefix.shape
    neighbours, longest = near.shape[1:]
    left = (fixed.held.unsqueeze(1) - times.unsqueeze(2)).clamp(0.0, 1.0)

    here = (near.unsqueeze(1) == last[:, :, None, None]) & (last >= 0)[:, :, None, None]
    after = fixed.following[:, None, :, 1:].expand(batch, steps, neighbours, longest)
    follow = _tally(after.flatten(2), (here * weight[:, None, :, None]).flatten(2), size)

    shared = min(prefix.size(2), longest)
    equal = prefix[:, :, None, :shared] == near[:, None, :, :shared]
    ahead = torch.arange(shared, device=near.device) >= length[:, :, None, None]
    same = (equal | ahead).all(dim=3) & (fixed.near_length.unsqueeze(1) >= length.unsqueeze(2))
    at = length.clamp_max(longest)[:, :, None, None].expand(-1, -1, neighbours, -1)
    then = fixed.following.unsqueeze(1).expand(-1, steps, -1, -1).gather(3, at).squeeze(3)
    return _Votes(
        torch.einsum("bk,btks->bts", weight, left),
        follow,
        _tally(then, same * weight.unsqueeze(1), size),
    )


def _open(
    fixed: Fixed, prefix: Int[Tensor, "batch steps length"]
) -> Float[Tensor, "batch steps clauses"]:
    """How far each clause is from being served by the tools chosen so far, 0..1."""
    batch, steps, length = prefix.shape
    size, clauses = fixed.share.shape[1:]
    if length == 0:
        return fixed.there.unsqueeze(1).expand(batch, steps, clauses)
    at = prefix.where((prefix >= 0) & (prefix < size), size).flatten(1)
    picked = fixed.served.gather(1, at.unsqueeze(2).expand(-1, -1, clauses))
    best = picked.view(batch, steps, length, clauses).amax(dim=2)
    return (1.0 - best) * fixed.there.unsqueeze(1)


def _mlp(in_channels: int, hidden_channels: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(in_channels, hidden_channels),
        nn.GELU(),
        nn.Dropout(dropout),
        nn.Linear(hidden_channels, 1),
    )


def _back(
    prefix: Int[Tensor, "batch steps length"], length: Int[Tensor, "batch steps"], by: int
) -> Int[Tensor, "batch steps"]:
    """The last choice (1), the one before (2), of each beginning; -1 where there is none."""
    if prefix.size(2) == 0:
        return torch.full_like(length, PAD)
    chosen = prefix.gather(2, (length - by).clamp_min(0).unsqueeze(2)).squeeze(2)
    return chosen.where(length >= by, PAD)


def _count(plans: Int[Tensor, "batch many length"], size: int) -> Float[Tensor, "batch many size"]:
    """How often each candidate stands in each plan."""
    place = plans.where((plans >= 0) & (plans < size), size)
    ones = torch.ones(plans.shape, device=plans.device)
    out = ones.new_zeros(*plans.shape[:2], size + 1)
    return out.scatter_add_(2, place, ones)[..., :-1]


def _tally(
    choices: Int[Tensor, "batch steps votes"],
    weight: Float[Tensor, "batch steps votes"],
    size: int,
) -> Float[Tensor, "batch steps size_and_end"]:
    """Sum of weights by choice; those for tools outside the shortlist are lost."""
    out = weight.new_zeros(*choices.shape[:2], size + 2)
    return out.scatter_add_(2, choices, weight)[..., :-1]


def _log(votes: Tensor) -> Tensor:
    """Logarithm of votes, 0 where there are none."""
    return votes.clamp_min(_FEWEST).log() - math.log(_FEWEST)


_FEWEST = 0.003


@torch.no_grad()
def beam_search(
    decoders: Sequence[PointerDecoder],
    tools: Sequence[ToolSide],
    requests: Sequence[RequestSide],
    candidates: Candidates,
    width: int,
    max_length: int,
) -> tuple[Int[Tensor, "batch beams max_length"], Float[Tensor, "batch beams"]]:
    """The likeliest plans of each request under the mean of several decoders.

    Args:
        decoders: One or more, whose probabilities are averaged at each step.
        tools: What each has of the tools.
        requests: What each has of the requests.
        candidates: Candidates of the requests.
        width: Plans kept at each step.
        max_length: Most tools of a plan.

    Returns:
        Plans of positions padded with -1, likeliest first, and their log probabilities; -inf marks
        places for which there was no plan.
    """
    batch, size = candidates.tools.shape
    device, beams = candidates.x.device, 1
    states = [side.start.unsqueeze(1) for side in requests]
    log_prob = torch.zeros(batch, 1, device=device)
    plans = torch.full((batch, 1, max_length), PAD, device=device)
    done = torch.zeros(batch, 1, dtype=torch.bool, device=device)
    if size == 0:
        return plans, log_prob.fill_(-torch.inf)
    every = list(zip(decoders, tools, requests, strict=True))
    fixed = [decoder.fix(tool, candidates) for decoder, tool, _ in every]
    for step in range(max_length + 1):
        said = [
            decoder.step_log_probs(tool, request, stays, plans[:, :, :step], state)
            for (decoder, tool, request), stays, state in zip(every, fixed, states, strict=True)
        ]
        choice = torch.stack(said).logsumexp(dim=0) - math.log(len(said))
        if step == max_length:
            choice[..., :size] = -torch.inf
        choice = choice.masked_fill(done.unsqueeze(2), -torch.inf)
        choice[..., size] = choice[..., size].masked_fill(done, 0.0)
        total = (log_prob.unsqueeze(2) + choice).flatten(1)
        log_prob, flat = total.topk(min(width, total.size(1)), dim=1)
        beam, tool_at = flat // (size + 1), flat % (size + 1)
        beams = beam.size(1)
        done = done.gather(1, beam) | (tool_at == size) | log_prob.isneginf()
        plans = plans.gather(1, beam.unsqueeze(2).expand(-1, -1, max_length))
        if bool(done.all()):
            break
        plans[:, :, step] = tool_at.where(~done, PAD)
        row = candidates.tools.gather(1, tool_at.clamp_max(size - 1))
        for i, (decoder, tool, _) in enumerate(every):
            width_of = states[i].size(2)
            state = states[i].gather(1, beam.unsqueeze(2).expand(-1, -1, width_of))
            step_input = tool.step_input[row].view(batch * beams, 1, -1)
            read, _ = decoder.gru(step_input, state.reshape(1, batch * beams, -1).contiguous())
            states[i] = read.view(batch, beams, -1)
    return plans, log_prob


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
    common = nn.functional.pad(torch.zeros_like(a[..., :1] + b), (1, 0))
    for i in range(a.size(-1)):
        tool = a[..., i : i + 1]
        longer = common[..., :-1] + ((tool == b) & (tool >= 0))
        best = torch.maximum(common[..., 1:], longer).cummax(dim=-1).values
        common = nn.functional.pad(best, (1, 0))
    order = torch.where(size > 0, 2 * common[..., -1] / size.clamp_min(1), 1.0)
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
    plans = plans[..., : max(1, int((plans >= 0).sum(dim=2).max()))]
    agreement = plan_agreement(plans.unsqueeze(2), plans.unsqueeze(1)).mean(dim=-1)
    weight = log_prob.softmax(dim=1).nan_to_num(0.0)
    score = torch.einsum("bij,bj->bi", agreement, weight)
    score = score.masked_fill(log_prob.isneginf() | (plans[..., 0] == PAD), -torch.inf)
    ordered, order = score.sort(dim=1, descending=True, stable=True)
    return order, ordered
