"""JSON by constrained decoding: valid whatever the model, and as the model wants where it may."""

import json
import unicodedata

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from models.answers import ask_json
from models.errors import PromptTooLong
from models.json_decoding import local_chat, write_json
from models.llm import FrozenLLM, Reader
from models.spelling import START, Spelling
from tests.factories import byte_tokenizer, tiny_llm, tiny_lm

ASK = [{"role": "user", "content": "go on"}]
LLMS = [tiny_llm("llama"), tiny_llm("gemma3", "no system"), tiny_llm("qwen3", None)]


def required(**properties):
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def ranges(low, high):
    return st.tuples(st.integers(low, high), st.integers(low, high)).map(sorted)


texts = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=6
)  # quotes, backslashes and control characters among them
strings = ranges(0, 6).map(lambda b: {"type": "string", "minLength": b[0], "maxLength": b[1]})
integers = ranges(-3000, 3000).map(lambda b: {"type": "integer", "minimum": b[0], "maximum": b[1]})
options = st.lists(texts, min_size=1, max_size=5).map(lambda values: {"enum": values})
numbers = st.lists(st.integers(-200, 200), min_size=1, max_size=5).map(lambda v: {"enum": v})
simple = st.one_of(
    strings,
    integers,
    options,
    numbers,
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.just({"type": ["string", "null"], "maxLength": 3}),
    st.builds(lambda a, b: {"anyOf": [a, b]}, integers, options),
    st.builds(lambda a: {"anyOf": [a, {"type": "null"}, {"type": "boolean"}]}, strings),
    texts.map(lambda value: {"const": value}),
)
schemas = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.dictionaries(texts, inner, max_size=3).map(lambda p: required(**p)),
        st.builds(
            lambda items, bounds: {
                "type": "array", "items": items, "minItems": bounds[0], "maxItems": bounds[1],
            },
            inner,
            ranges(0, 3),
        ),
    ),
    max_leaves=5,
)  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(schema=schemas, which=st.integers(0, len(LLMS) - 1), said=texts)
def test_whatever_the_model_the_answer_parses_and_is_valid(schema, which, said):
    text = write_json(LLMS[which], [{"role": "user", "content": said}], schema)
    Draft202012Validator(schema).validate(json.loads(text))


def test_the_same_question_gets_the_same_answer():
    schema = required(a={"type": "string", "maxLength": 20}, b={"type": "integer"})
    assert write_json(LLMS[0], ASK, schema) == write_json(LLMS[0], ASK, schema)


class Wanting:
    """A tiny model that wants to go on with one text, wherever its prompt ends."""

    def __init__(self, wish):
        self.llm = FrozenLLM(tiny_lm(), byte_tokenizer("system"), name="wanting", digest="")
        self.ids = self.llm.tokens(wish)
        self.passes = 0
        self.start = None

    def __enter__(self):
        read = Reader.read

        def wanting(reader, pieces, wanted=None):
            made, logits = read(reader, pieces, wanted)
            if logits.size(0):
                self.passes += 1
                end = reader.ends[made[-1]]
                self.start = end if self.start is None else self.start
                logits = torch.zeros_like(logits)
                place = end - self.start + self.offset
                if place < len(self.ids):
                    logits[:, self.ids[place]] = 1.0
            return made, logits

        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(Reader, "read", wanting)
        return self

    def __exit__(self, *_):
        self._patch.undo()

    def write(self, schema, offset):
        """``offset``: characters that are written before the first choice."""
        self.offset = offset
        return write_json(self.llm, ASK, schema)


@pytest.mark.parametrize(
    ("schema", "wish", "offset"),
    [
        (required(name={"type": "string"}), '{"name": "a boat, 3 m"}', 10),
        (required(name={"type": "string"}), '{"name": "Zürich, 東京 😀"}', 10),
        (required(name={"enum": ["car", "card", "cat"]}), '{"name": "card"}', 12),
        (required(name={"enum": ["car", "card", "cat"]}), '{"name": "car"}', 12),
        (required(n={"type": "integer", "minimum": -50, "maximum": 50}), '{"n": -37}', 6),
        (required(n={"type": "integer"}), '{"n": 5}', 6),
        (required(n={"enum": [1, 12, 123]}), '{"n": 12}', 7),
        (required(x={"type": ["string", "null"]}), '{"x": null}', 6),
        (required(x={"type": ["string", "null"]}), '{"x": "no"}', 6),
        (required(b={"type": "boolean"}), '{"b": false}', 6),
        (
            required(l={"type": "array", "items": {"type": "string"}}),
            '{"l": ["a", "bc", ""]}',
            7,
        ),
        (required(l={"type": "array", "items": {"type": "integer"}}), '{"l": []}', 7),
    ],
)
def test_what_the_model_wants_is_written_where_the_schema_allows_it(schema, wish, offset):
    with Wanting(wish) as model:
        assert model.write(schema, offset) == wish


def test_what_the_schema_leaves_no_choice_about_costs_no_pass():
    schema = required(
        kind={"const": "fixed"},
        one={"enum": ["only"]},
        nothing={"type": "null"},
        pair={
            "type": "array", "items": {"type": "integer", "minimum": 7, "maximum": 7},
            "minItems": 2, "maxItems": 2,
        },
    )  # fmt: skip
    with Wanting("") as model:
        text = model.write(schema, 0)
        assert model.passes == 0
    assert text == '{"kind": "fixed", "one": "only", "nothing": null, "pair": [7, 7]}'


def test_the_tail_that_options_share_alone_costs_no_pass():
    with Wanting('{"x": "weather"}') as model:
        assert model.write(required(x={"enum": ["weather", "time of day"]}), 7) == (
            '{"x": "weather"}'
        )
        assert model.passes == 1


def test_a_string_that_does_not_end_is_ended_at_its_bound():
    with Wanting('{"x": "' + "la" * 500) as model:
        text = model.write(required(x={"type": "string", "maxLength": 9}), 7)
    assert text == '{"x": "lalalalal"}'


def test_properties_that_are_not_required_are_left_out_and_order_is_that_of_properties():
    schema = {
        "type": "object",
        "properties": {k: {"const": k} for k in ("b", "maybe", "a")},
        "required": ["a", "b"],
    }
    assert write_json(LLMS[0], ASK, schema) == '{"b": "b", "a": "a"}'


def test_no_string_holds_quotes_escapes_control_characters_or_halves_of_characters():
    spelling = Spelling(LLMS[0])
    for byte in range(256):
        token = next(t for t, text in spelling.written.items() if text == bytes([byte]))
        (found,) = (spelling.content(START).ids == token).sum().reshape(1).tolist()
        character = chr(byte)
        plain = byte < 0x80 and unicodedata.category(character) != "Cc" and character not in '"\\'
        assert found == (plain or 0xC2 <= byte <= 0xF4)
    for character in ("é", "東", "😀", "\u0800", "\ud7ff", "\U0010ffff"):
        within = START
        for byte in character.encode():
            content = spelling.content(within)
            place = [spelling.written[int(t)] for t in content.ids].index(bytes([byte]))
            within = content.ends[place]
        assert within == START
    assert b"\xa0" not in {
        spelling.written[int(t)] for t in spelling.content((2, 0x80, 0x9F)).ids
    }  # a surrogate


def test_a_vocabulary_without_single_bytes_writes_whole_characters_only():
    spelling = Spelling(LLMS[0])
    spelling._splits = False
    spelling._contents.clear()
    assert all(spelling.written[int(t)][0] < 0x80 for t in spelling.content(START).ids)


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ({"type": "number"}, r"type 'number' at \$"),
        ({"type": "string", "pattern": "a+"}, "keyword 'pattern'"),
        ({}, "no type"),
        (required(a=True), r"got True at \$\.a"),
        ({"enum": []}, "an empty enum"),
        ({"enum": [{}]}, "option {}"),
        ({"type": "string", "enum": [1]}, "option 1"),
        ({"type": "array"}, "an array without items"),
        ({"type": "object", "required": ["a"]}, "required property 'a'"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "bounds 3 and 2"),
        (required(a={"type": "array", "items": {"type": "set"}}), r"type 'set' at \$\.a\[\]"),
        ({"anyOf": [{"type": "string"}, {"enum": ["a"]}]}, "begin with different characters"),
        ({"type": "string", "anyOf": [{"type": "string"}]}, "anyOf beside type"),
    ],
)
def test_a_schema_that_cannot_be_written_is_refused_before_any_pass(schema, complaint):
    with pytest.raises(ValueError, match=complaint):
        write_json(LLMS[0], ASK, schema)


def test_a_conversation_longer_than_the_model_reads_is_refused_with_what_to_do():
    with pytest.raises(PromptTooLong, match=r"4096 tokens for 'tiny-llama'.*chat_url"):
        write_json(LLMS[0], [{"role": "user", "content": "x" * 5000}], {"type": "boolean"})


def test_an_answer_can_be_sent_back_to_a_local_model():
    complaints = iter([["Another one, please."], []])
    value = ask_json(
        local_chat(LLMS[0]), ASK, required(x={"enum": [1, 2]}), check=lambda _: next(complaints)
    )
    assert value["x"] in (1, 2)
