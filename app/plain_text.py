"""Text as it may come from a clipboard or a shell, made plain."""

from __future__ import annotations

import re

_LINE_ENDS = re.compile("\r\n|[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe\uffff\ufeff\ufff9-\ufffb]+")


def plain(text: str) -> str:
    """The text with line feeds for every kind of line end, and without control characters but these and tabs.

    What joins and directs letters of some scripts (ZWJ, ZWNJ, marks of direction) stays. Lone surrogates, which no
    encoding can hold, stay too, for whoever validates the text to find.
    """
    return _CONTROL.sub("", _LINE_ENDS.sub("\n", text))
