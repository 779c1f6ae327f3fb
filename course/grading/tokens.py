"""Code as rows of tokens. Python's parser takes minutes and gigabytes for some texts; this
does not.
"""

import ast
import builtins
import io
import keyword
import tokenize
from collections.abc import Iterator
from contextlib import suppress

RUN = 8  # tokens
MOST = 100_000  # characters of a cell that are looked at
PUBLIC = {*keyword.kwlist, *keyword.softkwlist, *dir(builtins), "torch", "nn", "F", "self"}
IGNORED = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENCODING, tokenize.ENDMARKER)


def tokens_of(source: str) -> list[str]:
    """The code without layout and comments; names after a dot and Python's own stay, all others
    become one word.
    """
    found: list[str] = []
    for token in _read(source):
        if token.type in IGNORED:
            continue
        chosen = token.type == tokenize.NAME and token.string not in PUBLIC and found[-1:] != ["."]
        if chosen:
            found.append("name")
        else:
            found.append("text" if token.type == tokenize.STRING else token.string.strip())
    return found


def names_in(source: str) -> set[str]:
    """The names in code but for those after a dot or before a sign of equality."""
    tokens = [token.string for token in _read(source)]
    around = zip(["", *tokens], tokens, [*tokens[1:], ""], strict=False)
    return {
        name
        for before, name, after in around
        if name.isidentifier() and before != "." and after != "="
    }


def texts_in(source: str) -> list[str]:
    """The texts in code."""
    found = []
    for token in _read(source):
        if token.type == tokenize.STRING:
            with suppress(SyntaxError, ValueError):  # one with values in it
                found.append(str(ast.literal_eval(token.string)))
    return found


def runs_of(sources: list[str]) -> set[tuple[str, ...]]:
    """Every run of RUN tokens in these cells."""
    return {
        tuple(row[i : i + RUN])
        for row in map(tokens_of, sources)
        for i in range(len(row) - RUN + 1)
    }


def _read(source: str) -> Iterator[tokenize.TokenInfo]:
    """The tokens before the first mistake."""
    with suppress(tokenize.TokenError, SyntaxError):
        yield from tokenize.generate_tokens(io.StringIO(source[:MOST]).readline)
