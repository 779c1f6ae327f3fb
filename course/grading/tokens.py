"""Code as rows of tokens, without layout, comments and the names that its author chose."""

import builtins
import io
import keyword
import tokenize
from contextlib import suppress

RUN = 8  # tokens
PUBLIC = {*keyword.kwlist, *keyword.softkwlist, *dir(builtins), "torch", "nn", "F", "self"}
IGNORED = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENCODING, tokenize.ENDMARKER)


def tokens_of(source: str) -> list[str]:
    """The code without layout and comments; names after a dot and Python's own stay, all others
    become one word.
    """
    found: list[str] = []
    with suppress(tokenize.TokenError, SyntaxError):  # what comes before a mistake is compared
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type in IGNORED:
                continue
            chosen = (
                token.type == tokenize.NAME and token.string not in PUBLIC and found[-1:] != ["."]
            )
            found.append(
                "name"
                if chosen
                else "text"
                if token.type == tokenize.STRING
                else token.string.strip()
            )
    return found


def runs_of(sources: list[str]) -> set[tuple[str, ...]]:
    """Every run of RUN tokens in these cells."""
    return {
        tuple(row[i : i + RUN])
        for row in map(tokens_of, sources)
        for i in range(len(row) - RUN + 1)
    }
