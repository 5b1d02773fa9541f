"""IR, NR, HR, CR and SE: each changed alone by the smallest plan that can."""

import json

import pytest

from models.fields import Field
from models.solution_metrics import (
    MEASURES,
    GoldSolution,
    Part,
    judge,
    read_gold,
    summarise,
)
from models.toolset import Resource, Signature
from models.types import Argument, Plan


def signature(takes, returns):
    return Signature(
        tuple(Field(n, (t,) if t else (), "value", True) for n, t in takes.items()),
        tuple(Field("", (t,), "value") for t in returns),
    )


SIGNATURES = {
    "t/segment": signature({"image": "image"}, ["image.mask"]),
    "t/cut": signature({"image": "image", "mask": "mask"}, ["image"]),
    "t/blur": signature({"image": "image"}, ["image"]),
    "t/sharpen": signature({"image": "image"}, ["image"]),
    "t/caption": signature({"image": "image"}, ["text"]),
    "t/draw": signature({"prompt": "text"}, ["image"]),
}
KNOWN = [Resource("cat.png", "image"), Resource("dog.png", "image")]


def plan(*steps):
    """Steps are (tool, argument, ...); a number is the step whose output is taken."""
    arguments = tuple(
        tuple(
            Argument(f.name, "|".join(f.types), step=value)
            if isinstance(value, int)
            else Argument(f.name, "|".join(f.types), value)
            for f, value in zip(SIGNATURES[f"t/{tool}"].takes, values, strict=True)
        )
        for tool, *values in steps
    )
    return Plan(tuple(f"t/{tool}" for tool, *_ in steps), (), 0.0, "", arguments)


def gold(*parts, allowed=()):
    return GoldSolution("g", tuple(parts), frozenset(f"t/{tool}" for tool in allowed))


def part(*ways, files=(), after=()):
    return Part(tuple(files), tuple(tuple(f"t/{tool}" for tool in way) for way in ways), after)


def judged(steps, wanted, known=KNOWN):
    """The letters of the measures that are true."""
    found = judge(plan(*steps), wanted, SIGNATURES, known)
    assert tuple(found) == MEASURES
    return {name for name, is_true in found.items() if is_true}


CUT = [("segment", "cat.png"), ("cut", "cat.png", 0)]
WANTED = gold(part(["segment", "cut"], files=["cat.png"]))


def test_a_plan_that_serves_has_all_that_is_good_and_nothing_else():
    assert judged(CUT, WANTED) == {"NR", "CR", "SE"}


def test_a_tool_too_many_changes_ir_alone():
    assert judged([*CUT, ("blur", "cat.png")], WANTED) == {"IR", "NR", "CR", "SE"}


def test_a_tool_that_is_allowed_is_not_irrelevant():
    wanted = gold(*WANTED.parts, allowed=["blur"])
    assert judged([*CUT, ("blur", "cat.png")], wanted) == {"NR", "CR", "SE"}


def test_a_tool_too_few_takes_nr_and_with_it_se():
    assert judged([("segment", "cat.png")], WANTED) == {"CR"}


def test_a_file_that_nobody_named_is_made_up():
    """Its type is not known, so the argument has not the declared one either."""
    assert judged([("blur", "cow.png")], gold(part(["blur"]))) == {"NR", "HR"}


def test_a_resource_left_open_is_made_up_and_has_no_type():
    assert judged([("blur", None)], gold(part(["blur"]))) == {"NR", "HR"}


def test_any_words_will_do_for_a_text():
    wanted = gold(part(["draw"]))
    assert judged([("draw", "a purple cow")], wanted) == {"NR", "CR", "SE"}
    assert judged([("draw", None)], wanted) == {"NR"}


def test_a_known_file_of_another_type_changes_cr():
    known = [Resource("cat.png", "image"), Resource("cat.wav", "audio")]
    wanted = gold(part(["blur"]))
    assert judged([("blur", "cat.wav")], wanted, known) == {"NR"}


def test_an_output_of_another_type_changes_cr():
    wanted = gold(part(["caption", "blur"]))
    assert judged([("caption", "cat.png"), ("blur", 0)], wanted) == {"NR"}


def test_the_part_of_an_output_that_is_named_has_to_fit():
    two = Signature((), (Field("picture", ("image",), "value"), Field("said", ("text",), "value")))
    signatures = {**SIGNATURES, "t/both": two}
    for field, fits in [("picture", True), ("said", False), ("", True)]:
        one = Plan(
            ("t/both", "t/blur"), (), 0.0, "", ((), (Argument("image", "image", None, 0, field),))
        )
        assert judge(one, gold(part(["both", "blur"])), signatures, [])["CR"] is fits


def test_what_does_not_flow_into_the_last_tool_does_not_serve():
    known = [*KNOWN, Resource("m.png", "image.mask")]
    aside = [("segment", "cat.png"), ("cut", "cat.png", "m.png")]
    assert judged(aside, WANTED, known) == {"NR", "CR"}


def test_work_on_another_file_does_not_serve():
    other = [("segment", "dog.png"), ("cut", "dog.png", 0)]
    assert judged(other, WANTED) == {"NR", "CR"}


def test_any_of_the_ways_serves():
    wanted = gold(part(["segment", "cut"], ["blur"], files=["cat.png"]))
    assert judged(CUT, wanted) == judged([("blur", "cat.png")], wanted) == {"NR", "CR", "SE"}


def test_a_part_after_another_has_to_work_on_its_result():
    wanted = gold(part(["blur"], files=["cat.png"]), part(["caption"], after=(0,)))
    assert judged([("blur", "cat.png"), ("caption", 0)], wanted) == {"NR", "CR", "SE"}
    assert judged([("blur", "cat.png"), ("caption", "cat.png")], wanted) == {"NR", "CR"}


def test_a_result_may_reach_the_next_part_through_other_steps():
    wanted = gold(part(["blur"], files=["cat.png"]), part(["caption"], after=(0,)))
    through = [("blur", "cat.png"), ("sharpen", 0), ("caption", 1)]
    assert judged(through, wanted) == {"IR", "NR", "CR", "SE"}


def test_parts_may_be_told_in_another_order_than_they_depend():
    wanted = gold(part(["caption"], after=(1,)), part(["blur"], files=["cat.png"]))
    assert judged([("blur", "cat.png"), ("caption", 0)], wanted) == {"NR", "CR", "SE"}
    assert judged([("blur", "cat.png"), ("caption", "cat.png")], wanted) == {"NR", "CR"}


def test_two_parts_served_alike_need_two_steps():
    wanted = gold(part(["blur"], files=["cat.png"]), part(["blur"], files=["dog.png"]))
    both = [("blur", "dog.png"), ("blur", "cat.png")]
    assert judged(both, wanted) == {"NR", "CR", "SE"}
    assert judged(both[:1], wanted) == {"NR", "CR"}
    assert judged([both[0], both[0]], wanted) == {"NR", "CR"}


def test_the_step_that_one_part_could_take_is_left_to_the_part_that_needs_it():
    wanted = gold(part(["blur"], ["sharpen"]), part(["blur"]))
    assert judged([("blur", "cat.png"), ("sharpen", "cat.png")], wanted) == {"NR", "CR", "SE"}


def test_a_way_with_a_tool_twice_needs_it_twice():
    wanted = gold(part(["blur", "blur", "caption"]))
    once = [("blur", "cat.png"), ("caption", 0)]
    twice = [("blur", "cat.png"), ("blur", 0), ("caption", 1)]
    assert judged(once, wanted) == {"CR"}
    assert judged(twice, wanted) == {"NR", "CR", "SE"}


@pytest.mark.parametrize("empty", [None, plan()])
def test_an_empty_plan_has_no_fault_and_serves_nothing(empty):
    assert judge(empty, WANTED, SIGNATURES, KNOWN) == dict.fromkeys(MEASURES, False)


def test_a_plan_without_arguments_leaves_them_all_open():
    bare = Plan(("t/blur",), (), 0.0, "gtool")
    found = judge(bare, gold(part(["blur"])), SIGNATURES, KNOWN)
    assert found == {"IR": False, "NR": True, "HR": True, "CR": False, "SE": False}


def test_gold_is_read_with_parts_by_their_ids():
    line = {
        "id": 7,
        "parts": [
            {"id": "b", "files": ["x.png"], "any_of": [["segment", "cut"]], "after": []},
            {"id": "a", "files": [], "any_of": [["blur"]], "after": ["b"]},
        ],
        "allowed": ["caption"],
    }
    read = read_gold(json.loads(json.dumps(line)), "t")
    assert read == GoldSolution(
        "7",
        (
            Part(("x.png",), (("t/segment", "t/cut"),)),
            Part((), (("t/blur",),), (0,)),
        ),
        frozenset({"t/caption"}),
    )
    assert read.tools == {"t/segment", "t/cut", "t/blur", "t/caption"}


def test_shares_are_over_all_rows_and_of_se_by_group():
    good = judge(plan(*CUT), WANTED, SIGNATURES, KNOWN)
    none = judge(None, WANTED, SIGNATURES, KNOWN)
    found = summarise([good, none, none, good], {"easy": [0, 1, 3], "hard": []})
    assert found == {
        "IR": 0, "NR": 0.5, "HR": 0, "CR": 0.5, "SE": 0.5, "SE easy": 2 / 3, "SE hard": 0,
    }  # fmt: skip
    assert summarise([]) == dict.fromkeys(MEASURES, 0)
