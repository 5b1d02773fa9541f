"""A request cut into its clauses, each about one step: by punctuation and connectives alone."""

import re

_FEWEST_LETTERS = 8
"""A piece with fewer (an ideograph counts four) is no step of its own, like "Hi there"."""

_QUOTED = r"""
    "[^"\n]{1,100}" | “[^”\n]{1,100}” | 「[^」\n]{1,100}」 | 《[^》\n]{1,100}》
  | (?<!\w)'[^'\n]{1,100}'(?!\w) | (?<!\w)‘[^’\n]{1,100}’(?!\w)
"""

_CONNECTIVE = r"""
    (?:then|also|finally|lastly|afterwards?|after\ (?:that|this)|next|additionally
     |in\ addition|besides|meanwhile)(?=[\s,])
"""

# An abbreviation ("No. 328", "Mr. Li", "e.g. this", "J. Doe") ends no sentence.
_SENTENCE_END = r"""
    (?<!\bNo)(?<!\bMr)(?<!\bMs)(?<!\bDr)(?<!\bSt)(?<!\bMrs)(?<!\bvs)(?<!\betc)(?<!\b\w)
    [.!?]+["'”’)\]]*\s+ | [.!?](?=[\u4e00-\u9fff])
"""

_BREAK = rf"""
    \s*\n\s*(?:[-*•]\s+|\(?\d{{1,2}}[.)]\s+)?
  | (?<=[.;:,])\s+\d{{1,2}}[.)]\s+ | \s+\(\d{{1,2}}\)\s+
  | {_SENTENCE_END}
  | [。！？；，…]+\s* | ;\s+
  | ,\s+(?:and|but)\s+ | ,\s*(?={_CONNECTIVE}) | \s+and\s+(?={_CONNECTIVE})
"""

_CUT = re.compile(rf"{_QUOTED} | (?P<cut>{_BREAK})", re.VERBOSE | re.IGNORECASE)

_START = re.compile(
    rf"(?:[\s,;:\-*•]+ | \(?\d{{1,2}}[.)]\s+ | (?:and|but)\s+ | {_CONNECTIVE}"
    r" | 然后|接着|最后|另外|此外|同时|并且)+",
    re.VERBOSE | re.IGNORECASE,
)


def clauses(request: str, fewest_letters: int = _FEWEST_LETTERS) -> list[str]:
    """The clauses of a request in order, without the connectives that lead them.

    Cuts at sentence ends, semicolons, lines and list numbers, before ``and then`` and its like,
    and at a comma with "and"; Chinese also at its commas. Quoted text stays whole. A scrap joins
    the clause after it, the last one the clause before. A request without a cut is one clause.

    Args:
        request: What the user asks, in English or Chinese.
        fewest_letters: A piece with fewer is a scrap.
    """
    pieces, start = [], 0
    for match in _CUT.finditer(request):
        if match["cut"] is not None:
            pieces.append(request[start : match.start()])
            start = match.end()
    pieces.append(request[start:])

    found: list[str] = []
    scrap = ""
    for piece in pieces:
        text = f"{scrap} {_START.sub('', piece, count=1) if _START.match(piece) else piece}".strip()
        scrap = ""
        if _letters(text) < fewest_letters:
            scrap = text
        else:
            found.append(text)
    if scrap and found:
        found[-1] = f"{found[-1]} {scrap}"
    return found or [request.strip()]


def _letters(text: str) -> int:
    return sum(4 if "\u4e00" <= letter <= "\u9fff" else letter.isalnum() for letter in text)
