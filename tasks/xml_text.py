"""Text in XML: whatever a tool is called, the document stays well-formed."""

import html
import re

_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def escape(text: object) -> str:
    """Any text as content or attribute value.

    Characters that XML 1.0 (section 2.2) has no way to write become U+FFFD; line ends and tabs are
    written by number, so that a parser gives them back as they were.
    """
    plain = html.escape(_FORBIDDEN.sub("\ufffd", str(text)))
    return plain.replace("\r", "&#13;").replace("\n", "&#10;").replace("\t", "&#9;")
