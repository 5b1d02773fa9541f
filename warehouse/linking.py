"""Conversations that are one because they have a name in common, directly or over others."""

from collections.abc import Iterable

Key = tuple[str, str]
"""(format, conversation)."""


def groups_of(keys: Iterable[Key], names: Iterable[tuple[Key, str]]) -> dict[Key, list[Key]]:
    """The conversations that belong together, each group under its least.

    Args:
        keys: Conversations.
        names: (conversation, another name of it); a name belongs to one format only.
    """
    top: dict[Key, Key] = {key: key for key in keys}

    def find(key: Key) -> Key:
        while top[key] != key:
            top[key] = top[top[key]]
            key = top[key]
        return key

    by_name: dict[tuple[str, str], Key] = {}
    for key, name in names:
        top.setdefault(key, key)
        other = by_name.setdefault((key[0], name), key)
        first, second = sorted((find(key), find(other)))
        top[second] = first
    groups: dict[Key, list[Key]] = {}
    for key in top:
        groups.setdefault(find(key), []).append(key)
    return groups
