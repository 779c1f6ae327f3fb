"""`python -m tests.course.grading.picture [PAGE]`: the picture of a student's page in the guide.

After `python -m course grade demo`, PAGE may be left out.
"""

import io
import sys
from pathlib import Path

from PIL import Image

from tests.course.publish.chromium import opened

REPOSITORY = Path(__file__).parents[3]
DEMO = REPOSITORY / "build" / "demo" / "feedback" / "a1" / "dora.html"
PICTURE = REPOSITORY / "notebooks" / "assignments" / "teaching" / "page.png"
MOST_BYTES = 200_000


def take(page: Path) -> None:
    """Draw the upper part of a page, with few colours, as text has."""
    with opened(page.resolve().as_uri()) as (shown, problems):
        shown.set_viewport_size({"width": 760, "height": 900})
        data = shown.screenshot()
    assert problems == [], problems
    Image.open(io.BytesIO(data)).convert("P", palette=Image.Palette.ADAPTIVE, colors=32).save(
        PICTURE, optimize=True
    )
    size = PICTURE.stat().st_size
    assert size < MOST_BYTES, f"{PICTURE} has {size} bytes"
    print(f"{PICTURE}: {size:,} bytes")


if __name__ == "__main__":
    take(Path(sys.argv[1]) if sys.argv[1:] else DEMO)
