"""A trained planner on another graph: tools added since are planned for without retraining."""

import torch

from models.errors import GraphMismatch
from models.gtool import GTool, GToolPlanner
from models.memory import PAD
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


def on_graph(planner: GToolPlanner, graph: ToolGraph) -> GToolPlanner:
    """The planner on another graph, with all its tools; only texts that are new are embedded."""
    known = dict(zip(planner.graph.texts, planner.tool_x, strict=True))
    new = [text for text in dict.fromkeys(graph.texts) if text not in known]
    if new:
        known |= zip(new, planner.embed(new), strict=True)
    rows = [known[text] for text in graph.texts]
    tool_x = torch.stack(rows) if rows else planner.tool_x[:0]
    model = with_tools(planner.model, planner.graph, graph)
    links = planner.link_scorer.on(graph, tool_x) if planner.link_scorer else None
    return GToolPlanner(model, graph, tool_x, planner.embed, links)
