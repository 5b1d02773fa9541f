"""Each reader on the records of its format, and on the oddities that people have reported."""

import json

import pytest

from warehouse.readers.openai_chat import pair_calls
from warehouse.readers.reading import read_items
from warehouse.readers.registry import shape_of
from warehouse.readers.stream import Item
from warehouse.records import DeclaredEdge, Rejected, ToolRecord, TrajectoryRecord


def read(value, format="auto"):
    shape = shape_of(value, format)
    assert shape is not None, "no reader takes the record"
    return shape.format, list(shape.read(Item("line 1", json.dumps(value), value)))


def read_one(value, format="auto"):
    name, records = read(value, format)
    (record,) = records
    return name, record


# --- normalised -----------------------------------------------------------------------------------


def test_normalised_statuses_come_from_observation_and_error():
    _, record = read_one(
        {
            "id": 7,
            "request": "r",
            "steps": [
                {"tool": "a", "observation": "fine"},
                {"tool": "b", "observation": "ERROR", "error": "ERROR"},
                {"tool": "c"},
            ],
            "meta": {"timestamp": "2024-03-23 23:37:01"},
        }
    )
    assert record.native_id == "7"
    assert [c.status for c in record.calls] == ["ok", "error", "no_result"]
    assert record.started_at.isoformat() == "2024-03-23T23:37:01"


def test_a_link_to_a_step_that_is_not_there_is_rejected():
    _, record = read_one(
        {"request": "r", "steps": [{"tool": "a"}], "links": [{"source": 0, "target": 3}]}
    )
    assert isinstance(record, Rejected)
    assert "0 -> 3" in record.reason


# --- TaskBench ------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["task", "tool"])
@pytest.mark.parametrize("as_text", [False, True])
def test_both_spellings_of_taskbench_give_the_same_plan_245(prefix, as_text):
    nodes = [{"task": "a", "arguments": ["x.jpg"]}, {"task": "b", "arguments": ["<node-0>"]}]
    links = [{"source": "a", "target": "b"}]
    dump = json.dumps if as_text else (lambda value: value)
    name, record = read_one(
        {
            "id": "1",
            "instruction": "do it",
            f"{prefix}_nodes": dump(nodes),
            f"{prefix}_links": dump(links),
        }
    )
    assert name == "taskbench"
    assert [c.name for c in record.calls] == ["a", "b"]
    assert record.links == [(0, 1)]
    assert record.links_kind == "gold"


def test_node_references_that_count_from_one_are_understood():
    nodes = [{"task": "a", "arguments": ["x"]}, {"task": "b", "arguments": ["<node-1>"]}]
    _, record = read_one({"id": "1", "user_request": "r", "task_nodes": nodes, "task_links": []})
    assert record.links == [(0, 1)]


def test_a_tool_that_is_used_twice_links_forwards():
    nodes = [{"task": name} for name in ("a", "b", "a")]
    links = [{"source": "a", "target": "b"}, {"source": "b", "target": "a"}]
    _, record = read_one({"id": "1", "user_request": "r", "task_nodes": nodes, "task_links": links})
    assert record.links == [(0, 1), (1, 2)]


def test_taskbench_nodes_that_are_missing_are_rejected_with_the_reason():
    _, record = read_one({"id": "1", "instruction": "r", "task_nodes": None})
    assert isinstance(record, Rejected)
    assert "task_nodes" in record.reason


def test_tool_desc_gives_tools_types_and_declared_edges():
    _, records = read(
        {
            "nodes": [{"id": "a", "desc": "d", "input-type": ["text"], "output-type": ["image"]}],
            "links": [{"source": "a", "target": "a", "type": "image"}],
        }
    )
    assert records == [
        ToolRecord("a", "d", input_types=("text",), output_types=("image",)),
        DeclaredEdge("a", "a", "image"),
    ]


# --- NESTFUL --------------------------------------------------------------------------------------


def test_nestful_references_become_dataflow_links_and_var_result_is_no_call():
    name, record = read_one(
        {
            "input": "find a car",
            "output": [
                {"name": "a", "arguments": {"q": "x"}, "label": "var1"},
                {"name": "b", "arguments": {"id": "$var1.data[0].id$"}, "label": "var2"},
                {"name": "var_result", "arguments": {"out": "$var2$"}},
            ],
        }
    )
    assert name == "nestful"
    assert [c.name for c in record.calls] == ["a", "b"]
    assert record.links == [(0, 1)]
    assert {c.status for c in record.calls} == {"no_result"}


def test_nestful_with_responses_knows_success_and_failure():
    _, record = read_one(
        {
            "input": "r",
            "output": [
                {"name": "a", "arguments": {}, "label": "var1", "errors": [], "response": {"x": 1}},
                {
                    "name": "b",
                    "arguments": {},
                    "label": "var2",
                    "errors": ["boom"],
                    "response": None,
                },
            ],
        }
    )
    assert [c.status for c in record.calls] == ["ok", "error"]


@pytest.mark.parametrize("field", ["query_parameters", "arguments"])
def test_both_nestful_specifications_give_parameters(field):
    spec = {"q": {"type": "string", "description": "what", "required": True}}
    _, record = read_one({"name": "a", "description": "d", field: spec})
    assert record.parameters == (
        {"name": "q", "type": "string", "description": "what", "required": True},
    )


# --- OpenAI chat ----------------------------------------------------------------------------------


def call(call_id, name, arguments="{}"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def assistant(*calls):
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def result(call_id, content):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def told(messages):
    calls, orphans = pair_calls(messages)
    return [(c.name, c.turn, c.result) for c in calls], orphans


def test_ids_that_come_again_keep_each_result_28305():
    calls, orphans = told(
        [
            assistant(call("x:1", "a")),
            result("x:1", "one"),
            assistant(call("x:1", "b")),
            result("x:1", "two"),
        ]
    )
    assert calls == [("a", 0, "one"), ("b", 1, "two")]
    assert orphans == []


def test_two_calls_with_one_id_and_two_results_are_two_calls_2055():
    calls, _ = told(
        [
            assistant(call("i", "a", '{"x":1}'), call("i", "a", '{"x":2}')),
            result("i", "1"),
            result("i", "2"),
        ]
    )
    assert calls == [("a", 0, "1"), ("a", 0, "2")]


def test_equal_calls_with_one_id_are_as_many_as_their_results():
    twice = assistant(call("i", "a"), call("i", "a"))
    assert len(told([twice, result("i", "1"), result("i", "2")])[0]) == 2
    assert told([twice, result("i", "1")])[0] == [("a", 0, "1")]  # meridian 528: blocks come twice


def test_an_id_given_again_leaves_exactly_one_call_unanswered_11722():
    messages = []
    for i in range(26):
        messages += [
            assistant(call(f"c{min(i, 24)}", "a", json.dumps({"i": i}))),
            result(f"c{min(i, 24)}", "ok"),
        ]
    messages.append(assistant(call("c24", "a", '{"i": 26}')))
    calls, _ = pair_calls(messages)
    assert len(calls) == 27
    assert [c.status for c in calls].count("no_result") == 1
    assert calls[-1].status == "no_result"


def test_parallel_calls_of_one_tool_are_paired_by_id_92():
    calls, _ = told(
        [
            assistant(call("1", "s", '"x"'), call("2", "s", '"y"')),
            result("2", "Y"),
            result("1", "X"),
        ]
    )
    assert calls == [("s", 0, "X"), ("s", 0, "Y")]


def test_a_result_without_a_call_is_kept_aside_and_makes_nothing_4006():
    assert told([assistant(call("1", "a")), result("fc-9", "?")]) == ([("a", 0, None)], ["?"])


def test_an_answer_in_an_earlier_turn_does_not_serve_a_later_call_664():
    calls, _ = told(
        [
            assistant(call("a", "t")),
            result("a", "1"),
            assistant(call("b", "u")),
            result("b", "2"),
            assistant(call("a", "t")),
        ]
    )
    assert [r for _, _, r in calls] == ["1", "2", None]


def test_old_function_calls_and_text_parts_are_read():
    messages = [
        {"role": "assistant", "content": "", "function_call": {"name": "a", "arguments": "{}"}},
        {"role": "function", "name": "a", "content": [{"type": "text", "text": "done"}]},
    ]
    assert told(messages)[0] == [("a", 0, "done")]


@pytest.mark.parametrize(
    "wrap",
    [lambda m: m, lambda m: {"messages": m}, lambda m: {"task_id": 3, "trial": 1, "traj": m}],
)
def test_every_wrapper_of_messages_is_recognised(wrap):
    messages = [
        {"role": "user", "content": "hello"},
        assistant(call("1", "a")),
        result("1", "Error: no"),
    ]
    name, record = read_one(wrap(messages))
    assert name == "openai"
    assert record.request == "hello"
    assert len(record.calls) == 1


def test_tau_bench_names_its_trajectories_and_its_errors():
    messages = [
        {"role": "user", "content": "hello"},
        assistant(call("1", "a")),
        result("1", "Error: no"),
    ]
    _, record = read_one({"task_id": 3, "trial": 1, "reward": 0.0, "traj": messages})
    assert record.native_id == "task3-trial1"
    assert record.calls[0].status == "error"


def test_a_request_response_pair_brings_its_tools():
    value = {
        "request": {
            "messages": [{"role": "user", "content": "q"}],
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "a",
                        "parameters": {"properties": {"x": {"type": "string"}}, "required": ["x"]},
                    },
                }
            ],
        },
        "response": {"choices": [{"message": assistant(call("1", "a"))}]},
    }
    items = [Item("line 1", json.dumps(value), value)]
    (_, tool), (name, record) = read_items(items)
    assert name == "openai"
    assert isinstance(record, TrajectoryRecord)
    assert tool.parameters[0] == {
        "name": "x",
        "type": "string",
        "description": "",
        "required": True,
    }


def test_a_strange_object_has_no_reader():
    assert shape_of({"kind": "x", "what": 1}) is None
    assert shape_of([1, 2]) is None
    assert shape_of("text") is None
