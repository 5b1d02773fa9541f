from itertools import pairwise

import pytest
import torch

from models.edges import EdgeTable, row_evidence, tool_use
from models.memory import padded_plans
from models.types import empty_edges
from tests.models.worlds import world

SEEDS = range(12)


def table(graph):
    return EdgeTable.from_edges(graph.edge_index, graph.edge_counts, graph.num_tools)


def evidence(graph, rows):
    return [
        row_evidence([graph.index[key] for key in row.tools], row.links, graph.num_tools)
        for row in rows
    ]


def dense(edges):
    """Counts of every pair."""
    every = torch.arange(edges.num_tools**2).view(edges.num_tools, -1)
    return edges.of(every)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_table_without_rows_equals_the_graph_mined_without_them(seed):
    here = world(seed)
    graph = here.graph
    for groups in ({"train 0"}, {"train 1", "validation 0"}, {row.group for row in here.rows}):
        gone = [row for row in here.rows if row.group in groups]
        left = table(graph).without(evidence(graph, gone))
        mined = table(here.without(groups).graph)
        assert torch.equal(left.code, mined.code)
        assert torch.equal(left.counts, mined.counts)
        assert torch.equal(left.share, mined.share)
        assert torch.equal(left.out_count, mined.out_count)


def test_a_table_without_nothing_is_the_same():
    edges = table(world().graph)
    assert torch.equal(edges.without([]).code, edges.code)
    assert torch.equal(edges.without([]).counts, edges.counts)


def test_evidence_that_was_never_mined_takes_nothing_away():
    rows = [row_evidence([0, 2, 1, 1], [(0, 3)], 3)]
    edges = EdgeTable.from_edges(torch.tensor([[1], [0]]), torch.tensor([[2.0, 1.0]]), 3)
    assert edges.without(rows * 5).counts.tolist() == [[2.0, 1.0]]
    empty = EdgeTable.from_edges(*empty_edges(), 3)
    assert empty.without(rows).code.numel() == 0


def test_evidence_counts_neighbours_and_links_but_no_tool_after_itself():
    code, counts = row_evidence([0, 1, 0, 1, 1], [(0, 1), (0, 3), (1, 2), (3, 4), (0, 2)], 2)
    assert code.tolist() == [1, 2]
    assert counts.tolist() == [[2.0, 2.0], [1.0, 1.0]]
    assert row_evidence([3], [], 5)[1].shape == (0, 2)


@pytest.mark.parametrize("seed", SEEDS)
def test_any_pair_is_found(seed):
    graph = world(seed).graph
    expected = torch.zeros(graph.num_tools, graph.num_tools, 2)
    expected[graph.edge_index[0], graph.edge_index[1]] = graph.edge_counts
    assert torch.equal(dense(table(graph)), expected)
    assert torch.equal(table(graph).out_count, expected[..., 0].sum(dim=1))
    assert not dense(EdgeTable.from_edges(*empty_edges(), 3)).any()


def test_the_order_of_edges_never_matters():
    graph = world().graph
    order = torch.randperm(graph.edge_index.size(1), generator=torch.Generator().manual_seed(0))
    mixed = EdgeTable.from_edges(graph.edge_index[:, order], graph.edge_counts[order], 6)
    assert torch.equal(mixed.code, table(graph).code)
    assert torch.equal(mixed.counts, table(graph).counts)
    assert torch.equal(mixed.edge_index, graph.edge_index)


def test_some_edges_may_be_kept():
    edges = table(world().graph)
    some = torch.arange(edges.code.numel()) % 2 == 0
    kept = edges.keep(some)
    assert torch.equal(kept.code, edges.code[some])
    assert torch.equal(kept.of(edges.code)[..., 0] > 0, some & (edges.counts[:, 0] > 0))


def slow_spread(edges, score, sources, backward):
    """Each of the best tools passes its score to its neighbours, written out."""
    out = torch.zeros_like(score)
    for row in range(score.size(0)):
        for tool in score[row].topk(min(sources, score.size(1))).indices.tolist():
            for (a, b), share in zip(
                edges.edge_index.T.tolist(), edges.share.tolist(), strict=True
            ):
                mine, other = (b, a) if backward else (a, b)
                if mine == tool:
                    out[row, other] = max(out[row, other], score[row, tool] * share)
    return out


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("sources", [1, 3, 99])
def test_scores_spread_as_in_the_slow_obvious_version(backward, sources):
    for seed in range(4):
        edges = table(world(seed).graph)
        score = torch.rand(3, 6, generator=torch.Generator().manual_seed(seed))
        expected = slow_spread(edges, score, sources, backward)
        assert torch.allclose(edges.spread(score, sources, backward=backward), expected)


def test_nothing_spreads_without_edges_or_requests():
    empty = EdgeTable.from_edges(*empty_edges(), 3)
    assert not empty.spread(torch.rand(2, 3), 2).any()
    assert table(world().graph).spread(torch.zeros(0, 6), 3).shape == (0, 6)


@pytest.mark.parametrize("seed", SEEDS)
def test_tool_use_equals_the_slow_obvious_version(seed):
    here = world(seed)
    plans = [[here.keys.index(key) for key in row.tools] for row in here.rows]
    expected = torch.zeros(6, 4)
    for plan in plans:
        for tool in set(plan):
            expected[tool, 0] += 1
        expected[plan[0], 1] += 1
        expected[plan[-1], 2] += 1
        for a, b in pairwise(plan):
            expected[a, 3] += a == b
    assert torch.equal(tool_use(padded_plans(plans), 6), expected)
