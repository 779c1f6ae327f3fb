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

# What a line that is not indented defines: something to call, or a value.
CALLABLE = re.compile(r"^(?:async\s+)?(?:def|class)\s+(\w+)|^(?:from|import)\b.*\bas\s+(\w+)", re.MULTILINE)
VALUE = re.compile(r"^(?:\w+\.)*(\w+)\s*(?::[^=\n]+)?=(?!=)", re.MULTILINE)


def with_what_it_uses(answer: list[str], others: list[str]) -> list[str]:
    """Add the cells that define what an answer mentions, and for functions those that define what these mention.

    A value is not followed further, for names such as `x` stand in cells that have nothing to do with each other.

    Example:
        >>> with_what_it_uses(["f(1)"], ["def g(x): ...", "def f(x): return g(x)", "h = 3"])
        ['f(1)', 'def f(x): return g(x)', 'def g(x): ...']
    """
    found, left = list(answer), list(others)
    mentioned = _words(answer)
    while more := [cell for cell in left if mentioned & _names(CALLABLE, cell)]:
        found += more
        left = [cell for cell in left if cell not in more]
        mentioned |= _words(more)
    return found + [cell for cell in left if mentioned & _names(VALUE, cell)]


def _words(sources: list[str]) -> set[str]:
    return {word for source in sources for word in re.findall(r"\w+", source)}


def _names(pattern: re.Pattern, source: str) -> set[str]:
    return {name for match in pattern.finditer(source) for name in match.groups() if name}


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
