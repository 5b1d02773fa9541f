import pytest
import torch

from models.encoder import GToolEncoder, edge_features
from models.types import empty_edges

EDGES = torch.tensor([[0, 1, 2, 2], [1, 2, 0, 3]])
COUNTS = torch.tensor([[1.0, 0.0], [5.0, 2.0], [0.0, 3.0], [100.0, 1.0]])


def encoder(**kwargs):
    torch.manual_seed(0)
    return GToolEncoder(6, 8, 12, **kwargs)


def explicit(model, x, edge_index, edge_attr, requests):
    """Tool states and request states, one graph of n+1 nodes a request."""
    nodes = [model.forward_explicit(x, edge_index, edge_attr, r) for r in requests]
    return nodes[0][:-1], torch.stack([h[-1] for h in nodes])


def test_edge_features_are_log_counts_and_no_request_flag():
    features = edge_features(torch.tensor([[1.0, 0.0], [0.0, 3.0]]))
    expected = torch.tensor([[2.0, 1.0, 1.0], [1.0, 4.0, 1.0]]).log()
    assert torch.allclose(features, expected)


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("num_layers", [1, 3])
def test_the_factorised_path_equals_pyg_on_the_explicit_graph(batch, num_layers):
    model = encoder(num_layers=num_layers, dropout=0.5).eval()
    x, requests = torch.randn(4, 6), torch.randn(batch, 6)
    states = model.encode_tools(x, EDGES, edge_features(COUNTS))
    tools, answers = explicit(model, x, EDGES, edge_features(COUNTS), requests)
    assert len(states) == num_layers + 1
    assert torch.allclose(states[-1], tools, atol=1e-5)
    assert torch.allclose(model.encode_requests(requests, states), answers, atol=1e-5)


@pytest.mark.parametrize("num_tools", [1, 3])
def test_it_equals_pyg_without_any_edge(num_tools):
    model = encoder().eval()
    edge_index, counts = empty_edges()
    x, requests = torch.randn(num_tools, 6), torch.randn(2, 6)
    states = model.encode_tools(x, edge_index, edge_features(counts))
    tools, answers = explicit(model, x, edge_index, edge_features(counts), requests)
    assert torch.isfinite(answers).all()
    assert torch.allclose(states[-1], tools, atol=1e-5)
    assert torch.allclose(model.encode_requests(requests, states), answers, atol=1e-5)


def test_a_layer_keeps_nothing_of_a_pass():
    model = encoder()
    model.encode_tools(torch.randn(4, 6), EDGES, edge_features(COUNTS))
    assert all(conv._alpha is None for conv in model.convs)


def test_requests_do_not_touch_each_other():
    model = encoder().eval()
    states = model.encode_tools(torch.randn(4, 6), EDGES, edge_features(COUNTS))
    requests = torch.randn(3, 6)
    together = model.encode_requests(requests, states)
    alone = torch.cat([model.encode_requests(r.unsqueeze(0), states) for r in requests])
    assert torch.allclose(together, alone, atol=1e-6)


def test_tool_order_does_not_matter():
    model = encoder().eval()
    x, request = torch.randn(4, 6), torch.randn(1, 6)
    order = torch.tensor([2, 0, 3, 1])
    states = model.encode_tools(x, EDGES, edge_features(COUNTS))
    moved = model.encode_tools(x[order], order.argsort()[EDGES], edge_features(COUNTS))
    assert torch.allclose(moved[-1], states[-1][order], atol=1e-5)
    answers = [model.encode_requests(request, s) for s in (states, moved)]
    assert torch.allclose(*answers, atol=1e-5)


def test_edge_counts_matter():
    model = encoder().eval()
    x = torch.randn(4, 6)
    few, many = (model.encode_tools(x, EDGES, edge_features(c))[-1] for c in (COUNTS, 9 * COUNTS))
    assert not torch.allclose(few, many)


def test_dropout_acts_between_layers_in_training_and_every_weight_learns():
    model = encoder(dropout=0.5)
    x, requests = torch.randn(4, 6), torch.randn(3, 6)
    states = model.encode_tools(x, EDGES, edge_features(COUNTS))
    again = model.encode_tools(x, EDGES, edge_features(COUNTS))
    assert not torch.allclose(states[-1], again[-1])
    (model.encode_requests(requests, states).square().sum() + states[-1].sum()).backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


def test_sizes_that_do_not_divide_by_the_heads_are_refused():
    with pytest.raises(ValueError, match="multiples of heads=4"):
        GToolEncoder(6, 10, 12)


def test_repr_shows_the_sizes():
    assert repr(encoder()) == "GToolEncoder(6, 8, 12, num_layers=3, heads=4)"
