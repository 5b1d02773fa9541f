"""What a language model is asked: scores, subtasks, last words; what it says is checked."""

import json
import logging
import threading

import numpy as np
import pytest
import torch

from models.errors import UnusableAnswer
from models.llm_thoughts import LlmDecomposer, LlmScorer, digit_scorer, summarise_with
from models.subtasks import Subtask
from models.toolset import Resource
from tests.factories import tiny_llm

KEYS = ("a/blur", "a/count", "b/blur")
TEXTS = ("makes a picture soft", "count: counts things", "blurs\n a video")
BLUR = Subtask(0, "Blur the photo", (Resource("a.png", "image"),), ("image",))
COUNT = Subtask(1, "Count the cars", (), ("text",))


class Judge:
    """Scores by a table of words in the question."""

    def __init__(self, **scores):
        self.scores, self.asked, self.lock = scores, [], threading.Lock()

    def __call__(self, messages, schema):
        question = messages[-1]["content"]
        with self.lock:
            self.asked.append(question)
        tool = question.rpartition("Tool: ")[2]
        score = next((s for word, s in self.scores.items() if word in tool), 1)
        return json.dumps({"thought": "so", "score": score})


@pytest.mark.parametrize("parallel", [1, 8])
def test_every_tool_is_scored_by_what_the_model_says(parallel):
    judge = Judge(soft=5, video=4)
    (suits,) = LlmScorer(judge, KEYS, TEXTS, parallel=parallel)([BLUR])
    assert suits.tools.tolist() == [5.0, 1.0, 4.0]
    assert suits.pieces.tolist() == [[5.0, 1.0, 4.0]]
    assert "Task: Blur the photo\nIt is given: image\nIt asks for: image\nTool: " in judge.asked[0]
    assert {q.rpartition("Tool: ")[2] for q in judge.asked} == {
        "blur: makes a picture soft",
        "count: counts things",
        "blurs a video",
    }


def test_a_tool_is_asked_about_once_for_tasks_that_read_alike():
    judge = Judge(soft=5)
    scorer = LlmScorer(judge, KEYS, TEXTS)
    scorer([BLUR, BLUR])
    scorer([BLUR, COUNT])
    assert len(judge.asked) == 6
    assert len(set(judge.asked)) == 6


def test_only_wanted_tools_are_asked_about_and_others_get_the_lowest_score():
    judge = Judge(soft=5, counts=5)
    scorer = LlmScorer(judge, KEYS, TEXTS, wanted=lambda s: {0} if s is BLUR else ())
    blur, count = scorer([BLUR, COUNT])
    assert blur.tools.tolist() == [5.0, 1.0, 1.0]
    assert count.tools.tolist() == [1.0, 1.0, 1.0]
    assert len(judge.asked) == 1


def test_a_model_that_gives_no_score_is_an_error_and_other_questions_are_dropped():
    asked = []

    def complete(messages, schema):
        asked.append(1)
        return '{"thought": "", "score": 0}'

    scorer = LlmScorer(complete, [f"a/{i}" for i in range(50)], ["x"] * 50, parallel=1)
    with pytest.raises(UnusableAnswer, match=r"0 is not one of \[1, 2, 3, 4, 5\]"):
        scorer([BLUR])
    assert len(asked) < 20


def test_a_local_models_score_is_the_mean_of_the_digits_it_would_say():
    llm = tiny_llm()
    (suits,) = digit_scorer(llm, KEYS, TEXTS)([BLUR])
    assert suits.tools.shape == (3,)
    assert ((suits.tools > 1) & (suits.tools < 5)).all()
    from models.llm_thoughts import _JUDGE, _told, _tool_texts
    from models.prompt import frame

    cut = frame(llm, f"{_JUDGE}\nAnswer with the score alone, one digit.")
    for score, tool in zip(suits.tools, _tool_texts(KEYS, TEXTS), strict=True):
        ids = [*cut.before, *llm.tokens(_told(BLUR)), *llm.tokens(f"\nTool: {tool}\nScore?")]
        with torch.no_grad():
            row = llm.model(input_ids=torch.tensor([[*ids, *cut.after]])).logits[0, -1]
        said = row[[llm.tokens(d)[0] for d in "12345"]].softmax(0)
        assert score == pytest.approx(float(said @ torch.arange(1.0, 6.0)), abs=1e-4)


def test_scores_of_a_local_model_do_not_depend_on_what_is_read_beside(monkeypatch):
    llm = tiny_llm()
    together = digit_scorer(llm, KEYS, TEXTS)([BLUR, COUNT])
    monkeypatch.setattr("models.llm_thoughts._PASS_TOKENS", 1)
    alone = [digit_scorer(llm, KEYS, TEXTS)([one])[0] for one in (BLUR, COUNT)]
    for a, b in zip(together, alone, strict=True):
        assert np.allclose(a.tools, b.tools, atol=1e-4)


def test_a_local_model_reads_wanted_tools_only():
    (suits,) = digit_scorer(tiny_llm(), KEYS, TEXTS, wanted=lambda _: [1])([BLUR])
    assert suits.tools[[0, 2]].tolist() == [1.0, 1.0]
    assert suits.tools[1] > 1


# --- subtasks -------------------------------------------------------------------------------------

TYPES = ("image", "image.mask", "text", "category")
REQUEST = "Find the Red car in street.png and cut it out."
KNOWN = (Resource("street.png", "image"), Resource("mask.png", "image.mask"))


def part(number, *args, returns="image", dependencies=(), **more):
    return {
        "id": number,
        "description": f"do {number}",
        "dependencies": list(dependencies),
        "args": [{"type": kind, "value": value} for kind, value in args],
        "returns": returns,
        **more,
    }


class Cutter:
    """Gives one list of subtasks after another."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def __call__(self, messages, schema):
        self.asked.append((messages, schema))
        return json.dumps({"subtasks": self.answers.pop(0)})


def decompose(*answers, resources=KNOWN, domains=(), request=REQUEST):
    cutter = Cutter(*answers)
    return LlmDecomposer(cutter, TYPES, domains)(request, resources), cutter


def test_subtasks_come_with_resources_results_and_words():
    found, cutter = decompose(
        [
            part(0, ("image", "street.png"), ("category", "red car"), returns="image.mask"),
            part(1, ("image", "street.png"), ("image.mask", "<GENERATED>-0"), ("text", "cut out")),
        ]
    )
    assert [s.id for s in found] == [0, 1]
    assert found[0].args == (Resource("street.png", "image"), Resource("red car", "category"))
    assert found[1].args[1] == Resource("<GENERATED>-0", "image.mask", "0")
    assert found[1].dependencies == (0,)
    assert found[1].returns == ("image",)
    told = cutter.asked[0][0][-1]["content"]
    assert '{"value": "street.png", "type": "image"}' in told
    assert json.dumps(REQUEST) in told
    assert "Domains" not in told


def test_subtasks_stand_behind_those_they_depend_on_and_else_as_the_model_gave_them():
    found, _ = decompose(
        [part(5, ("image", "<GENERATED>-3")), part(4), part(3), part(0, dependencies=[4])]
    )
    assert [s.id for s in found] == [4, 3, 5, 0]


def test_domains_are_asked_for_where_the_catalogue_has_some():
    found, cutter = decompose([part(0, domains=["photo", "photo"])], domains=["photo", "sound"])
    assert found[0].domains == ("photo",)
    assert "Domains: photo, sound" in cutter.asked[0][0][-1]["content"]


def test_a_request_that_asks_for_nothing_has_no_subtasks():
    found, _ = decompose([])
    assert found == ()


def test_a_known_value_keeps_its_kind():
    found, _ = decompose([part(0, ("text", "7"))], resources=[Resource(7, "text")])
    assert found[0].args[0].value == 7


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ([part(0), part(0)], "different numbers from 0 on, not [0, 0]"),
        ([part(-1)], "different numbers from 0 on"),
        ([part(0, dependencies=[2])], "Subtask 0 depends on 2, which is no subtask"),
        ([part(0, dependencies=[1]), part(1, dependencies=[0])], "wait for each other"),
        ([part(0, ("image", "<GENERATED>-0"))], "Subtasks [0] wait for each other"),
        ([part(0, ("image", "<GENERATED>-9"))], "is the result of no subtask"),
        ([part(0), part(1, ("text", "<GENERATED>-0"))], "is of type image, not text"),
        ([part(0, ("image", "invented.png"))], '"invented.png" is neither known nor'),
        ([part(0, ("image", "eet.png"))], '"eet.png" is neither known nor'),
        ([part(0, ("text", "output.png"))], '"output.png" is neither known nor'),
        ([part(0, ("text", "https://llm.example/x"))], "is neither known nor"),
        ([part(0, ("category", "a bicycle"))], '"a bicycle" is neither known nor'),
        ([part(0, ("text", "GENERATED-0"))], "is neither known nor"),
        ([part(0, ("text", " "))], "has no value"),
        ([part(0, returns=[])], "[] is not one of"),
        ([part(0, returns="video")], "'video' is not one of"),
        ([part(0, ("sound", "street.png"))], "'sound' is not one of"),
        ([{**part(0), "description": " "}], "has no description"),
        ([{**part(0), "tool": "cutter"}], "'tool' was unexpected"),
    ],
)
def test_what_does_not_hold_together_is_sent_back(wrong, complaint):
    found, cutter = decompose(wrong, [part(0)])
    assert [s.description for s in found] == ["do 0"]
    assert complaint in cutter.asked[1][0][-1]["content"]


def test_a_file_that_only_the_request_names_is_not_invented():
    (subtask,), _ = decompose(
        [part(0, ("image", "pics/b.png"))], resources=(), request="Blur pics/b.png."
    )
    assert subtask.args == (Resource("pics/b.png", "image"),)


def test_a_kind_of_the_wanted_type_will_do():
    found, _ = decompose([part(0, returns="image.mask"), part(1, ("image", "<GENERATED>-0"))])
    assert found[1].dependencies == (0,)


def test_a_model_that_keeps_inventing_is_an_error():
    wrong = [part(0, ("image", "invented.png"))]
    with pytest.raises(UnusableAnswer, match=r"Try 3: Subtask 0: \"invented.png\" is neither"):
        decompose(wrong, wrong, wrong)


def test_no_types_are_refused():
    with pytest.raises(ValueError, match="expected the types of a catalogue, got none"):
        LlmDecomposer(Cutter(), ())


def test_a_local_model_writes_what_the_schema_allows():
    from models.json_decoding import write_json

    decomposer = LlmDecomposer(Cutter(), TYPES, ["photo"])
    text = write_json(tiny_llm(), [{"role": "user", "content": "x"}], decomposer._schema)
    for entry in json.loads(text)["subtasks"]:
        assert set(entry) == {"id", "description", "domains", "dependencies", "args", "returns"}


# --- last words -----------------------------------------------------------------------------------

TOLD = "Ok: 2 of 2 steps of plan 1 are ok, 0.5 s.\nResult of step 2: out/cut.png"


def summarise(*answers):
    said = [json.dumps({"summary": answer}) for answer in answers]
    asked = []

    def complete(messages, schema):
        asked.append(messages)
        return said.pop(0)

    return summarise_with(complete, "Cut out the car in street.png", TOLD), asked


def test_a_summary_in_the_words_of_the_model():
    text, asked = summarise(" The car of street.png was cut out. It is in out/cut.png. ")
    assert text == "The car of street.png was cut out. It is in out/cut.png."
    assert TOLD in asked[0][-1]["content"]


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ("It took 3 steps.", "3 is not in the report."),
        ("See out/mask.png.", "out/mask.png is not in the report."),
        ("See https://x.example/cut.png.", "https://x.example/cut.png is not in the report."),
        ("One. Two! Three?", "more than two sentences"),
        (" ", "The summary is empty."),
    ],
)
def test_a_summary_that_adds_facts_is_sent_back(wrong, complaint):
    text, asked = summarise(wrong, "It is in out/cut.png.")
    assert text == "It is in out/cut.png."
    assert complaint in asked[1][-1]["content"]


def test_without_a_usable_summary_the_report_stands(caplog):
    with caplog.at_level(logging.WARNING):
        text, asked = summarise("99", "98", "97")
    assert text == TOLD
    assert len(asked) == 3
    assert "No summary in words" in caplog.text
