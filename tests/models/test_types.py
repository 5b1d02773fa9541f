"""Plans as JSON: written and read back, by keys or names, with arguments or without."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.types import Argument, Plan

JSON = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@st.composite
def plans(draw):
    size = draw(st.integers(1, 4))
    steps = []
    for at in range(size):
        earlier = st.none() if at == 0 else st.none() | st.integers(0, at - 1)
        step = []
        for name in draw(st.lists(st.sampled_from("abc"), unique=True)):
            source = draw(earlier)
            value = draw(JSON | st.none()) if source is None else None
            field = draw(st.sampled_from(["", "f"])) if source is not None else ""
            step.append((name, draw(st.sampled_from(["", "image"])), value, source, field))
        steps.append(tuple(step))
    keys = st.sampled_from(["s/a", "s/b/c", "t/a"])
    return (
        tuple(draw(keys) for _ in range(size)),
        tuple((s, t) for t in range(size) for s in range(t) if draw(st.booleans())),
        draw(st.floats(allow_nan=False, allow_infinity=False)),
        draw(st.text(max_size=5)),
        tuple(steps) if draw(st.booleans()) and any(steps) else (),
    )


@given(plans())
def test_a_plan_is_read_back_as_it_was_written(told):
    *others, steps = told
    plan = Plan(*others, tuple(tuple(Argument(*one) for one in step) for step in steps))
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_arguments_are_written_only_where_a_planner_fills_them():
    bare = Plan(("s/a",), (), 0.5, "gtool")
    assert bare.to_json() == {
        "tools": ["a"], "links": [], "score": 0.5, "planner": "gtool", "keys": ["s/a"],
    }  # fmt: skip
    empty = Plan(("s/a",), (), 0.5, "tog", ((),))
    assert empty.to_json()["arguments"] == [[]]


def test_an_argument_says_value_or_step():
    assert Argument("x", "image", "cat.png").to_json() == {
        "name": "x", "type": "image", "value": "cat.png",
    }  # fmt: skip
    assert Argument("x", "image", None, 2, "mask").to_json() == {
        "name": "x", "type": "image", "step": 2, "field": "mask",
    }  # fmt: skip
    assert Argument("x").to_json() == {"name": "x", "type": "", "value": None}
    assert not Argument("x").is_filled
    assert Argument("x", value=0).is_filled
    assert Argument("x", step=0).is_filled


def test_a_plan_by_hand_needs_its_tools_alone():
    assert Plan.from_json({"tools": ["a", "b"]}) == Plan(("a", "b"), (), 0.0, "by hand")
    by_keys = Plan.from_json({"tools": ["a"], "keys": ["s/a"], "arguments": [[{"name": "x"}]]})
    assert (by_keys.tools, by_keys.arguments) == (("s/a",), ((Argument("x"),),))


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"tools": 3},
        {"tools": ["a"], "links": [[0]]},
        {"tools": ["a"], "links": [["x", 0]]},
        {"tools": ["a"], "score": "high"},
        {"tools": ["a"], "arguments": [[{"value": 1}]]},
        {"tools": ["a"], "arguments": [["x"]]},
        {"tools": ["a"], "arguments": [[{"name": "x", "step": "first"}]]},
        {"tools": "resize"},
    ],
)
def test_what_is_no_plan_is_refused(wrong):
    with pytest.raises(ValueError, match="expected a plan with tools"):
        Plan.from_json(wrong)
