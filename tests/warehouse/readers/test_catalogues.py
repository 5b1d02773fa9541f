"""Readers of OpenAPI documents and saved tool lists."""

import json
from pathlib import Path

import pytest

from tests.factories import write_lines
from warehouse.ingest import ingest_file
from warehouse.readers.mcp_tools import MORE_PAGES
from warehouse.readers.reading import read_file, read_items
from warehouse.readers.registry import shape_of
from warehouse.readers.stream import Item
from warehouse.records import DeclaredEdge, Ignored, Rejected, ToolRecord

SAMPLES = Path(__file__).resolve().parents[3].parent / "shared" / "samples"


@pytest.fixture
def samples():
    if not SAMPLES.is_dir():
        pytest.skip("the samples are not beside this checkout (../shared/samples)")
    return SAMPLES


def read(value, format="auto"):
    found = list(read_items([Item("document", json.dumps(value), value)], format))
    return [record for _, record in found]


def tools_of(records):
    return {record.name: record for record in records if isinstance(record, ToolRecord)}


def notes_of(records):
    return [record.what for record in records if isinstance(record, Ignored)]


def edges_of(records):
    return [(e.source_name, e.target_name) for e in records if isinstance(e, DeclaredEdge)]


def document(paths, **more):
    return {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "paths": paths, **more}


def operation(name=None, **more):
    return {**({"operationId": name} if name else {}), "responses": {}, **more}


# --- OpenAPI --------------------------------------------------------------------------------------


def test_the_samples_give_the_operations_that_they_state(samples):
    counts = {}
    for path in sorted((samples / "openapi").glob("*.json")):
        raw = json.loads(path.read_text())
        methods = {"get", "put", "post", "delete", "patch"}
        expected = sum(len(methods & set(item)) for item in raw["paths"].values())
        records = [record for _, record in read_file(path)]
        counts[path.name] = len(tools_of(records))
        assert counts[path.name] == expected
    assert counts == {
        "v2.0_json_petstore.json": 3,
        "v3.0_callback-example.json": 1,
        "v3.0_link-example.json": 6,
        "v3.0_petstore.json": 3,
    }


def test_links_of_responses_are_declared_edges(samples):
    records = [record for _, record in read_file(samples / "openapi/v3.0_link-example.json")]
    assert edges_of(records) == [
        ("getUserByName", "getRepositoriesByOwner"),
        ("getRepositoriesByOwner", "getRepository"),
        ("getRepository", "getPullRequestsByRepository"),
        ("getPullRequestsById", "mergePullRequest"),
    ]
    tools = tools_of(records)
    assert tools["getUserByName"].output_types == ("user", "username:string", "uuid:string")
    assert tools["getRepositoriesByOwner"].output_types == ("repository[]",)


def test_a_link_may_name_its_operation_by_place_or_one_that_is_not_there():
    links = {
        "next": {
            "operationRef": "#/paths/~1a~1{id}/get",
            "parameters": {"id": "$response.body#/id"},
        },
        "escaped": {"operationRef": "#/paths/~1a~1%7Bid%7D/get"},
        "lost": {"operationId": "nowhere"},
        "abroad": {"operationRef": "https://x.example/api.json#/paths/~1a/get"},
    }
    records = read(
        document(
            {
                "/a": {"post": operation("make", responses={"201": {"links": links}})},
                "/a/{id}": {"get": operation("see")},
            }
        )
    )
    assert edges_of(records) == [("make", "see"), ("make", "see")]
    assert [note for note in notes_of(records) if note.startswith("link")] == [
        "link lost of make: its operation is not in the document",
        "link abroad of make: its operation is not in the document",
    ]


def test_missing_and_repeated_operation_ids_give_stable_names():
    paths = {
        "/users/{id}": {"get": operation("same"), "delete": operation("same")},
        "/users": {"get": operation()},
        "/a/b": {"get": operation()},
        "/a_b": {"get": operation()},
        "/taken": {"get": operation("get_users")},
    }
    records = read(document(paths))
    names = list(tools_of(records))
    assert len(names) == 6
    assert {"same", "same_delete_users_id", "get_a_b"} <= set(names)
    # The name that the document gives wins over the one made of GET /users.
    assert "get_users" in names
    assert sum(name.startswith("get_users_") for name in names) == 1
    assert sum(name.startswith("get_a_b_") for name in names) == 1
    assert any("operationId same again" in note for note in notes_of(records))
    assert list(tools_of(read(document(paths)))) == names


def test_parameters_come_from_path_operation_and_body():
    value = document(
        {
            "/items/{id}": {
                "parameters": [
                    {"name": "id", "in": "path", "schema": {"type": "string"}},
                    {"name": "page", "in": "query", "schema": {"type": "integer"}},
                ],
                "put": operation(
                    "save",
                    summary="Save it",
                    parameters=[
                        {"$ref": "#/components/parameters/Page"},
                        {"name": "Accept", "in": "header", "schema": {"type": "string"}},
                    ],
                    requestBody={
                        "required": True,
                        "content": {
                            "application/xml": {"schema": {"type": "string"}},
                            "application/json": {"schema": {"$ref": "#/components/schemas/Item"}},
                        },
                    },
                ),
            }
        },
        components={
            "parameters": {
                "Page": {
                    "name": "page",
                    "in": "query",
                    "required": True,
                    "description": "which page",
                    "schema": {"type": "integer"},
                }
            },
            "schemas": {
                "Item": {
                    "type": "object",
                    "required": ["label"],
                    "properties": {
                        "created": {"type": "string", "readOnly": True},
                        "label": {"type": "string"},
                        "parent": {"$ref": "#/components/schemas/Item"},
                    },
                }
            },
        },
    )
    tool = tools_of(read(value))["save"]
    assert [(p["name"], p["type"], p["required"], p["in"]) for p in tool.parameters] == [
        ("id", "string", True, "path"),
        ("page", "integer", True, "query"),
        ("label", "string", True, "body"),
        ("parent", "object", False, "body"),
    ]
    assert tool.input_types == ("Item",)
    assert tool.description == "Save it"


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/components/schemas/A"},
        {"allOf": [{"$ref": "#/components/schemas/A"}]},
        {"$ref": "#/components/schemas/nowhere"},
        {"$ref": "other.yaml#/Thing"},
        True,
        None,
    ],
)
def test_odd_and_circular_references_lose_no_operation(schema):
    value = document(
        {
            "/a": {
                "post": operation(
                    "make",
                    requestBody={"content": {"application/json": {"schema": schema}}},
                    responses={"200": {"content": {"application/json": {"schema": schema}}}},
                )
            },
            "/b": {"$ref": "#/paths/~1b"},
            "/c": {"get": operation("see", parameters=[{"$ref": "#/components/parameters/P"}])},
        },
        components={
            "schemas": {
                "A": {"$ref": "#/components/schemas/B"},
                "B": {"allOf": [{"$ref": "#/components/schemas/A"}]},
            },
            "parameters": {"P": {"$ref": "#/components/parameters/P"}},
        },
    )
    records = read(value)
    assert set(tools_of(records)) == {"make", "see"}
    assert not [record for record in records if isinstance(record, Rejected)]
    if schema == {"$ref": "other.yaml#/Thing"}:
        assert any("other.yaml" in note for note in notes_of(records))


def test_swagger_2_has_bodies_and_forms_among_its_parameters():
    value = {
        "swagger": "2.0",
        "paths": {
            "/a": {
                "post": {
                    "operationId": "make",
                    "deprecated": True,
                    "parameters": [
                        {"name": "file", "in": "formData", "type": "string", "required": True},
                        {"name": "b", "in": "body", "schema": {"$ref": "#/definitions/B"}},
                    ],
                    "responses": {
                        "200": {"schema": {"type": "array", "items": {"type": "string"}}}
                    },
                }
            }
        },
        "definitions": {"B": {"type": "object", "properties": {"n": {"type": "integer"}}}},
    }
    tool = tools_of(read(value))["make"]
    assert [(p["name"], p["type"], p["in"]) for p in tool.parameters] == [
        ("file", "string", "formData"),
        ("n", "integer", "body"),
    ]
    assert tool.status == "deprecated"
    assert tool.output_types == ("array",)


def test_webhooks_and_callbacks_are_no_tools():
    hook = {"post": operation("called_by_server")}
    value = document(
        {"/a": {"post": operation("make", callbacks={"on": {"{$request.body#/url}": hook}})}},
        webhooks={"ping": hook},
    )
    records = read(value)
    assert list(tools_of(records)) == ["make"]
    assert any("webhooks" in note for note in notes_of(records))


def test_a_document_is_ingested_like_any_file(con, samples):
    report = ingest_file(con, samples / "openapi/v3.0_link-example.json", source="hub", delivery=1)
    assert (report.format, report.counts["tools"]["new"], report.declared_edges) == (
        "openapi",
        6,
        4,
    )


# --- saved tool lists -----------------------------------------------------------------------------


def test_the_mcp_samples_give_their_tools(samples):
    found = {}
    for path in sorted((samples / "mcp").glob("*.json")):
        records = [record for _, record in read_file(path)]
        if names := list(tools_of(records)):
            found[path.name] = names
    assert found == {
        "CreateMessageRequestParams_follow-up-with-tool-results.json": ["get_weather"],
        "ListToolsResultResponse_list-tools-result-response.json": ["get_weather"],
        "ListToolsResult_tools-list-with-cursor-and-ttl.json": ["get_weather"],
        "Tool_tool-with-composition-input-schema.json": ["find_resource"],
        "Tool_with-no-parameters.json": ["get_current_time"],
        "Tool_with-output-schema-for-structured-content.json": ["get_weather_data"],
        "tools_list_mcp_sdk_2.3.0_generated.json": ["get_weather", "delete_file"],
    }


SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}


@pytest.mark.parametrize(
    "value",
    [
        {"tools": [{"name": "find", "inputSchema": SCHEMA}]},
        {"jsonrpc": "2.0", "id": 1, "result": {"tools": [{"name": "find", "inputSchema": SCHEMA}]}},
        {"name": "find", "inputSchema": SCHEMA},
        [{"name": "find", "inputSchema": SCHEMA}],
        {"type": "function", "function": {"name": "find", "parameters": SCHEMA}},
        {"type": "function", "name": "find", "parameters": SCHEMA, "strict": True},
        {"name": "find", "description": "", "input_schema": SCHEMA},
        {"name": "find", "description": "d", "parameters": SCHEMA},
        {"tools": [{"functionDeclarations": [{"name": "find", "parameters": SCHEMA}]}]},
    ],
)
def test_every_kind_of_list_gives_the_tool(value, tmp_path):
    (tmp_path / "x.json").write_text(json.dumps(value))
    for records in (read(value), [record for _, record in read_file(tmp_path / "x.json")]):
        (tool,) = records
        assert tool.name == "find"
        assert [(p["name"], p["type"], p["required"]) for p in tool.parameters] == [
            ("q", "string", True)
        ]


@pytest.mark.parametrize(
    "value",
    [
        {
            "messages": [{"role": "user", "content": "q"}],
            "tools": [{"name": "a", "inputSchema": {}}],
        },
        {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "a", "arguments": {}}},
        {"jsonrpc": "2.0", "id": 1, "result": {"content": [], "isError": False}},
        {"name": "pkg", "version": "1", "parameters": {"type": "object"}, "scripts": {}},
        {"tools": ["a", "b"]},
        {"name": "q", "parameters": {"type": {"type": "string"}, "city": {"type": "string"}}},
    ],
)
def test_what_only_looks_like_a_list_is_left_to_others(value):
    shape = shape_of(value)
    assert shape is None or shape.format != "mcp_tools"


def test_a_page_says_that_more_follow_and_a_list_names_its_server():
    records = read(
        {"tools": [{"name": "a", "inputSchema": {}}], "nextCursor": "x", "server": "hub"}
    )
    assert notes_of(records) == [MORE_PAGES]
    assert tools_of(records)["a"].namespace == "hub"


def test_an_odd_tool_in_a_list_loses_no_other():
    odd = [{"type": "web_search"}, {"title": "nameless"}, {"name": "b"}]
    records = read({"tools": [{"name": "a", "inputSchema": SCHEMA}, *odd]})
    assert list(tools_of(records)) == ["a", "b"]
    assert notes_of(records) == ["a tool that its provider runs: web_search"]
    assert [r.raw for r in records if isinstance(r, Rejected)] == ['{"title": "nameless"}']
    assert len(read([odd[0], {"type": "function", "name": "c", "parameters": SCHEMA}])) == 2
    assert read({"tools": []}) == []


def test_output_schemas_are_types():
    def outputs(schema):
        (tool,) = read({"name": "a", "inputSchema": {}, "outputSchema": schema})
        return tool.output_types

    fields = {"t": {"type": "number"}, "u": {"type": ["string", "null"]}}
    assert outputs({"type": "object", "properties": fields}) == ("t:number", "u:string|null")
    assert outputs({"type": "array", "items": {}}) == ("array",)
    assert outputs({}) == ()


def test_nestful_specifications_are_still_read_as_such(tmp_path):
    line = {"name": "q", "description": "", "parameters": {"type": {"type": "string"}}}
    (found,) = read_file(write_lines(tmp_path / "spec.jsonl", [line]))
    assert found[0] == "nestful"
    assert [p["name"] for p in found[1].parameters] == ["type"]
