"""How much work the classes of Unicode in a regular expression are for its compiler.

RE2 compiles `\\pL` to hundreds of instructions, some 0.3 ms each time, and repetitions copy them:
`(\\pL|\\pN){200}` takes a sixth of a second, in which no other thread of the server runs.
"""

import re
from typing import Final

_ATOM: Final = re.compile(
    r"[^\\\[(){*+?]+|\[\^?\]?(?:\\.|[^\\\]])*\]|\\[pP](?:\{[^}]*\}|.)|\\.|.", re.DOTALL
)
"""Characters without a meaning of their own, a class in brackets, a class of Unicode, an escaped
character or a character."""
_REPETITION: Final = re.compile(r"\{(\d{1,4})(,(\d{0,4}))?\}")
_UNICODE: Final = re.compile(r"\\[pP]")


def unicode_classes(pattern: str) -> int:
    """Return how many classes of Unicode there are, each counted as often as it is repeated."""
    if not _UNICODE.search(pattern):
        return 0
    sums, last, at = [0], 0, 0
    while (found := _ATOM.match(pattern, at)) is not None:
        repeated = _REPETITION.match(pattern, at)
        at = (repeated or found).end()
        if repeated is not None:
            times = max(1, int(repeated[3] or repeated[1]))
            sums[-1] += last * (times - 1)
            last *= times
        elif found[0] == "(":
            sums.append(0)
        elif found[0] == ")" and len(sums) > 1:
            last = sums.pop()
            sums[-1] += last
        elif found[0] not in ("*", "+", "?"):
            last = 0 if found[0].startswith("\\\\") else len(_UNICODE.findall(found[0]))
            sums[-1] += last
    return sum(sums)
