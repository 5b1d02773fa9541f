import torch
from torch.nn.functional import normalize

from models.memory import RequestMemory

PLANS = torch.tensor([[0, 1, -1], [0, 2, 0], [1, -1, -1], [2, 1, 0], [0, -1, -1]])


def requests(rows=5):
    return normalize(torch.randn(rows, 6, generator=torch.Generator().manual_seed(0)), dim=1)


def test_scores_left_out_equal_those_of_a_memory_without_the_row():
    x = requests()
    left_out = RequestMemory(6, 3).fit(x, PLANS)
    for row in range(len(x)):
        rest = [i for i in range(len(x)) if i != row]
        memory = RequestMemory(6, 3)
        memory.fit(x[rest], PLANS[rest])
        assert torch.allclose(memory(x[row : row + 1])[0], left_out[row], atol=1e-5)


def test_a_remembered_request_gets_its_plan_back_when_the_ridge_is_small():
    x = requests()
    memory = RequestMemory(6, 3, ridge=1e-6)
    memory.fit(x, PLANS)
    inside, first = memory(x).chunk(2, dim=1)
    expected = torch.tensor([[1, 1, 0], [1, 0, 1], [0, 1, 0], [1, 1, 1], [1, 0, 0]])
    assert torch.allclose(inside, expected.float(), atol=1e-2)
    assert first.argmax(dim=1).tolist() == PLANS[:, 0].tolist()


def test_an_empty_memory_says_nothing():
    assert RequestMemory(6, 3)(requests(2)).tolist() == [[0.0] * 6] * 2


def test_repr_shows_the_sizes():
    assert repr(RequestMemory(6, 3, 4)) == "RequestMemory(4, num_tools=3)"
