"""Session files of SWE-agent, OpenHands (V0 and V1) and Harbor's ATIF."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warehouse.readers.reading import read_file, read_items
from warehouse.readers.stream import Item
from warehouse.records import Ignored, Rejected, ToolRecord, TrajectoryRecord

SAMPLES = Path(__file__).parents[3].parent / "shared" / "samples"
needs_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason="the sample files are not here")


def read(format, *values):
    items = [Item(f"line {n}", json.dumps(v), v) for n, v in enumerate(values, start=1)]
    found = list(read_items(items))
    assert {name for name, _ in found} <= {format}, "another reader takes the record"
    return [record for _, record in found]


def trajectories(format, *values):
    return [r for r in read(format, *values) if isinstance(r, TrajectoryRecord)]


def one(format, *values):
    (record,) = trajectories(format, *values)
    return record


def told(record):
    return [(c.name, c.turn, c.arguments, c.status, c.result) for c in record.calls]


# --- SWE-agent ------------------------------------------------------------------------------------


def step(action, observation="", **more):
    return {"action": action, "observation": observation, "response": "", "thought": "", **more}


def traj(steps, history=(), **info):
    return {"environment": "e", "trajectory": steps, "history": list(history), "info": info}


def test_the_first_word_of_an_action_is_its_tool():
    record = one(
        "swe_agent",
        traj(
            [step("ls -a\n", "."), step("(cd x && ls)", ""), step("", "no action"), step("submit")],
            exit_status="submitted",
        ),
    )
    assert told(record) == [
        ("ls", 0, {"command": "ls -a\n"}, "ok", "."),
        ("bash", 1, {"command": "(cd x && ls)"}, "ok", ""),
        ("submit", 3, {"command": "submit"}, "ok", ""),
    ]
    assert record.meta == {"environment": "e", "exit_status": "submitted"}


def acted(action, name, arguments, call_id, **more):
    calls = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    ]
    message = {"role": "assistant", "content": "", "action": action, "tool_calls": calls}
    return {**message, "message_type": "action", **more}


def test_the_history_tells_the_tool_calls_behind_the_actions():
    history = [
        {"role": "user", "content": "shown", "message_type": "demonstration", "is_demo": True},
        acted("open a.py", "shown_open", "{}", "d", is_demo=True),
        {"role": "user", "content": "fix it", "message_type": "observation"},
        acted("open a.py", "open", '{"path": "a.py"}', "c1"),
        {"role": "tool", "content": "text", "tool_call_ids": ["c1"]},
        acted("open a.py", "open", '{"path": "b.py"}', "c2"),
    ]
    record = one("swe_agent", traj([step("open a.py", "text"), step("open a.py", "more")], history))
    assert told(record) == [
        ("open", 0, '{"path": "a.py"}', "ok", "text"),
        ("open", 1, '{"path": "b.py"}', "ok", "more"),
    ]
    assert [c.call_id for c in record.calls] == ["c1", "c2"]
    assert record.request == "fix it"


@pytest.mark.parametrize(
    ("status", "last"),
    [
        ("submitted", "ok"),
        ("exit_cost", "ok"),
        ("exit_command_timeout", "error"),
        ("submitted (exit_total_execution_time)", "error"),
    ],
)
def test_only_an_exit_status_about_the_command_fails_the_last_call(status, last):
    steps = [step("ls", "Error: text only"), step("python x.py", "..."), step(status, "Exited")]
    record = one(
        "swe_agent", traj(steps[:2] + steps[2:] * status.startswith("exit"), (), exit_status=status)
    )
    assert [c.status for c in record.calls] == ["ok", last]


def test_demonstrations_count_only_where_there_is_nothing_else():
    demo = [
        {"role": "user", "content": "shown", "message_type": "observation", "is_demo": True},
        acted("ls", "bash", "{}", "d", is_demo=True),
        {"role": "tool", "content": "x", "tool_call_ids": ["d"], "is_demo": True},
    ]
    run = [
        {"role": "user", "content": "do", "message_type": "observation"},
        acted("pwd", "bash", "{}", "r"),
    ]
    assert [c.call_id for c in one("swe_agent", {"history": demo}).calls] == ["d"]
    assert [c.call_id for c in one("swe_agent", {"history": demo + run}).calls] == ["r"]


def test_the_instance_is_the_trajectorys_id():
    config = {"problem_statement": {"id": "repo__1"}, "agent": {"model": {"name": "m"}}}
    record = one("swe_agent", {**traj([step("ls")]), "replay_config": json.dumps(config)})
    assert (record.native_id, record.meta["model"]) == ("repo__1", "m")


def mini(*messages, version="1.1", **more):
    opening = [{"role": "system", "content": "You are"}, {"role": "user", "content": "fix it"}]
    return {
        "trajectory_format": f"mini-swe-agent-{version}",
        "messages": [*opening, *messages],
        "info": {"exit_status": "Submitted"},
        **more,
    }


def block(command, language="bash"):
    return {"role": "assistant", "content": f"THOUGHT: so\n\n```{language}\n{command}\n```"}


def test_mini_swe_agent_1_runs_the_only_block_of_a_message():
    record = one(
        "swe_agent",
        mini(
            block("ls"),
            {"role": "user", "content": "x.py"},
            {"role": "assistant", "content": "```bash\na\n```\n```bash\nb\n```"},
            {"role": "user", "content": "give exactly one"},
            block("echo DONE"),
            {"role": "user", "content": "diff"},
            version="1",
            instance_id="i-1",
        ),
    )
    assert (record.request, record.native_id) == ("fix it", "i-1")
    assert [(c.name, c.turn, c.arguments, c.result) for c in record.calls] == [
        ("bash", 0, {"command": "ls"}, "x.py"),
        ("bash", 2, {"command": "echo DONE"}, "diff"),
    ]


def test_mini_swe_agent_2_lists_its_commands_whichever_api_made_them():
    def acts(message, *ids, at):
        actions = [{"command": "ls", **({"tool_call_id": i} if i else {})} for i in ids]
        return {**message, "extra": {"actions": actions, "timestamp": at}}

    sent = {"function": {"name": "bash", "arguments": '{"command": "ls"}'}, "id": "a"}
    record = one(
        "swe_agent",
        mini(
            acts({"role": "assistant", "tool_calls": [sent]}, "a", "b", at=1.5),
            {"role": "tool", "tool_call_id": "b", "content": "late"},
            {
                "role": "tool",
                "tool_call_id": "a",
                "content": "",
                "extra": {"exception_info": "timed out", "timestamp": 2.5},
            },
            acts({"object": "response", "output": []}, "c", at=3.0),
            {"type": "function_call_output", "call_id": "c", "output": "one"},
            acts({"role": "assistant", "content": "x"}, None, at=4.0),
            {"role": "exit", "content": "diff", "extra": {"exit_status": "Submitted"}},
        ),
    )
    assert [(c.call_id, c.turn, c.status, c.result) for c in record.calls] == [
        ("a", 0, "error", ""),
        ("b", 0, "ok", "late"),
        ("c", 1, "ok", "one"),
        (None, 2, "ok", "diff"),
    ]
    assert (record.calls[0].error, record.calls[0].ended_at) == ("timed out", 2_500_000_000)


def test_mini_swe_agent_out_of_steps_leaves_its_last_command_unanswered():
    ended = {"role": "exit", "content": "", "extra": {"exit_status": "LimitsExceeded"}}
    assert [c.status for c in one("swe_agent", mini(block("ls"), ended)).calls] == ["no_result"]


@needs_samples
def test_sample_trajectories_of_swe_agent():
    ((_, new),) = read_file(SAMPLES / "swe_agent/function_calling_simple.traj")
    ((_, old),) = read_file(SAMPLES / "swe_agent/humanevalfix-python-0_v0x.traj")
    assert [c.name for c in new.calls] == ["find_file", "open", "edit", "bash", "submit"]
    assert [c.name for c in old.calls] == ["ls", "open", "edit", "python", "submit"]
    assert {c.status for c in (*new.calls, *old.calls)} == {"ok"}


# --- OpenHands V0 ---------------------------------------------------------------------------------


def v0(number, **more):
    return {"id": number, "timestamp": f"2026-01-01T00:00:{number:02}.5", "source": "agent", **more}


def meta(call_id, name="execute_bash", arguments="{}", answer="r1"):
    function = {"name": name, "arguments": arguments}
    message = {"tool_calls": [{"id": call_id, "function": function}]}
    response = {"id": answer, "choices": [{"message": message}]}
    return {
        "tool_call_metadata": {
            "function_name": name,
            "tool_call_id": call_id,
            "model_response": response,
            "total_calls_in_response": 1,
        }
    }


V0 = [
    v0(0, action="system", args={"tools": [{"type": "function", "function": {"name": "finish"}}]}),
    {**v0(1, action="message", args={"content": "do it"}), "source": "user"},
    v0(4, action="run", args={"command": "ls"}, **meta("c1", arguments='{"command": "ls"}')),
    v0(5, action="run", args={"command": "pwd"}, **meta("c2", arguments='{"command": "pwd"}')),
    v0(6, observation="run", cause=5, content="/x", success=True, **meta("c2")),
    v0(7, observation="run", cause=4, content="no ls", success=False, **meta("c1")),
    v0(9, action="read", args={"path": "a", "thought": "hm"}),
    v0(11, observation="error", cause=9, content="no such file"),
    v0(12, action="hologram", args={}),
    v0(13, observation="run", cause=99, content="lost"),
    v0(14, action="finish", args={}, **meta("c3", "finish", answer="r2")),
]


def test_v0_events_pair_by_cause_and_share_the_answers_turn():
    records = read("openhands", *V0)
    assert ToolRecord("finish") in records
    assert Ignored("action hologram") in records
    (record,) = (r for r in records if isinstance(r, TrajectoryRecord))
    assert told(record) == [
        ("execute_bash", 0, '{"command": "ls"}', "error", "no ls"),
        ("execute_bash", 0, '{"command": "pwd"}', "ok", "/x"),
        ("read", 1, {"path": "a"}, "error", "no such file"),
        ("finish", 2, "{}", "no_result", None),
    ]
    assert (record.request, record.orphans, record.flags) == ("do it", ["lost"], ("no_zone",))
    assert record.calls[1].ended_at - record.calls[1].started_at == 1_000_000_000


def test_what_a_user_ran_by_hand_is_neither_a_call_nor_an_orphan():
    ran = {**v0(1, action="run", args={"command": "ls"}), "source": "user"}
    record = one("openhands", ran, v0(2, observation="run", cause=1, content="x"))
    assert (record.calls, record.orphans) == ([], [])


def test_v0_events_in_a_list_or_in_pairs_say_the_same():
    pairs = [V0[:2], *([event] for event in V0[2:])]
    expected = one("openhands", *V0)
    assert one("openhands", V0).calls == expected.calls
    evaluated = one("openhands", {"instance_id": "i1", "history": pairs})
    assert (evaluated.calls, evaluated.native_id) == (expected.calls, "i1")


def test_v0_files_written_again_longer_or_in_another_order_keep_their_id():
    short, long = one("openhands", *V0[:5]), one("openhands", *reversed(V0))
    assert short.native_id == long.native_id
    assert long == one("openhands", *V0)


# --- OpenHands V1 ---------------------------------------------------------------------------------


def v1(name, kind, second, source="agent", **more):
    time = f"2026-01-01T00:00:{second:02}.000001"
    return {"id": name, "kind": kind, "timestamp": time, "source": source, **more}


def action(name, second, call_id, tool="terminal", answer="r1", **more):
    call = {"id": call_id, "name": tool, "arguments": '{"command": "ls"}'}
    more = {"action": {"kind": "TerminalAction"}, "llm_response_id": answer, **more}
    return v1(
        name, "ActionEvent", second, tool_name=tool, tool_call_id=call_id, tool_call=call, **more
    )


def observed(name, second, action_id, call_id, text="done", is_error=False):
    content = [{"type": "text", "text": text}]
    return v1(
        name,
        "ObservationEvent",
        second,
        source="environment",
        action_id=action_id,
        tool_call_id=call_id,
        tool_name="terminal",
        observation={"content": content, "is_error": is_error, "kind": "TerminalObservation"},
    )


def asked(second=1, text="do it"):
    message = {"role": "user", "content": [{"type": "text", "text": text}]}
    return v1("u", "MessageEvent", second, source="user", llm_message=message)


V1 = [
    v1("sys", "SystemPromptEvent", 0, tools=[{"kind": "FileEditorTool", "description": "edits"}]),
    asked(),
    action("a1", 2, "c1"),
    action("a2", 2, "c2"),
    observed("o2", 3, "a2", "c2", "two"),
    observed("o1", 4, "a1", "c1", "one", is_error=True),
    v1("x", "HologramEvent", 4),
    action("a3", 5, "c1", answer="r2"),
    v1("rej", "UserRejectObservation", 6, action_id="a3", tool_call_id="c1", rejection_reason="no"),
    action("a4", 7, "c4", answer="r3", action=None),
    v1("err", "AgentErrorEvent", 8, tool_call_id="c4", tool_name="terminal", error="unknown tool"),
    action("a5", 9, "c5", answer="r4"),
]


def test_v1_events_pair_by_action_and_unknown_kinds_are_ignored_4118():
    records = read("openhands", *V1)
    assert ToolRecord("file_editor", "edits") in records
    assert Ignored("event of kind HologramEvent") in records
    (record,) = (r for r in records if isinstance(r, TrajectoryRecord))
    assert [(c.call_id, c.turn, c.status, c.result) for c in record.calls] == [
        ("c1", 0, "error", "one"),
        ("c2", 0, "ok", "two"),
        ("c1", 1, "error", "no"),
        ("c4", 2, "error", "unknown tool"),
        ("c5", 3, "no_result", None),
    ]
    assert [c.flags for c in record.calls] == [(), (), ("rejected",), ("not_executed",), ()]
    assert (record.request, record.flags) == ("do it", ("no_zone",))


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_order_and_repetition_of_v1_events_do_not_matter(data):
    expected = one("openhands", *V1)
    repeated = data.draw(st.permutations(V1)) + data.draw(st.lists(st.sampled_from(V1), max_size=4))
    assert one("openhands", *repeated) == expected


def test_v1_events_that_name_their_conversation_meet_over_files():
    named = [{**event, "conversation_id": "cv"} for event in V1]
    whole = one("openhands", *named)
    assert (whole.native_id, len(whole.calls)) == ("cv", 5)
    assert one("openhands", {"events": named[:5]}, {"events": named[5:]}) == whole


def test_one_v1_event_a_file_joins_a_call_with_its_result_and_no_more():
    from warehouse.readers.openhands import assemble, is_v1_event, read_v1_events
    from warehouse.records import Fragment, Gathered

    events = {}
    for event in V1:
        assert is_v1_event(event)
        for record in read_v1_events(Item("document", "", Gathered(None, [event]))):
            if isinstance(record, Fragment):
                events.setdefault(record.conversation, []).extend(record.events)
    record = next(assemble("action a1", events["action a1"]))
    assert [(c.call_id, c.status) for c in record.calls] == [("c1", "error")]
    # The same call in a whole file is the same execution.
    assert record.calls[0].uid == one("openhands", *V1).calls[0].uid


@needs_samples
def test_sample_events_of_openhands():
    ((_, old),) = read_file(SAMPLES / "openhands/v0_trajectory_basic.json")
    assert [(c.name, c.status) for c in old.calls] == [
        ("str_replace_editor", "ok"),
        ("finish", "no_result"),
    ]
    ((_, new),) = read_file(SAMPLES / "openhands/v1_events.jsonl")
    assert [(c.name, c.status) for c in new.calls] == [("terminal", "error"), ("terminal", "ok")]
    assert len(new.orphans) == 1
    assert new.native_id == "e18b827d3440425a9ff7353c4a6d6a3a"


@pytest.mark.parametrize("odd", [None, 3, "x", [], {}, [None], {"type": "x"}, "\ud800\x00"])
@pytest.mark.parametrize("key", ["tool_call", "observation", "action", "llm_message", "tools"])
def test_an_odd_field_of_one_v1_event_leaves_its_neighbours_alone(key, odd):
    record = one("openhands", *V1, {**action("a9", 10, "c9"), key: odd})
    assert [c.status for c in record.calls[:5]] == ["error", "ok", "error", "error", "no_result"]


@pytest.mark.parametrize("odd", [None, 3, "x", [], {}, [None], {"type": "x"}, "\ud800\x00"])
@pytest.mark.parametrize("key", ["tool_call_metadata", "args", "cause", "content", "extras", "id"])
def test_an_odd_field_of_one_v0_event_leaves_its_neighbours_alone(key, odd):
    events = [*V0, {**v0(20, action="run", args={}), key: odd}, {**V0[4], "id": 21, key: odd}]
    calls = one("openhands", *events).calls
    assert [c.status for c in calls[:4]] == ["error", "ok", "error", "no_result"]


# --- ATIF -----------------------------------------------------------------------------------------


def called(call_id, name="bash", **arguments):
    return {"tool_call_id": call_id, "function_name": name, "arguments": arguments}


def results(*pairs, **more):
    return {"results": [{"source_call_id": i, "content": c, **more} for i, c in pairs]}


def agent(*calls, observation=None, second=1, **more):
    found = {"step_id": 2, "timestamp": f"2026-01-01T00:00:{second:02}Z", "source": "agent"}
    return {**found, "message": "", "tool_calls": list(calls), "observation": observation, **more}


def atif(*steps, version="ATIF-v1.6", **more):
    definitions = [{"type": "function", "function": {"name": "bash", "description": "runs"}}]
    return {
        "schema_version": version,
        "session_id": "sess",
        "agent": {"name": "claude", "version": "2", "tool_definitions": definitions},
        "steps": [{"step_id": 1, "source": "user", "message": "do it"}, *steps],
        **more,
    }


def test_atif_steps_with_their_tools():
    value = atif(
        agent(called("a", c=1), called("b", c=2), observation=results(("b", "B"), ("a", "A"))),
        agent(called("c"), second=5),
        {"step_id": 4, "source": "system", "message": "", "observation": results(("c", "C"))},
        {"step_id": 5, "source": "hologram", "message": ""},
    )
    records = read("atif", value)
    assert records[0] == ToolRecord("bash", "runs")
    assert Ignored("step of source hologram") in records
    record = records[-1]
    assert told(record) == [
        ("bash", 1, {"c": 1}, "ok", "A"),
        ("bash", 1, {"c": 2}, "ok", "B"),
        ("bash", 2, {}, "ok", "C"),
    ]
    assert (record.request, record.native_id, record.conversation) == ("do it", "sess", "sess")
    assert record.started_at.isoformat() == "2026-01-01T00:00:01"
    assert record.meta["agent"] == "claude"


@pytest.mark.parametrize("version", ["ATIF-v1.0", "ATIF-v1.4", "ATIF-v1.7", "ATIF-v1.8"])
def test_atif_of_every_version(version):
    assert len(one("atif", atif(agent(called("a")), version=version)).calls) == 1


def test_atif_errors_are_flags_and_payloads():
    value = atif(
        agent(
            called("a"),
            called("b"),
            called("c"),
            observation={
                "results": [
                    {"source_call_id": "a", "content": "Error: text"},
                    {"source_call_id": "b", "content": "x", "extra": {"is_error": True}},
                    {"source_call_id": "c", "content": '{"isError": true}'},
                ]
            },
        )
    )
    assert [c.status for c in one("atif", value).calls] == ["ok", "error", "error"]


def test_atif_results_without_an_id_and_without_a_call():
    alone = one("atif", atif(agent(called("a"), observation=results((None, "x")))))
    assert [c.result for c in alone.calls] == ["x"]
    lost = one("atif", atif(agent(called("a"), observation=results(("z", "lost")))))
    assert ([c.status for c in lost.calls], lost.orphans) == (["no_result"], ["lost"])


def test_atif_counts_executions_not_copies():
    again = agent(called("a"), observation=results(("a", "A")), second=2)
    record = one("atif", atif(agent(called("a")), again))
    assert [(c.result, record.duplicates) for c in record.calls] == [("A", 1)]
    old = {"step_id": 0, "source": "user", "message": "old", "is_copied_context": True}
    copied = one("atif", atif(agent(called("h"), is_copied_context=True), agent(called("a")), old))
    assert ([c.call_id for c in copied.calls], copied.duplicates) == (["a"], 1)
    assert copied.request == "do it"


def test_atif_sub_agents_are_trajectories_of_their_own():
    inner = {**atif(agent(called("i"))), "trajectory_id": "sub-1"}
    reference = {"subagent_trajectory_ref": [{"trajectory_id": "sub-1"}]}
    main, side, sub = trajectories(
        "atif",
        atif(
            agent(called("a"), observation={"results": [{"source_call_id": "a", **reference}]}),
            agent(called("s"), extra={"is_sidechain": True}),
            subagent_trajectories=[inner],
        ),
    )
    assert [r.native_id for r in (main, side, sub)] == ["sess", "sess/sidechain", "sub-1"]
    assert [c.call_id for r in (main, side, sub) for c in r.calls] == ["a", "s", "i"]
    assert main.calls[0].status == "ok"
    assert sub.meta["parent_trajectory"] == "sess"


def test_atif_without_a_list_of_steps_is_rejected():
    (record,) = (r for r in read("atif", {**atif(), "steps": {}}) if isinstance(r, Rejected))
    assert record.reason == "expected steps to be a list, got dict"
