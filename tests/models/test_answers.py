"""JSON from a language model: checked, sent back with what is wrong, never replaced by a guess."""

import json

import pytest

from models.answers import ask_json
from models.errors import UnusableAnswer

SCHEMA = {
    "type": "object",
    "properties": {"score": {"enum": [1, 2, 3]}},
    "required": ["score"],
    "additionalProperties": False,
}
ASKED = [{"role": "system", "content": "Judge."}, {"role": "user", "content": "A tool."}]


class Model:
    """Gives the answers that it was told to give, and keeps what it was asked."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def __call__(self, messages, schema):
        assert schema is SCHEMA
        self.asked.append([dict(message) for message in messages])
        return self.answers.pop(0)


def test_a_valid_answer_is_asked_for_once():
    model = Model('{"score": 2}', "never asked for")
    assert ask_json(model, ASKED, SCHEMA) == {"score": 2}
    assert model.asked == [ASKED]


@pytest.mark.parametrize("fenced", ['```json\n{"score": 1}\n```', ' ```\n{"score": 1}``` \n'])
def test_a_code_fence_around_an_answer_is_no_fault(fenced):
    assert ask_json(Model(fenced), ASKED, SCHEMA) == {"score": 1}


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ("I would say 3.", "It is not JSON: Expecting value"),
        ("", "It is not JSON"),
        ('{"score": NaN}', "It is not JSON: NaN is no JSON value."),
        ("[" * 100_000, "It is not JSON"),
        ('{"score": 7}', "At $.score: 7 is not one of [1, 2, 3]."),
        ("{}", "At $: 'score' is a required property."),
        ('{"score": 1, "why": "so"}', "Additional properties are not allowed"),
    ],
)
def test_a_wrong_answer_is_sent_back_with_what_is_wrong(answer, complaint):
    model = Model(answer, '{"score": 3}')
    assert ask_json(model, ASKED, SCHEMA) == {"score": 3}
    again = model.asked[1]
    assert again[:2] == ASKED
    assert again[2] == {"role": "assistant", "content": answer[:4000] or "(nothing)"}
    assert complaint in again[3]["content"]
    assert json.dumps(SCHEMA) in again[3]["content"]


def test_the_second_wrong_answer_takes_the_place_of_the_first():
    model = Model("one", "two", '{"score": 1}')
    ask_json(model, ASKED, SCHEMA)
    assert [turn["content"] for turn in model.asked[2] if turn["role"] == "assistant"] == ["two"]


def test_after_the_last_try_the_error_quotes_the_answer_and_each_fault():
    model = Model("no", '{"score": 9}', '{"score": "' + "x" * 5000)
    with pytest.raises(UnusableAnswer) as caught:
        ask_json(model, ASKED, SCHEMA)
    message = str(caught.value)
    assert "of 3 answers" in message
    assert "Try 1: It is not JSON" in message
    assert "Try 2: At $.score: 9 is not one of" in message
    assert "Try 3: It is not JSON: Unterminated string" in message
    assert 'got \'{"score": "xxx' in message
    assert len(message) < 1200


def test_what_the_schema_cannot_say_is_checked_and_sent_back_too():
    model = Model('{"score": 1}', '{"score": 2}')
    found = ask_json(
        model, ASKED, SCHEMA, check=lambda value: ["Too low."] if value["score"] < 2 else []
    )
    assert found == {"score": 2}
    assert "- Too low." in model.asked[1][3]["content"]


def test_a_long_list_of_faults_is_cut():
    model = Model(*['{"score": 1}'] * 2)
    with pytest.raises(UnusableAnswer) as caught:
        ask_json(model, ASKED, SCHEMA, 2, check=lambda _: [f"Fault {n}." for n in range(99)])
    assert "Fault 4." in str(caught.value)
    assert "Fault 5." not in str(caught.value)


def test_less_than_one_try_is_refused():
    with pytest.raises(ValueError, match="at least one try, got 0"):
        ask_json(Model(), ASKED, SCHEMA, tries=0)
