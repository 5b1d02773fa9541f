"""Subtasks read from ControlLLM's form, and decompositions held against gold."""

from collections import Counter

import pytest

from models.subtasks import Subtask, f1, read_subtasks, score_decomposition, short_type
from models.toolset import Resource

ENTRY = {
    "id": 1,
    "description": "draw what is heard",
    "task": ["audio-perception", "image-generation"],
    "args": [{"type": "audio", "value": "x.wav"}],
    "returns": [{"type": "image"}],
    "dep": [0, -1],
}


def test_an_entry_is_read_as_it_stands():
    (one,) = read_subtasks([ENTRY])
    assert one == Subtask(
        id=1,
        description="draw what is heard",
        args=(Resource("x.wav", "audio"),),
        returns=("image",),
        domains=("audio-perception", "image-generation"),
        dependencies=(0,),
    )
    (plain,) = read_subtasks([{**ENTRY, "task": "general", "dep": [-1]}])
    assert (plain.domains, plain.dependencies) == (("general",), ())


@pytest.mark.parametrize(
    "entry",
    [
        *({k: v for k, v in ENTRY.items() if k != gone} for gone in ENTRY),
        {**ENTRY, "id": "one"},
        {**ENTRY, "args": [{"type": "audio"}]},
        {**ENTRY, "dep": None},
    ],
)
def test_an_entry_that_lacks_something_is_refused_with_its_place(entry):
    with pytest.raises(ValueError, match="expected subtask 1 to have id"):
        read_subtasks([ENTRY, entry])


def subtask(number, returns="image", args=(), dependencies=()):
    return Subtask(
        number, "", tuple(Resource(v, t) for v, t in args), (returns,), dependencies=dependencies
    )


CHAIN = (
    subtask(0, "mask", [("x.png", "image")]),
    subtask(1, "image", [("x.png", "image"), ("<GENERATED>-0", "mask")], (0,)),
)


@pytest.mark.parametrize(
    ("predicted", "gold", "score"),
    [
        (CHAIN, CHAIN, (1, 1, 1)),
        ((), (), (1, 1, 1)),
        ((), CHAIN, (0, 0, 0)),
        (CHAIN, (), (0, 0, 0)),
        (CHAIN[:1], CHAIN, (2 / 3, 4 / 7, 0)),
        ((CHAIN[0], CHAIN[0]), (CHAIN[0],), (2 / 3, 2 / 3, 1)),
    ],
    ids=["equal", "nothing", "nothing found", "nothing wanted", "half", "twice"],
)
def test_scores_are_f1_of_multisets(predicted, gold, score):
    found = score_decomposition(predicted, gold)
    assert (found.subtask, found.type, found.dependency) == pytest.approx(score)


def test_numbers_of_subtasks_do_not_matter():
    other = (
        subtask(7, "mask", [("x.png", "image")]),
        subtask(3, "image", [("<GENERATED>-7", "mask"), ("x.png", "image")], (7,)),
    )
    assert score_decomposition(other[::-1], CHAIN) == score_decomposition(CHAIN, CHAIN)


def test_free_text_does_not_matter_but_files_do():
    gold = (subtask(0, "image", [("x.png", "image"), ("a red hat", "text")]),)
    other = (subtask(0, "image", [("x.png", "image"), ("the hat", "text")]),)
    wrong = (subtask(0, "image", [("y.png", "image"), ("a red hat", "text")]),)
    assert score_decomposition(other, gold).subtask == 1
    assert score_decomposition(wrong, gold).subtask == 0
    assert score_decomposition(wrong, gold).type == 1


def test_a_wrong_dependency_costs_the_dependency_alone():
    loose = (CHAIN[0], Subtask(1, "", CHAIN[1].args, ("image",)))
    found = score_decomposition(loose, CHAIN)
    assert (found.subtask, found.type, found.dependency) == (1, 1, 0)


def test_a_dependency_on_a_subtask_that_is_not_there_is_none():
    dangling = (subtask(0, dependencies=(5,)),)
    assert score_decomposition(dangling, (subtask(0),)).dependency == 1


def test_types_are_compared_without_what_is_before_their_last_dot():
    assert [short_type(t) for t in ("image.Mask", "mask", "", "a.b.c")] == ["mask", "mask", "", "c"]
    assert score_decomposition((subtask(0, "image.mask"),), (subtask(0, "Mask"),)).subtask == 1


def test_f1_of_nothing_is_one_and_of_half_nothing_zero():
    assert f1(Counter(), Counter()) == 1
    assert f1(Counter("a"), Counter()) == 0
    assert f1(Counter("aab"), Counter("ab")) == pytest.approx(4 / 5)
