import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.fields import (
    Field,
    endings,
    parse_entry,
    parse_type,
    read_returns,
    read_takes,
    words_of,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("image", (("image",), "value")),
        ("image.mask", (("image.mask",), "value")),
        ("list[image]", (("image",), "array")),
        ("array of image", (("image",), "array")),
        ("image[]", (("image",), "array")),
        ("Optional[Image]", (("Image",), "value")),
        ("image | None", (("image",), "value")),
        ("image or video", (("image", "video"), "value")),
        ("dict[str, image]", (("image",), "object")),
        ("Literal['red', 'blue']", ((), "value")),
        ("string", ((), "value")),
        ("__string", ((), "value")),
        ("STRING", ((), "value")),
        ("['integer', 'string']", ((), "value")),
        ("string|array", ((), "value")),
        ("array|null", ((), "array")),
        ("object", ((), "object")),
        ("DATE (YYYY-MM-DD)", (("DATE",), "value")),
        ("画像", (("画像",), "value")),
        ("", ((), "value")),
        ("???", ((), "value")),
        ("[[[", ((), "value")),
        ("whatever the user said before", ((), "value")),
    ],
)
def test_types_are_read_out_of_expressions(text, expected):
    assert parse_type(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("image", Field("", ("image",), "value")),
        ("string", Field("", (), "value")),
        ("coordinates:object", Field("coordinates", (), "object")),
        ("phone_number:", Field("phone_number", (), "value")),
        ("api:Api", Field("api", ("Api",), "value")),
        ("dest_id:['integer', 'string']", Field("dest_id", (), "value")),
        ("dc:title:string", Field("dc:title", (), "value")),
        ("AWS::S3::Bucket", Field("", ("AWS::S3::Bucket",), "value")),
        (":string", Field("", (), "value")),
    ],
)
def test_an_entry_is_a_type_or_a_name_with_one(text, expected):
    assert parse_entry(text) == expected


def test_parameters_with_missing_keys_and_odd_values():
    parameters = (
        '[{"name": "a"}, {"type": "image"}, {"name": null, "type": 3}, "b", '
        '{"name": "c", "type": "string", "required": "yes"}, {"name": "d", "required": true}]'
    )
    assert read_takes(parameters, "[]") == (
        Field("a", (), "value"),
        Field("", ("image",), "value"),
        Field("c", (), "value"),
        Field("d", (), "value", True),
    )


def test_input_types_that_a_parameter_has_are_not_taken_twice():
    parameters = '[{"name": "picture", "type": "image", "required": false}]'
    assert read_takes(parameters, '["image", "mask", "string", 7]') == (
        Field("picture", ("image",), "value", False),
        Field("", ("mask",), "value"),
    )


@pytest.mark.parametrize("text", ["", "null", "{}", "[", "[null, 3, {}]"])
def test_texts_that_are_no_lists_of_types_give_nothing(text):
    assert read_takes(text, text) == ()
    assert read_returns(text) == ()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("originSkyId", "origin sky id"),
        ("hotel_ids", "hotel id"),
        ("hotelIDs", "hotel id"),
        ("DBInstanceClass", "db instance class"),
        ("cities", "city"),
        ("status", "status"),
        ("address", "address"),
        ("größeCm", "grösse cm"),
        ("___", ""),
    ],
)
def test_words_are_the_same_in_any_spelling(name, words):
    assert words_of(name) == tuple(words.split())


def test_endings_are_proper():
    assert list(endings(("a", "b", "c"))) == [("b", "c"), ("c",)]
    assert list(endings(("a",))) == []


@settings(max_examples=60, deadline=None)
@given(st.text("aB_[]()|:.,' ø?\"{", max_size=30))
def test_any_text_can_be_read(text):
    types, kind = parse_type(text)
    assert kind in {"value", "array", "object"}
    assert all(words_of(name) and len(name.split()) <= 3 for name in types)
    parse_entry(text)
    words_of(text)
    read_takes(text, text)
