"""The token trie of a catalogue: what a plan may say next, token by token."""

from collections.abc import Mapping, Sequence

ROOT = 0
"""Node at the start of every line."""


class TokenTrie:
    """All tool lines as one tree of tokens, so that whatever is written names a real tool.

    Args:
        lines: Tokens of each tool's line, by tool row. No line may begin another one, which the
            line break at the end of each rules out.

    Raises:
        ValueError: A line is empty, or two lines cannot be told apart.
    """

    def __init__(self, lines: Mapping[int, Sequence[int]]) -> None:
        self.children: list[dict[int, int]] = [{}]
        self.tool: list[int | None] = [None]
        for row, line in lines.items():
            node = ROOT
            for token in line:
                if self.tool[node] is not None:
                    break
                if token not in self.children[node]:
                    self.children[node][token] = len(self.children)
                    self.children.append({})
                    self.tool.append(None)
                node = self.children[node][token]
            if node == ROOT or self.children[node] or self.tool[node] is not None:
                raise ValueError(
                    f"expected lines that can be told apart, got {list(line)} of tool row {row} "
                    "beside another one; give every tool a name of its own on one line"
                )
            self.tool[node] = row

    def legal(self, node: int, written: int, end: int, max_length: int) -> list[int]:
        """Tokens that may follow: what goes on within a name, between names a name or the end.

        Args:
            node: Where the line stands.
            written: Tools written so far; an end needs one, and after the last one it is due.
            end: Token that ends an answer.
            max_length: Most tools of a plan.
        """
        if node != ROOT:
            return list(self.children[node])
        tokens = list(self.children[ROOT]) if written < max_length else []
        return [*tokens, end] if written else tokens

    def walk(self, line: Sequence[int]) -> list[int]:
        """The nodes before each token of a line.

        Raises:
            ValueError: It is no line of this trie.
        """
        nodes = [ROOT]
        for token in line:
            following = self.children[nodes[-1]].get(token)
            if following is None:
                raise ValueError(f"expected a line of this trie, got {list(line)}")
            nodes.append(following)
        return nodes[:-1]

    def __len__(self) -> int:
        return len(self.children)
