"""The token trie: what may be said next."""

import pytest

from models.trie import ROOT, TokenTrie

LINES = {3: [1, 2, 9], 5: [1, 2, 4, 9], 8: [7, 9]}


def test_every_line_leads_to_its_tool():
    trie = TokenTrie(LINES)
    for row, line in LINES.items():
        nodes = trie.walk(line)
        assert nodes[0] == ROOT
        assert trie.tool[trie.children[nodes[-1]][line[-1]]] == row


def test_an_end_needs_a_tool_and_a_full_plan_needs_the_end():
    trie = TokenTrie(LINES)
    assert trie.legal(ROOT, 0, 99, max_length=2) == [1, 7]
    assert trie.legal(ROOT, 1, 99, max_length=2) == [1, 7, 99]
    assert trie.legal(ROOT, 2, 99, max_length=2) == [99]
    assert trie.legal(trie.walk([1, 2, 9])[-1], 0, 99, max_length=2) == [9, 4]


@pytest.mark.parametrize("bad", [{0: []}, {0: [1, 2], 1: [1, 2]}, {0: [1], 1: [1, 2]}])
def test_lines_that_cannot_be_told_apart_are_refused(bad):
    with pytest.raises(ValueError, match="expected lines that can be told apart"):
        TokenTrie(bad)


def test_a_strange_line_is_refused():
    with pytest.raises(ValueError, match="expected a line of this trie"):
        TokenTrie(LINES).walk([1, 7])
