"""Parameters of a JSON Schema, in the ways that tools write it."""

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
