from types import SimpleNamespace

import torch
from torch.nn.functional import normalize

from models.checkpoint import save_planner
from models.gtool import GTool, GToolConfig
from models.links import LinkScorer
from models.types import ToolGraph, empty_edges
from tasks.planning import load_version

NAMES = "abc"
CONFIG = GToolConfig(hidden_channels=8, heads=2, num_layers=2, beam_width=8, max_length=2)


def embed(texts):
    """A text is the direction of its letters."""
    counts = [[1.0 + text.count(name) for name in NAMES] for text in texts]
    return normalize(torch.tensor(counts), dim=1)


def graph_of(names):
    return ToolGraph(names, tuple(f"s/{n}" for n in names), tuple(names), *empty_edges())


def test_a_registered_planner_offers_the_tools_of_the_present_graph(tmp_path):
    trained = graph_of("ab")
    torch.manual_seed(0)
    model = GTool(CONFIG, 3, 2)
    links = LinkScorer.fit(trained, [], embed("ab"))
    save_planner(tmp_path / "p", model, CONFIG, trained, embed("ab"), links, {})
    registry = SimpleNamespace(planner_folder=lambda number: tmp_path / "p")
    for names in ("ab", "bc", "abc"):
        planner = load_version(registry, "1", embed, graph_of(names))
        (plans,) = planner.plan(["abc"], top=8)
        assert {key for plan in plans for key in plan.tools} == {f"s/{name}" for name in names}
