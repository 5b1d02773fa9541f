"""Parameters of a JSON Schema, in the ways that tools write it."""

from warehouse.readers.mcp_tools import output_types_of
from warehouse.readers.schema import parameters_of


def told(schema):
    return [(p["name"], p["type"], p["required"]) for p in parameters_of(schema)]


def test_plain_properties_with_what_is_required():
    schema = {
        "type": "object",
        "properties": {"q": {"type": "string", "description": "what"}, "n": {"type": "integer"}},
        "required": ["q"],
    }
    assert parameters_of(schema) == (
        {"name": "q", "type": "string", "description": "what", "required": True},
        {"name": "n", "type": "integer", "description": "", "required": False},
    )


def test_several_types_are_joined_whatever_spells_them():
    schema = {
        "properties": {
            "a": {"type": ["string", "null"]},
            "b": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "c": {"enum": ["x", 1, None]},
            "d": {"type": "string", "nullable": True},
            "e": {"items": {}},
            "f": True,
        }
    }
    types = [kind for _, kind, _ in told(schema)]
    assert types == [
        "string|null",
        "integer|null",
        "string|integer|null",
        "string|null",
        "array",
        "",
    ]


def test_references_are_followed_also_in_circles():
    schema = {
        "$ref": "#/$defs/Input",
        "$defs": {
            "Input": {"properties": {"x": {"$ref": "#/$defs/X"}, "y": {"$ref": "#/$defs/Y"}}},
            "X": {"type": "object", "description": "an x", "properties": {}},
            "Y": {"$ref": "#/$defs/Y"},
        },
    }
    assert told(schema) == [("x", "object", False), ("y", "", False)]
    assert parameters_of(schema)[0]["description"] == "an x"
    assert parameters_of({"$ref": "#"}) == ()
    assert parameters_of({"anyOf": [{"$ref": "#"}]}) == ()


def test_alternatives_require_what_each_of_them_requires():
    one = {"properties": {"a": {}, "b": {}}, "required": ["a", "b"]}
    other = {"properties": {"a": {}, "c": {}}, "required": ["a"]}
    assert told({"oneOf": [one, other]}) == [("a", "", True), ("c", "", False), ("b", "", False)]
    assert told({"allOf": [one, other]}) == [("a", "", True), ("c", "", False), ("b", "", True)]


def test_what_is_no_schema_has_no_parameters():
    for schema in (None, {}, [], "x", {"properties": []}, {"properties": None, "required": "q"}):
        assert parameters_of(schema) == ()


def kinds(**properties):
    return [kind for _, kind, _ in told({"properties": properties})]


def test_a_format_that_no_standard_defines_is_a_type_of_the_sources_own():
    image = {"type": "string", "format": "image"}
    assert kinds(
        a=image,
        b={"type": ["string", "null"], "format": "image.mask"},
        c={**image, "nullable": True},
        d={"anyOf": [image, {"type": "string", "format": "uri"}]},
        e={"type": "STRING", "format": " Image "},
    ) == ["image", "image.mask|null", "image|null", "image|string", "Image"]


def test_a_list_of_own_types_names_them():
    image = {"type": "string", "format": "image"}
    schema = {
        "properties": {
            "a": {"type": "array", "items": {"$ref": "#/$defs/Image"}},
            "b": {"type": ["array", "null"], "items": {"anyOf": [image, {"type": "null"}]}},
            "c": {"items": {"type": "array", "items": image}},
            "d": {"type": "array", "items": {"type": "string", "format": "date"}},
            "e": {"type": "array", "items": {"type": "str"}},
            "f": {"type": "array", "items": [image]},
            "g": {"$ref": "#/$defs/Loop"},
        },
        "$defs": {"Image": image, "Loop": {"type": "array", "items": {"$ref": "#/$defs/Loop"}}},
    }
    assert [kind for _, kind, _ in told(schema)] == [
        "array[image]",
        "array[image]|null",
        "array[array[image]]",
        "array",
        "array",
        "array",
        "array",
    ]


def test_standard_formats_and_what_is_no_name_leave_a_string_a_string():
    formats = (
        "date-time", "Date-Time", "date_time", "date", "time", "duration", "email", "idn-email",
        "hostname", "ipv4", "IPv6", "uri", "uri-reference", "iri", "uuid", "json-pointer", "regex",
        "int32", "int64", "float", "double", "byte", "binary", "password", "decimal", "enum", "url",
        "object", "int", "list", "YYYY-MM-DD", "yyyyMMdd", "HH:mm", "a comma separated list",
        "^[a-z]+$", "", "  ", "x" * 65, 3, None, ["image"], {"image": 1},
    )  # fmt: skip
    for format in formats:
        assert kinds(a={"type": "string", "format": format}) == ["string"], format


def test_a_format_of_other_types_than_strings_says_nothing():
    assert kinds(
        a={"type": "integer", "format": "percent"},
        b={"type": "object", "format": "image"},
        c={"format": "image"},
        d={"enum": ["a"], "format": "image"},
    ) == ["integer", "object", "", "string"]


def test_results_have_own_types_too():
    image = {"type": "string", "format": "image"}
    assert output_types_of({"type": "object", "properties": {"image": image}}) == ("image:image",)
    assert output_types_of({"type": "array", "items": image}) == ("array[image]",)
    assert output_types_of(image) == ("image",)
