"""Recorded streams of server-sent events, as text in a record and as files of their own."""

import json

import pytest

from warehouse.readers.reading import read_file
from warehouse.readers.sse import is_stream, parse_events, recognises
from warehouse.records import Rejected, TrajectoryRecord


def chunk(stream, **delta):
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    return {"id": stream, "object": "chat.completion.chunk", "choices": [choice]}


def part(index, arguments, **first):
    name = first.pop("name", None)
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return {"index": index, "function": function, **first}


def stream(name):
    return [
        chunk(name, role="assistant", tool_calls=[part(0, "", id=f"{name}-1", name="a")]),
        chunk(name, tool_calls=[part(0, '{"x"')]),
        chunk(name, tool_calls=[part(0, ": 1}")]),
        {"id": name, "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
        | {"object": "chat.completion.chunk"},
    ]


def as_text(events, end="\n\n"):
    return "".join(f"data: {json.dumps(event)}{end}" for event in events)


def test_events_comments_and_the_end_mark_are_understood():
    text = ': keep\n\nevent: ping\ndata: {"a":1}\nid: 7\nretry: 5\n\ndata: [DONE]\n\n'
    assert parse_events(text) == ([{"a": 1, "type": "ping"}], [])


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_data_over_several_lines_is_one_event_and_one_object_a_line_are_several(newline):
    text = newline.join(['data: {"a":', "data: 1}", "", 'data: {"b":2}', 'data: {"c":3}'])
    assert parse_events(text) == ([{"a": 1}, {"b": 2}, {"c": 3}], [])


def test_broken_data_is_kept_beside_its_neighbours():
    assert parse_events('data: {"a":1}\n\ndata: {"b":\n\ndata: [1]\n\ndata: {"c":3}\n\n') == (
        [{"a": 1}, {"c": 3}],
        ['{"b":', "[1]"],
    )


def test_json_and_other_text_is_no_stream():
    for text in ('{"data": 1}', '[{"a": 1}]', "data: yes\nevent: no\n", "id: 1\nname: x", ""):
        assert not recognises(text.encode())
    assert is_stream('event: x\ndata: {"a": 1}\n\n')
    assert not is_stream(None)


def test_a_file_of_two_streams_gives_each_its_calls(tmp_path):
    path = tmp_path / "recorded.txt"
    for between in ("data: [DONE]\n\n", ""):
        path.write_text(as_text(stream("one")) + between + as_text(stream("two")))
        found = read_file(path)
        assert [record.native_id for _, record in found] == ["one", "two"]
        assert [(c.name, c.arguments) for c in found[1][1].calls] == [("a", '{"x": 1}')]
        assert {name for name, _ in found} == {"openai"}


def test_a_broken_line_of_a_stream_is_set_aside_by_its_number(tmp_path):
    path = tmp_path / "recorded.sse"
    lines = as_text(stream("one"))
    path.write_text("data: {broken\n\n" + lines)
    rejected, record = (record for _, record in read_file(path))
    assert isinstance(rejected, Rejected)
    assert rejected.place == "line 1"
    assert isinstance(record, TrajectoryRecord)
    assert len(record.calls) == 1


@pytest.mark.parametrize("as_list", [True, False])
def test_chunks_as_json_are_glued_like_a_stream(tmp_path, as_list):
    path = tmp_path / "chunks.json"
    chunks = stream("one") + stream("two")
    lines = "\n".join(map(json.dumps, chunks))
    path.write_text(json.dumps(chunks, indent=1) if as_list else lines)
    found = [record for _, record in read_file(path)]
    assert [record.native_id for record in found] == ["one", "two"]
    assert [c.arguments for record in found for c in record.calls] == ['{"x": 1}'] * 2
