import gzip
import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warehouse.readers import stream
from warehouse.readers.carriers import iter_items
from warehouse.readers.stream import open_bytes


def items(text):
    data = text if isinstance(text, bytes) else text.encode()
    return list(iter_items(io.BytesIO(data)))


def test_lines_lists_and_documents_are_told_apart():
    assert [i.value for i in items('{"a": 1}\n{"a": 2}\n')] == [{"a": 1}, {"a": 2}]
    assert [i.value for i in items('[\n {"a": 1},\n {"a": 2}\n]')] == [{"a": 1}, {"a": 2}]
    assert [i.value for i in items('{\n "a": 1\n}')] == [{"a": 1}]
    assert [i.value for i in items("[[1], [2]]")] == [[1], [2]]
    assert [i.value for i in items('["a"]\n["b"]\n')] == [["a"], ["b"]]


def test_an_empty_file_has_no_items():
    assert items("") == []
    assert items("  \n \n") == []
    assert items("[]") == []


def test_a_broken_line_leaves_its_neighbours():
    good, bad, last = items('{"a": 1}\n{"a": \n{"a": 3}\n')
    assert (good.value, last.value) == ({"a": 1}, {"a": 3})
    assert bad.place == "line 2"
    assert bad.raw == '{"a":'
    assert "not JSON" in bad.error


def test_a_broken_first_line_leaves_its_neighbours():
    bad, good = items('{"a": \n{"a": 3}\n')
    assert bad.error
    assert good.value == {"a": 3}


def test_a_list_that_is_cut_keeps_what_came_before():
    first, rest = items('[{"a": 1}, {"a": ')
    assert first.value == {"a": 1}
    assert rest.place == "record 2"
    assert rest.raw == '{"a":'


@pytest.mark.parametrize(
    "broken",
    [
        '{"a": 2 "b": 1}',
        '{"a": }',
        '{"n": ' + "9" * 5000 + "}",
        '{"deep": ' + "[" * 3000 + "]" * 3000 + "}",
    ],
    ids=["comma", "value", "digits", "depth"],
)
@pytest.mark.parametrize("chunk", [32, 4 << 20])
def test_a_broken_record_of_a_list_leaves_its_neighbours(monkeypatch, broken, chunk):
    monkeypatch.setattr(stream, "_CHUNK", chunk)
    rows = [f'{{"a": {i}}}' for i in range(50)]
    found = items("[\n" + ",\n".join([*rows[:3], broken, *rows[3:]]) + "\n]")
    assert [i.value["a"] for i in found if i.error is None] == list(range(50))
    (bad,) = [i for i in found if i.error]
    assert bad.raw == broken


def test_lists_in_a_row_are_all_read():
    assert [i.value for i in items('[\n{"a": 1}\n]\n[\n{"a": 2}\n]\n')] == [{"a": 1}, {"a": 2}]


def test_bytes_that_are_no_text_are_named():
    good, bad = items(b'{"a": 1}\n{"a": "\xff"}\n')
    assert good.value == {"a": 1}
    assert "not UTF-8" in bad.error


def test_integers_of_any_size_stay_exact():
    (item,) = items('{"a": 18446744073709551617}\n{"a": 1}')[:1]
    assert item.value["a"] == 18446744073709551617


def test_a_byte_order_mark_is_no_content():
    assert [i.value for i in items('\ufeff{"a": 1}\n{"a": 2}')] == [{"a": 1}, {"a": 2}]
    assert [i.value for i in items('\ufeff[{"a": 1}]')] == [{"a": 1}]


def test_gzip_is_told_by_content(tmp_path):
    path = tmp_path / "no_ending"
    path.write_bytes(gzip.compress(b'{"a": 1}\n{"a": 2}\n'))
    with open_bytes(path) as file:
        assert len(list(iter_items(file))) == 2


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize("chunk", [1, 7, 64])
@settings(max_examples=40, deadline=None)
@given(st.lists(st.dictionaries(st.text(max_size=5), values, max_size=3), min_size=1, max_size=6))
def test_lists_survive_any_chunk_size(chunk, records):
    before, stream._CHUNK = stream._CHUNK, chunk
    try:
        assert [i.value for i in items(json.dumps(records, indent=2))] == records
    finally:
        stream._CHUNK = before
