from itertools import permutations

import pytest
import torch

from models.dependency import (
    BilinearDependency,
    mask_edges,
    mdpl_auc,
    mdpl_loss,
    sample_negatives,
)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def pairs_of(edges):
    return [tuple(pair) for pair in edges.T.tolist()]


def test_about_a_tenth_of_the_edges_is_hidden():
    hidden = mask_edges(10_000, 0.1, generator())
    assert 900 < int(hidden.sum()) < 1100
    assert torch.equal(hidden, mask_edges(10_000, 0.1, generator()))
    assert not torch.equal(hidden, mask_edges(10_000, 0.1, generator(1)))


@pytest.mark.parametrize(("rho", "share"), [(0.0, 0), (1.0, 5)])
def test_masking_takes_none_or_all_at_the_ends(rho, share):
    assert int(mask_edges(5, rho, generator()).sum()) == share
    assert mask_edges(0, rho, generator()).numel() == 0


@pytest.mark.parametrize("num_nodes", [5, 300])
def test_negatives_are_distinct_pairs_without_edges_or_self_loops(num_nodes):
    edges = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 4, 0]])
    drawn = pairs_of(sample_negatives(edges, num_nodes, 10, generator()))
    assert len(drawn) == len(set(drawn)) == 10
    assert not set(drawn) & set(pairs_of(edges))
    assert all(a != b and 0 <= a < num_nodes and 0 <= b < num_nodes for a, b in drawn)


def test_every_free_pair_can_be_drawn_and_evenly():
    edges = torch.tensor([[0, 1], [1, 0]])
    counts = {}
    for seed in range(400):
        for pair in pairs_of(sample_negatives(edges, 3, 1, generator(seed))):
            counts[pair] = counts.get(pair, 0) + 1
    assert sorted(counts) == [(0, 2), (1, 2), (2, 0), (2, 1)]
    assert min(counts.values()) > 60


@pytest.mark.parametrize("num_nodes", [0, 1])
def test_graphs_without_pairs_have_no_negatives(num_nodes):
    none = torch.zeros(2, 0, dtype=torch.int64)
    assert sample_negatives(none, num_nodes, 3, generator()).shape == (2, 0)


def test_a_complete_graph_has_none_and_a_nearly_complete_one_few():
    complete = torch.tensor(list(permutations(range(4), 2))).T
    assert sample_negatives(complete, 4, 3, generator()).shape == (2, 0)
    assert pairs_of(sample_negatives(complete[:, 1:], 4, 3, generator())) == [(0, 1)]


def test_scores_have_a_direction():
    torch.manual_seed(0)
    model = BilinearDependency(4)
    h = torch.randn(3, 4)
    scores = model(h, torch.tensor([[0, 1, 2], [1, 0, 2]]))
    expected = h[0] @ model.weight @ h[1] / 2 + model.bias
    assert torch.allclose(scores[0], expected.squeeze())
    assert not torch.allclose(scores[0], scores[1])
    assert model(h, torch.zeros(2, 0, dtype=torch.int64)).shape == (0,)


def test_loss_is_cross_entropy_and_zero_without_pairs():
    loss = mdpl_loss(torch.tensor([0.0, 0.0]), torch.tensor([0.0]))
    assert loss.item() == pytest.approx(0.6931, abs=1e-4)
    good = mdpl_loss(torch.tensor([9.0]), torch.tensor([-9.0]))
    assert good < 1e-3
    empty = torch.zeros(0, requires_grad=True)
    nothing = mdpl_loss(empty, empty)
    nothing.backward()
    assert nothing.item() == 0.0


def test_auc_counts_won_pairs_and_half_of_ties():
    positive, negative = torch.tensor([3.0, 1.0, 2.0]), torch.tensor([2.0, 0.0])
    won = sum(float(p > n) + 0.5 * float(p == n) for p in positive for n in negative)
    assert mdpl_auc(positive, negative) == pytest.approx(won / 6)


def test_auc_needs_both_classes():
    assert mdpl_auc(torch.zeros(0), torch.ones(2)) is None
    assert mdpl_auc(torch.ones(2), torch.zeros(0)) is None


def test_the_direction_of_edges_can_be_learnt():
    torch.manual_seed(0)
    h, model = torch.eye(4), BilinearDependency(4)
    yes, no = torch.tensor([[0, 1, 2], [1, 2, 3]]), torch.tensor([[1, 2, 3], [0, 1, 2]])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(60):
        optimizer.zero_grad()
        mdpl_loss(model(h, yes), model(h, no)).backward()
        optimizer.step()
    assert mdpl_auc(model(h, yes), model(h, no)) == 1.0
