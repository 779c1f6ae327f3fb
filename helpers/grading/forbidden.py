"""Look for names that an exercise does not allow. Best effort, and said to be so.

A determined student can spell a name in ways that no search finds. This catches the honest shortcut; the box
and the hidden inputs catch the rest. Tokens are searched, not a syntax tree: it works on broken code as well,
and no nesting can exhaust the grader's stack.
"""

from __future__ import annotations

import io
import re
import tokenize


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
