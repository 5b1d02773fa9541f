"""Items of the OpenAI Responses API: calls of all kinds, tools, streams, odd parts."""

import json

import pytest

from warehouse.readers.openai_responses import glued, pair_items
from warehouse.readers.reading import read_file, read_items
from warehouse.readers.stream import Item
from warehouse.records import Ignored, Rejected, ToolRecord, TrajectoryRecord

USER = {"role": "user", "content": "do it"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}


def call(call_id, name="a", arguments="{}", **more):
    told = {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
    return told | more


def back(call_id, output="ok", kind="function_call_output", **more):
    return {"type": kind, "call_id": call_id, "output": output, **more}


def read(*values):
    items = [Item(f"line {i}", json.dumps(v), v) for i, v in enumerate(values, 1)]
    return list(read_items(items))


def told(*items):
    pairing = pair_items(items)
    return [(c.name, c.turn, c.result, c.status) for c in pairing.calls], pairing.orphans


def test_parallel_calls_share_a_turn_until_a_result_or_a_thought():
    assert told(
        USER,
        REASONING,
        call("1", "a"),
        call("2", "b"),
        back("2", "two"),
        back("1", "one"),
        call("3", "c"),
        REASONING,
        call("4", "d"),
    )[0] == [
        ("a", 0, "one", "ok"),
        ("b", 0, "two", "ok"),
        ("c", 1, None, "no_result"),
        ("d", 2, None, "no_result"),
    ]


def test_ids_that_come_again_keep_each_result_28305():
    assert told(call("call_0"), back("call_0", "1"), call("call_0", "b"), back("call_0", "2"))[
        0
    ] == [("a", 0, "1", "ok"), ("b", 1, "2", "ok")]


def test_a_result_without_a_call_is_kept_aside_4006():
    assert told(call("1"), back("fc-9", "?")) == ([("a", 0, None, "no_result")], ["?"])


def test_an_mcp_call_has_result_and_error_inside():
    def mcp(**more):
        told = {"type": "mcp_call", "id": f"m{more}", "server_label": "wiki", "name": "ask"}
        return told | {"arguments": "{}", **more}

    failed = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "no"}]}
    pairing = pair_items(
        [
            mcp(output="found", error=None, status="completed"),
            mcp(output=None, error=failed, status="failed"),
            mcp(output='{"isError": true}', error=None),
            mcp(output=None, error=None),
            mcp(output=None, status="in_progress"),
        ]
    )
    assert [c.status for c in pairing.calls] == ["ok", "error", "error", "no_result", "incomplete"]
    assert {c.name for c in pairing.calls} == {"mcp__wiki__ask"}
    assert pairing.calls[1].error == "no"


def test_listed_tools_belong_to_their_server():
    listed = {
        "type": "mcp_list_tools",
        "id": "l",
        "server_label": "wiki",
        "tools": [{"name": "ask", "description": "d", "input_schema": {"properties": {"q": {}}}}],
    }
    grouped = {"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": "get"}]}
    value = {"input": [USER, listed, call("1")], "tools": [grouped, {"type": "web_search"}]}
    tools = [r for _, r in read(value) if isinstance(r, ToolRecord)]
    assert [(t.namespace, t.name, len(t.parameters)) for t in tools] == [
        ("crm", "get", 0),
        ("wiki", "ask", 1),
    ]
    (found,) = pair_items([call("1", "get", namespace="crm")]).calls
    assert found.name == "mcp__crm__get"


@pytest.mark.parametrize(
    ("item", "name", "arguments"),
    [
        (
            {"type": "web_search_call", "action": {"query": "q"}},
            "web_search",
            {"action": {"query": "q"}},
        ),
        ({"type": "file_search_call", "queries": ["q"]}, "file_search", {"queries": ["q"]}),
        ({"type": "image_generation_call", "result": "b64"}, "image_generation", {}),
        ({"type": "code_interpreter_call", "code": "1"}, "code_interpreter", {"code": "1"}),
    ],
)
@pytest.mark.parametrize(
    ("state", "status"),
    [
        ("completed", "ok"),
        ("failed", "error"),
        ("in_progress", "incomplete"),
        ("incomplete", "incomplete"),
    ],
)
def test_calls_of_the_service_have_the_status_of_the_item(item, name, arguments, state, status):
    (found,) = pair_items([{**item, "id": "x", "status": state}]).calls
    assert (found.name, found.arguments, found.status) == (name, arguments, status)


def test_calls_that_the_client_runs_wait_for_its_result():
    pairing = pair_items(
        [
            {
                "type": "shell_call",
                "call_id": "1",
                "action": {"commands": ["ls"]},
                "status": "completed",
            },
            {"type": "apply_patch_call", "call_id": "2", "operation": {"path": "x"}},
            {"type": "computer_call", "call_id": "3", "action": {"type": "click"}},
            {"type": "custom_tool_call", "call_id": "4", "name": "sh", "input": "ls"},
            back("1", [{"stdout": "a\n", "stderr": "b"}], "shell_call_output"),
            back("2", "no such file", "apply_patch_call_output", status="failed"),
            back("4", [{"type": "input_text", "text": "c"}], "custom_tool_call_output"),
        ]
    )
    assert [(c.name, c.result, c.status) for c in pairing.calls] == [
        ("shell", "a\n\nb", "ok"),
        ("apply_patch", "no such file", "error"),
        ("computer", None, "no_result"),
        ("sh", "c", "ok"),
    ]
    assert pairing.calls[3].arguments == {"input": "ls"}


def test_calls_of_a_program_know_it():
    pairing = pair_items(
        [
            {"type": "program", "id": "prog_1", "call_id": "p", "code": "f()"},
            call("1", caller={"type": "program", "caller_id": "prog_1"}),
            call("2", caller={"type": "direct"}),
            back("1"),
            back("p", "done", "program_output"),
        ]
    )
    assert [(c.name, c.parent) for c in pairing.calls] == [("program", None), ("a", 0), ("a", None)]
    assert pairing.calls[0].result == "done"


def test_odd_items_are_skipped_one_by_one_4118():
    items = [USER, "x", {"type": "hologram", "id": "h"}, {"type": "function_call", "call_id": "0"}]
    found = read({"input": [*items, call("1"), back("1")]})
    (record,) = [r for _, r in found if isinstance(r, TrajectoryRecord)]
    assert [(c.name, c.status) for c in record.calls] == [("a", "ok")]
    assert len([r for _, r in found if isinstance(r, Ignored)]) == 3
    assert not [r for _, r in found if isinstance(r, Rejected)]


# --- wrappers and streams -------------------------------------------------------------------------

ITEMS = [USER, call("1", arguments='{"n": 18446744073709551616}'), back("1")]


@pytest.mark.parametrize("wrap", [lambda i: [i], lambda i: [{"items": i}], lambda i: i])
def test_lists_and_single_items_are_one_conversation(wrap):
    ((name, record),) = read(*wrap(ITEMS))
    assert (name, record.request, len(record.calls)) == ("openai_responses", "do it", 1)
    assert record.calls[0].status == "ok"
    assert record.calls[0].arguments == '{"n": 18446744073709551616}'


def test_a_list_of_items_in_a_file_is_one_conversation(tmp_path):
    path = tmp_path / "items.json"
    path.write_text(json.dumps(ITEMS, indent=1))
    ((name, record),) = read_file(path)
    assert (name, record.request, len(record.calls)) == ("openai_responses", "do it", 1)


def streamed(*more):
    item = {"type": "function_call", "id": "fc_1", "call_id": "1", "name": "a", "arguments": ""}
    kind = "response.function_call_arguments.delta"
    return [
        {
            "type": "response.created",
            "response": {"id": "r", "status": "in_progress", "output": []},
        },
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": kind, "output_index": 0, "delta": '{"x"', "sequence_number": 2},
        {"type": kind, "output_index": 0, "delta": ": 1}", "sequence_number": 3},
        *more,
    ]


def test_deltas_are_glued_where_the_stream_breaks_off():
    ((name, record),) = read(streamed())
    assert name == "openai_responses"
    assert [(c.call_id, c.arguments) for c in record.calls] == [("1", '{"x": 1}')]
    (cut,) = [r for _, r in read(*streamed()[:3])]
    assert [(c.arguments, c.status) for c in cut.calls] == [('{"x"', "incomplete")]


def test_what_is_told_whole_beats_its_pieces():
    done = call("1", arguments='{"x": 2}', id="fc_1", status="completed")
    end = {"type": "response.output_item.done", "output_index": 0, "item": done}
    assert glued(streamed(end))["output"] == [done]
    other = {**done, "arguments": '{"x": 3}'}
    completed = {"id": "r", "status": "completed", "output": [other]}
    events = streamed(end, {"type": "response.completed", "response": completed})
    assert glued(events)["output"] == [other]


def test_items_that_the_api_lists_are_read_whatever_their_order():
    items = [USER, call("c1"), back("c1", "one"), call("c2"), back("c2", "two"), call("c3")]
    for data in (items, items[::-1]):
        ((name, record),) = read({"object": "list", "data": data, "has_more": False})
        assert name == "openai_responses"
        assert [(c.call_id, c.turn, c.result) for c in record.calls] == [
            ("c1", 0, "one"),
            ("c2", 1, "two"),
            ("c3", 2, None),
        ]
        assert record.request == "do it"


def test_a_shell_result_names_its_call_by_its_own_id():
    shell = {"type": "local_shell_call", "id": "ls", "call_id": "c", "action": {"type": "exec"}}
    output = {"type": "local_shell_call_output", "id": "c", "output": "done"}
    assert told(shell, output) == ([("local_shell", 0, "done", "ok")], [])


def test_a_request_of_an_image_alone_is_no_text():
    image = {"role": "user", "content": [{"type": "input_image", "image_url": "data:"}]}
    ((_, record),) = read([image, call("c"), back("c")])
    assert record.request == ""
