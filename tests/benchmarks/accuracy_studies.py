"""Studies of the accuracy benchmark besides its main table; each run is a record of its own."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
from accuracy_report import CELLS
from accuracy_runs import Bench, described, mean, new_planner, others, scored, trained
from sets import Case, mine_graph, share

from models.ablation import Ablation
from models.baselines import NearestPlanner, RetrievalPlanner
from models.decoder import FEATURES, PointerDecoder
from models.edges import tool_use
from models.gtool import GToolPlanner
from models.links import LinkScorer
from models.memory import padded_plans
from models.new_tools import on_graph, with_tools
from models.sgc import SgcPlanner
from models.types import Example, Planner, ToolGraph

STUDIED = (("ultratool", "own"), ("toollinkos", "by-sequence"))
"""Sets and splits of the studies."""

SWEPT: dict[str, tuple[float, ...]] = {
    "mask_rate": (0.0, 0.1, 0.3, 0.5),
    "mdpl_weight": (0.0, 0.1, 0.5, 1.0),
    "mdpl_pairs": (64, 512, 2048),
}
"""Values of rho, lambda and alpha, one varied at a time."""

COLD = 0.1
"""Share of the tools that are held out of training in the cold study."""


def run_table(bench: Bench, sets: Sequence[str], splits: Sequence[str], seed: int) -> None:
    """The default planner beside all others, and with parts of it silenced."""
    config = bench.config()
    for cell in CELLS:
        of = (cell.set, cell.split)
        key = bench.key("table", of, "", seed, config)
        if cell.set not in sets or cell.split not in splits or bench.find(key):
            continue
        case = bench.case(of, seed)
        result, training = trained(bench, case, config, seed)
        planner = new_planner(bench, case, result)
        planners = {"gtool": planner} | others(bench, case)
        scores = {name: scored(case.test, one) for name, one in planners.items()}
        parts = {}
        for group in FEATURES:
            with silenced(group):
                parts[group] = scored(case.test, planner)
        without_states(planner)
        parts["states"] = scored(case.test, planner)
        bench.add(
            key,
            {
                **described(case),
                **training,
                "planners": scores,
                "silenced": {group: means(part) for group, part in parts.items()},
                "evaluations": len(scores) + len(parts),
            },
        )


def run_ablation(bench: Bench, sets: Sequence[str], seed: int) -> None:
    """The paper's ablation table for the graph readout."""
    for of in STUDIED:
        for variant in Ablation:
            if of[0] not in sets or variant is Ablation.LLM_LINKS:
                continue
            config = bench.config(ablation=variant)
            key = bench.key("ablation", of, str(variant), seed, config)
            if bench.find(key) or (variant is Ablation.FULL and _from_table(bench, key)):
                continue
            case = bench.case(of, seed)
            result, training = trained(bench, case, config, seed)
            scores = {"gtool": scored(case.test, new_planner(bench, case, result))}
            bench.add(key, {**described(case), **training, "planners": scores, "evaluations": 1})


def run_missing(bench: Bench, sets: Sequence[str], seed: int, missing: Sequence[float]) -> None:
    """The missing-edge curve: the same edges are gone in training and in use."""
    config = bench.config()
    for of in STUDIED:
        for gone in missing:
            key = bench.key("missing", of, f"{gone:.2f}", seed, config)
            if of[0] not in sets or bench.find(key):
                continue
            case = bench.case(of, seed)
            case = replace(case, graph=without_edges(case.graph, gone, seed))
            result, training = trained(bench, case, config, seed)
            planner = new_planner(bench, case, result)
            flows = case.dataflow_namespaces
            sgc = SgcPlanner(case.graph, case.past, bench.embed, dataflow_namespaces=flows)
            scores = {"gtool": scored(case.test, planner), "sgc": scored(case.test, sgc)}
            with silenced("memory"):
                scores["gtool without memory"] = scored(case.test, planner)
            found = {**described(case), **training, "planners": scores, "evaluations": 3}
            bench.add(key, {**found, "edges": case.graph.edge_index.size(1)})


def run_sweep(bench: Bench, sets: Sequence[str], seed: int) -> None:
    """Rho, lambda and alpha of missing-dependency prediction, on validation rows alone."""
    of = STUDIED[0]
    default = bench.config()
    for name, values in SWEPT.items():
        for value in values:
            config = bench.config(**{name: value})
            key = bench.key("sweep", of, f"{name} = {value}", seed, config)
            if of[0] not in sets or bench.find(key):
                continue
            case = bench.case(of, seed)
            result, training = trained(bench, case, config, seed)
            auc = result.history[result.best_epoch].get("mdpl_auc")
            found = {**described(case), **training, "planners": {}, "evaluations": 0}
            is_default = value == getattr(default, name)
            bench.add(key, {**found, "mdpl_auc": auc, "is_default": is_default})


def run_cold(bench: Bench, sets: Sequence[str], seed: int) -> None:
    """Tools without any evidence: known to the training by text alone, or added after it."""
    config = bench.config()
    for of in STUDIED:
        for variant in ("listed", "added"):
            key = bench.key("cold", of, variant, seed, config)
            if of[0] not in sets or bench.find(key):
                continue
            case = bench.case(of, seed)
            cold = {tool for tool in case.graph.keys if share((tool,), seed) < COLD}
            warm = [e for e in case.examples if e.split == "test" or not cold & set(e.tools)]
            graph = mine_graph(bench.data / of[0], warm, bool(case.dataflow_namespaces))
            full = replace(case, graph=graph, examples=warm)
            known = graph
            if variant == "added":
                known = only(graph, [tool for tool in graph.keys if tool not in cold])
            result, training = trained(bench, replace(full, graph=known), config, seed)
            planner = new_planner(bench, replace(full, graph=known), result)
            if variant == "added":
                planner = on_graph(planner, graph)
            needs = [example for example in full.test if cold & set(example.tools)]
            rest = [example for example in full.test if not cold & set(example.tools)]
            flows = case.dataflow_namespaces
            planners: dict[str, Planner] = {
                "gtool": planner,
                "retrieval": RetrievalPlanner(graph, full.past, bench.embed),
                "nearest": NearestPlanner(graph, full.past, bench.embed, dataflow_namespaces=flows),
            }
            scores = {
                name: {**scored(needs, one), "recall": recall(needs, one, cold)}
                for name, one in planners.items()
            }
            found = {**described(replace(full, examples=full.past + needs)), **training}
            found |= {"planners": scores, "rest": means(scored(rest, planner))}
            bench.add(key, {**found, "cold_tools": len(cold), "evaluations": 4})


def run_transfer(bench: Bench, pair: tuple[str, str], seed: int) -> None:
    """Train on one set, plan on another with other tools, before and after it shows its rows."""
    config = bench.config()
    splits = {cell.set: cell.split for cell in reversed(CELLS)}
    for source, target in (pair, pair[::-1]):
        of = (target, splits[target])
        keys = {
            kind: bench.key("transfer", of, f"{source}, {kind}", seed, config)
            for kind in ("catalogue", "past")
        }
        if all(bench.find(key) for key in keys.values()):
            continue
        there, here = bench.case((source, splits[source]), seed), bench.case(of, seed)
        result, training = trained(bench, there, config, seed)
        planner = new_planner(bench, there, result)
        listed = mine_graph(bench.data / target, [], dataflow=False)
        flows = here.dataflow_namespaces
        baselines: dict[str, Planner] = {
            "retrieval": RetrievalPlanner(here.graph, here.past, bench.embed),
            "nearest": NearestPlanner(
                here.graph, here.past, bench.embed, dataflow_namespaces=flows
            ),
        }
        for kind, one in (
            ("catalogue", on_graph(planner, listed)),
            ("past", with_past(bench, planner, here)),
        ):
            scores = {"gtool": scored(here.test, one)}
            if kind == "past":
                scores |= {name: scored(here.test, other) for name, other in baselines.items()}
            found = {**described(here), **training, "planners": scores}
            bench.add(keys[kind], {**found, "evaluations": len(scores)})


def with_past(bench: Bench, planner: GToolPlanner, case: Case) -> GToolPlanner:
    """The planner on a graph of other tools that remembers the rows of its set; nothing learnt."""
    graph = case.graph
    model = with_tools(planner.model, planner.graph, graph)
    plans = padded_plans([[graph.index[key] for key in row.tools] for row in case.past])
    model.config = replace(model.config, max_length=plans.size(1))
    x = bench.embed([row.request for row in case.past])
    groups = [row.group or row.id for row in case.past]
    model.memory.fit(x, plans, groups, model.config.memory_rows)
    model.use = tool_use(plans, graph.num_tools)
    tool_x = bench.embed(graph.texts)
    links = LinkScorer.fit(graph, case.past, tool_x)
    return GToolPlanner(model, graph, tool_x, bench.embed, links)


def recall(rows: Sequence[Example], planner: Planner, wanted: set[str]) -> list[float]:
    """Share of the wanted tools of each row's plan that the planner's best plan holds."""
    found = []
    for row, plans in zip(rows, planner.plan([row.request for row in rows]), strict=True):
        needed = wanted & set(row.tools)
        held = set(plans[0].tools) if plans else set()
        found.append(len(needed & held) / len(needed))
    return found


def without_edges(graph: ToolGraph, gone: float, seed: int) -> ToolGraph:
    """The graph without a random share of its edges; a larger share holds a smaller one."""
    number = graph.edge_index.size(1)
    order = torch.randperm(number, generator=torch.Generator().manual_seed(seed))
    kept = order[round(gone * number) :].sort().values
    return replace(graph, edge_index=graph.edge_index[:, kept], edge_counts=graph.edge_counts[kept])


def only(graph: ToolGraph, keys: Sequence[str]) -> ToolGraph:
    """The graph of some tools, none of whose edges leads to another."""
    row = torch.full((graph.num_tools,), -1)
    old = [graph.index[key] for key in keys]
    row[old] = torch.arange(len(keys))
    texts = tuple(graph.texts[i] for i in old)
    edges = row[graph.edge_index]
    assert (edges >= 0).all()
    return ToolGraph(graph.version, tuple(keys), texts, edges, graph.edge_counts)


def means(scores: dict[str, list[float]]) -> dict[str, float]:
    """Mean of each metric."""
    return {metric: round(mean(values), 4) for metric, values in scores.items()}


def _from_table(bench: Bench, key: dict[str, Any]) -> bool:
    """Take over the run that the main table has made already, if it has."""
    known = bench.find({**key, "study": "table", "variant": ""})
    if known is None:
        return False
    found = {name: value for name, value in known.items() if name not in key}
    gtool = {"gtool": known["planners"]["gtool"]}
    bench.add(key, {**found, "planners": gtool, "evaluations": 0})
    return True


@contextmanager
def silenced(group: str) -> Iterator[None]:
    """The features of one group say the same of all candidates: their mean over them.

    END keeps its features, and the shortlist is drawn up as before.
    """
    names = [name for part in FEATURES.values() for name in part]
    columns = [names.index(name) for name in FEATURES[group]]
    loud = PointerDecoder._features

    def quiet(*args: Any) -> Any:
        phi, end = loud(*args)
        phi[..., columns] = phi[..., columns].mean(dim=2, keepdim=True)
        return phi, end

    with patch.object(PointerDecoder, "_features", quiet):
        yield


def without_states(planner: GToolPlanner) -> None:
    """Let the keys that queries are held against say the same of all tools: their mean."""
    planner.tools = [
        states._replace(side=states.side._replace(key=states.side.key.mean(0).expand_as(key)))
        for states in planner.tools
        for key in [states.side.key]
    ]
