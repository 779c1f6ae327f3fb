"""Look for names that an exercise does not allow. Best effort, and said to be so.

A determined student can spell a name in ways that no search finds. This catches the honest shortcut; the box
and the hidden inputs catch the rest. Tokens are searched, not a syntax tree: it works on broken code as well,
and no nesting can exhaust the grader's stack.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable

# What the first letters of a line of a cell define: functions, classes, plain and attribute assignments, import as.
DEFINED = re.compile(
    r"^(?:async\s+)?(?:def|class)\s+(\w+)|^(?:\w+\.)*(\w+)\s*(?::[^=\n]+)?=(?!=)|^(?:from|import)\b.*\bas\s+(\w+)",
    re.MULTILINE,
)


def with_what_it_uses(sources: list[str], others: list[str]) -> list[str]:
    """Add those of the other cells that define a name which the code mentions, and those that these use in turn.

    Example:
        >>> with_what_it_uses(["f(1)"], ["def g(x): ...", "f = g", "h = 3"])
        ['f(1)', 'f = g', 'def g(x): ...']
    """
    found, left = list(sources), list(others)
    mentioned = _words(sources)
    while more := [other for other in left if mentioned & _defined(other)]:
        found += more
        left = [other for other in left if other not in more]
        mentioned |= _words(more)
    return found


def _words(sources: list[str]) -> set[str]:
    return {word for source in sources for word in re.findall(r"\w+", source)}


def _defined(source: str) -> set[str]:
    return {name for match in DEFINED.findall(source) for name in match if name}


def mentioned_in_files(files: Iterable[bytes], names: tuple[str, ...]) -> list[str]:
    """Return those of `names` that occur in a file, which a notebook may load as code whatever it is called."""
    return [name for name in names if any(name.encode() in data for data in files)]


def used(sources: list[str], names: tuple[str, ...]) -> list[str]:
    """Return those of `names` that occur in the code, in part or whole, outside comments.

    Example:
        >>> used(["from torch.nn.utils import fuse_conv_bn_eval  # helpful"], ("fuse_conv_bn", "helpful"))
        ['fuse_conv_bn']
    """
    text = "\n".join(_without_comments(source) for source in sources)
    return [name for name in names if re.search(re.escape(name), text)]


def _without_comments(source: str) -> str:
    kept = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type != tokenize.COMMENT and not _is_docstring(token):
                kept.append(token.string)
    except (tokenize.TokenError, SyntaxError):
        return source  # broken code is searched as it stands
    return " ".join(kept).replace(" . ", ".")


def _is_docstring(token: tokenize.TokenInfo) -> bool:
    """A string that starts its line explains; any other string may be the name given to getattr."""
    return token.type == tokenize.STRING and token.line.lstrip().startswith(token.string[:3]) and '"""' in token.string
