import pytest
import torch
from torch.nn.functional import normalize

from models.memory import PAD, RequestMemory

PLANS = torch.tensor(
    [[0, 1, -1], [0, 2, 0], [1, -1, -1], [2, 1, 0], [0, -1, -1], [3, 3, -1], [1, 3, -1]]
)
GROUPS = ("a", "b", "a", "c", "b", "d", "a")
ROWS = len(GROUPS)


def requests(rows=ROWS, seed=0):
    return normalize(torch.randn(rows, 6, generator=torch.Generator().manual_seed(seed)), dim=1)


def fitted(x, plans, groups, most=99, **kwargs):
    memory = RequestMemory(6, 5, **kwargs)
    return memory, memory.fit(x, plans, groups, most)


def shorn(recalled, row=0):
    """Similarities and plans of the true neighbours of one request."""
    pairs = zip(recalled.similarity[row].tolist(), recalled.plans[row].tolist(), strict=True)
    return [(pytest.approx(s, abs=1e-6), plan) for s, plan in pairs if s > -2]


@pytest.mark.parametrize("most", [99, 4])
@pytest.mark.parametrize("neighbours", [2, 32])
def test_a_row_hears_what_a_memory_fitted_without_its_group_says(most, neighbours):
    x = requests()
    memory, left_out = fitted(x, PLANS, GROUPS, most, neighbours=neighbours)
    kept = range(ROWS) if most > ROWS else [0, 2, 4, 6]
    assert torch.equal(memory.requests, x[list(kept)])
    for row, group in enumerate(GROUPS):
        rest = [i for i in kept if GROUPS[i] != group]
        other, _ = fitted(x[rest], PLANS[rest], ["any"] * len(rest), neighbours=neighbours)
        alone = other(x[row : row + 1])
        assert torch.allclose(alone.relevance[0], left_out.relevance[row], atol=1e-5)
        assert torch.allclose(alone.first[0], left_out.first[row], atol=1e-5)
        assert [
            (s, plan)
            for s, plan in zip(
                left_out.similarity[row].tolist(), left_out.plans[row].tolist(), strict=True
            )
            if s > -2
        ] == shorn(alone)


def test_where_all_are_of_one_group_nothing_is_recalled():
    _, left_out = fitted(requests(), PLANS, ["one"] * ROWS)
    assert torch.allclose(left_out.relevance, torch.zeros(ROWS, 5), atol=1e-5)
    assert (left_out.similarity == -2).all()
    assert (left_out.plans == PAD).all()


def test_the_names_and_the_order_of_groups_never_matter():
    x, order = requests(), torch.tensor([6, 2, 0, 5, 1, 3, 4])
    _, left_out = fitted(x, PLANS, GROUPS)
    _, turned = fitted(x[order], PLANS[order], [GROUPS[i] + "!" for i in order.tolist()])
    for part, other in zip(left_out, turned, strict=True):
        assert torch.allclose(part[order].double(), other.double(), atol=1e-5)


def test_a_remembered_request_gets_its_plan_back_when_the_ridge_is_small():
    x = requests()
    memory, _ = fitted(x, PLANS, GROUPS, ridge=1e-6)
    recalled = memory(x)
    inside = torch.zeros(ROWS, 5)
    for row, plan in enumerate(PLANS.tolist()):
        inside[row, [tool for tool in plan if tool >= 0]] = 1.0
    assert torch.allclose(recalled.relevance, inside, atol=1e-2)
    assert recalled.first.argmax(dim=1).tolist() == PLANS[:, 0].tolist()
    assert torch.equal(recalled.plans[:, 0], PLANS)
    assert torch.allclose(recalled.similarity[:, 0], torch.ones(ROWS))


def test_the_nearest_come_first_and_their_plans_with_them():
    x = requests()
    memory, _ = fitted(x, PLANS, GROUPS, neighbours=3)
    new = requests(4, seed=1)
    recalled = memory(new)
    for row in range(4):
        nearest = sorted(range(ROWS), key=lambda i: -float(new[row] @ x[i]))[:3]
        assert torch.equal(recalled.plans[row], PLANS[nearest])
        assert recalled.similarity[row].tolist() == pytest.approx((x[nearest] @ new[row]).tolist())


def test_of_equally_near_requests_the_earlier_is_recalled():
    x = requests(1).repeat(5, 1)
    memory, _ = fitted(x, PLANS[:5], list("abcde"), neighbours=4)
    assert torch.equal(memory(x[:1]).plans[0], PLANS[:4])


def test_a_batch_recalls_as_each_request_alone():
    memory, _ = fitted(requests(), PLANS, GROUPS)
    new = requests(4, seed=1)
    together = memory(new)
    for row in range(4):
        for part, alone in zip(together, memory(new[row : row + 1]), strict=True):
            assert torch.allclose(part[row].double(), alone[0].double(), atol=1e-6)


def test_tools_that_no_plan_holds_get_nothing():
    memory, left_out = fitted(requests(), PLANS, GROUPS)
    assert memory.used.tolist() == [0, 1, 2, 3]
    assert not memory(requests(3, seed=1)).relevance[:, 4].any()
    assert not left_out.first[:, 4].any()


def test_a_memory_takes_stored_weights():
    memory, _ = fitted(requests(), PLANS, GROUPS)
    stored = RequestMemory(6, 5, ROWS, 4, 3)
    stored.load_state_dict(memory.state_dict())
    for part, other in zip(memory(requests(2, 1)), stored(requests(2, 1)), strict=True):
        assert torch.equal(part, other)


def test_an_empty_memory_says_nothing():
    recalled = RequestMemory(6, 3)(requests(2))
    assert recalled.relevance.tolist() == recalled.first.tolist() == [[0.0] * 3] * 2
    assert recalled.similarity.tolist() == [[-2.0]] * 2
    assert (recalled.plans == PAD).all()


def test_repr_shows_the_sizes():
    assert repr(RequestMemory(6, 3, 4)) == "RequestMemory(4, num_tools=3)"
