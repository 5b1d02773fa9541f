"""A trained planner on another graph: tools added since are planned for without retraining."""

import copy
from collections.abc import Collection

import torch

from models.errors import GraphMismatch
from models.graph_tokens import name_vectors
from models.gtool import GTool, GToolPlanner
from models.llm_planner import LLMPlanner
from models.memory import PAD
from models.prompt import Names
from models.types import ToolGraph


def with_tools(model: GTool, graph: ToolGraph, new_graph: ToolGraph) -> GTool:
    """The model for a graph with other tools, found again by key; its weights are the same.

    No weight belongs to a single tool, so a new tool is planned for by its text and by its edges in
    the new graph. What has to change is what the model remembers by row: which tools past plans
    hold, and how often each tool is used. New tools have no past; a tool that is gone stands in
    past plans as one outside the graph (row ``new_graph.num_tools``), so that they keep their
    length and none votes for it.

    Args:
        model: Trained on ``graph``.
        graph: Its tools in the order of the model.
        new_graph: The tools to plan with.

    Returns:
        A model in eval mode; the other one is left as it was.

    Raises:
        GraphMismatch: The model was not trained on ``graph``.
    """
    memory = model.memory
    if memory.num_tools != graph.num_tools:
        raise GraphMismatch(
            f"expected the graph of {memory.num_tools} tools that the model was trained on, got "
            f"one of {graph.num_tools}; take model and graph from one checkpoint"
        )
    gone = new_graph.num_tools
    device = memory.plans.device
    # One row more than there are tools: what is outside the old graph is outside the new one.
    row = torch.tensor([*(new_graph.index.get(key, gone) for key in graph.keys), gone])
    row = row.to(device)
    stays = row[:-1] != gone
    used = row[memory.used]
    is_known = used != gone
    plans = torch.where(memory.plans == PAD, PAD, row[memory.plans])
    relevance, first = memory.weights.chunk(2, dim=1)
    weights = torch.cat([relevance[:, is_known], first[:, is_known]], dim=1)
    use = model.use.new_zeros(new_graph.num_tools, model.use.size(1))
    use[row[:-1][stays]] = model.use[stays]

    shape = (plans.size(0), int(is_known.sum()), plans.size(1))
    out = GTool(model.config, model.text_channels, new_graph.num_tools, shape).to(device)
    state = model.state_dict() | {
        "use": use,
        "memory.plans": plans,
        "memory.used": used[is_known],
        "memory.weights": weights,
    }
    out.load_state_dict(state)
    return out.eval()


def on_graph(
    planner: GToolPlanner, graph: ToolGraph, allowed: Collection[str] | None = None
) -> GToolPlanner:
    """The planner on another graph; only texts that are new are embedded.

    Args:
        planner: The trained planner.
        graph: The tools to plan with.
        allowed: Keys of those that plans may hold; ``None``: all.
    """
    known = dict(zip(planner.graph.texts, planner.tool_x, strict=True))
    new = [text for text in dict.fromkeys(graph.texts) if text not in known]
    if new:
        known |= zip(new, planner.embed(new), strict=True)
    rows = [known[text] for text in graph.texts]
    tool_x = torch.stack(rows) if rows else planner.tool_x[:0]
    model = with_tools(planner.model, planner.graph, graph)
    scorer = planner.link_scorer.on(graph, tool_x) if planner.link_scorer else None
    return GToolPlanner(model, graph, tool_x, planner.embed, scorer, allowed)


def spoken_on(planner: LLMPlanner, drawn: GToolPlanner) -> LLMPlanner:
    """The LLM readout beside a graph readout of more tools, which it reads and writes by key.

    A new tool's token starts out of its name, as all do; what has been learnt is the same for all.

    Args:
        planner: The trained readout.
        drawn: A graph readout that holds all of its tools.
    """
    tokens = copy.deepcopy(planner.tokens)
    tokens.name_x = name_vectors(planner.llm, Names.of(planner.llm, drawn.graph.keys).lines)
    row = torch.tensor([drawn.graph.index[key] for key in planner.graph.keys])
    tokens.links = row.to(tokens.links.device)[tokens.links]
    return LLMPlanner(planner.config, tokens, drawn, planner.llm)


def extended(old: ToolGraph, newer: ToolGraph) -> ToolGraph:
    """A graph with the tools that a newer one adds, and what is known of their edges by now.

    Among the tools of the old graph edges stay as they were trained on.
    """
    keys = tuple(sorted({*old.keys, *newer.keys}))
    index = {key: row for row, key in enumerate(keys)}
    texts = dict(zip(newer.keys, newer.texts, strict=True))
    texts |= dict(zip(old.keys, old.texts, strict=True))
    parts, counts = [], []
    for graph in (old, newer):
        row = torch.tensor([index[key] for key in graph.keys], dtype=torch.int64)
        is_new = torch.tensor([key not in old.index for key in graph.keys], dtype=torch.bool)
        source, target = graph.edge_index
        some = is_new[source] | is_new[target] if graph is newer else torch.ones_like(source).bool()
        parts.append(row[graph.edge_index[:, some]])
        counts.append(graph.edge_counts[some])
    edge_index, edge_counts = torch.cat(parts, dim=1), torch.cat(counts)
    return ToolGraph(old.version, keys, tuple(texts[k] for k in keys), edge_index, edge_counts)
