"""Figures that one can play with: HTML and plain JavaScript, and a picture where no script runs.

The figures are modules in interactive/; each computes in the browser what it shows.

    plots.interactive("08-weights", {"weight": layer.weight}, alt="A histogram of weights.")
"""

import base64
import html
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from IPython.display import display
from matplotlib.figure import Figure

from helpers.plots.style import check_alt, png

FOLDER = Path(__file__).with_suffix("")
LARGEST = 60_000  # bytes: a page has several, and a notebook is read over slow lines


def interactive(name: str, data: dict[str, Any], alt: str, still: Figure | None = None) -> None:
    """Show a figure that answers to mouse and keyboard.

    Args:
        name: the lesson's number and the module, such as 08-weights; a third part may follow, as
            in 03-graph-traps.
        data: what the figure computes with: numbers, texts, lists, dictionaries and tensors.
        alt: one or two sentences that say what the figure shows to somebody who cannot see it.
        still: shown where scripts do not run; None takes the picture of this name that lies beside
            the module.
    """
    check_alt(name, alt)
    module = FOLDER / f"{name.split('-')[1]}.js"
    if not module.exists():
        raise ValueError(f"figure {name!r}: there is no {module}")
    picture = FOLDER / f"{name}.png"
    if still is None and not picture.exists():
        raise ValueError(
            f"figure {name!r} has no picture for pages without scripts; pass one as still"
        )
    content = png(still) if still else picture.read_bytes()
    encoded = base64.b64encode(content).decode()
    page = page_of(module, as_json(data), encoded, alt)
    size = len(page.encode())
    if size > LARGEST:
        raise ValueError(
            f"figure {name!r}: {size:,} bytes with its data, at most {LARGEST:,} are allowed;"
            " pass fewer numbers"
        )
    display(
        {"text/html": page, "image/png": encoded, "text/plain": alt},
        raw=True,
        metadata={"figure": name},
    )


def page_of(module: Path, data: str, picture: str, alt: str) -> str:
    """The picture, and the script that puts the living figure in its place."""
    style = (FOLDER / "shared" / "style.css").read_text(encoding="utf-8")
    scripts = [*sorted((FOLDER / "shared").glob("*.js")), module]
    code = "\n".join(script.read_text(encoding="utf-8") for script in scripts)
    number = sha256(f"{module.stem}{data}".encode()).hexdigest()[:12]
    text = data.replace("</", "<\\/")  # "</" could end the script
    # JupyterLab keeps its own keys from a part of the page that says so.
    return f"""<div class="course-figure" data-figure="{number}" data-lm-suppress-shortcuts="true">
<img src="data:image/png;base64,{picture}" width="720"
style="max-width:100%" alt="{html.escape(alt)}"></div>
<style>{style}</style>
<script>(() => {{
"use strict";
{code}
start("{number}", {text}, figure);
}})();</script>"""


def as_json(data: dict[str, Any]) -> str:
    """Tensors become the base64 of their numbers in float32, which is shorter than digits."""

    def packed(tensor: torch.Tensor) -> dict[str, str]:
        values = tensor.detach().float().contiguous().numpy()
        return {"float32": base64.b64encode(values.tobytes()).decode()}

    return json.dumps(data, separators=(",", ":"), default=packed)
