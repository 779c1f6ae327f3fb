"""Pages that are safe whoever wrote what is on them: one per student, the Formgrader's cells."""

import html
import io
import re
import zipfile
from datetime import timedelta
from pathlib import Path
from xml.etree import ElementTree

import latex2mathml.converter
import mistune
import nbformat
from nbconvert.preprocessors import Preprocessor

from course.grading import arrivals, collect, record, roster
from course.grading.classroom import Classroom, pseudonym, write
from course.grading.course import Exercise
from course.grading.noteworthy import calls_of_what_is_wrong
from course.publish.page import with_formulas

MOST_FORMULA = 2000
MATHML = "http://www.w3.org/1998/Math/MathML"
NAMES = (
    "math mrow mi mo mn mtext mspace mstyle mfrac msqrt mroot mover munder munderover msup msub"
    " msubsup mtable mtr"
)
SAFE_ELEMENTS = {f"{{{MATHML}}}{name}" for name in f"{NAMES} mtd mpadded mphantom menclose".split()}
SAFE_ATTRIBUTES = {
    "display",
    "mathvariant",
    "stretchy",
    "fence",
    "form",
    "columnalign",
    "rowspacing",
    "movablelimits",
}

STYLE = """
:root { color-scheme: light dark; --page: #fff; --ink: #222; --line: #888; --code: #f3f3f3;
  --stamp: #a00; --lost: #a60; --link: #04c; }
@media (prefers-color-scheme: dark) { :root { --page: #181a1b; --ink: #e8e6e3; --line: #888;
  --code: #26292b; --stamp: #ff9d9d; --lost: #e0a13c; --link: #8cb4ff; } }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem;
  color: var(--ink); background: var(--page); overflow-wrap: anywhere; }
th { overflow-wrap: break-word; }
table { border-collapse: collapse; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem 1rem .3rem 0; text-align: left; }
@media (max-width: 30rem) { table { font-size: .85rem; } th, td { padding-right: .5rem; } }
pre { background: var(--code); padding: .6rem; white-space: pre-wrap; }
a { color: var(--link); } math[display=block] { max-width: 100%; overflow: auto hidden;
  margin: .5rem 0; }
.stamp { border: 3px solid var(--stamp); color: var(--stamp); padding: .5rem; }
.lost { border-left: 4px solid var(--lost); padding: 0 .6rem; }
"""

# The page may use its own style and nothing else: no script, no image, no font, no form, no
# connection.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'"


def document(title: str, body: str) -> str:
    """Wrap a body in a whole page."""
    head = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    head += '<meta name="viewport" content="width=device-width">'
    head += f"<title>{html.escape(title)}</title><style>{STYLE}</style>"
    page = f"<body><main>\n{body}\n</main></body>"
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n{page}</html>\n'


class _PlainRenderer(mistune.HTMLRenderer):
    """Markdown without raw HTML, images and links: their text remains.

    Its headings stand below those of the page.
    """

    def heading(self, text: str, level: int, **attributes: str) -> str:
        return super().heading(text, min(6, level + 2))

    def image(self, text: str, url: str, title: str | None = None) -> str:
        return f"[image: {text}]"

    def link(self, text: str, url: str, title: str | None = None) -> str:
        return f"{text} ({html.escape(url)})"


_markdown = mistune.create_markdown(renderer=_PlainRenderer(escape=True), plugins=["table"])


def markdown(text: str) -> str:
    """Render Markdown with $formulas$, whoever wrote it."""
    try:
        return with_formulas(text, _markdown, formula)
    except RecursionError:  # deep nesting is no way to fail a page
        return f"<pre>{html.escape(text)}</pre>"


def formula(latex: str, display: str) -> str:
    """Turn a formula into MathML, which browsers draw themselves; one that cannot be read stays
    text.
    """
    try:
        tree = ElementTree.fromstring(
            latex2mathml.converter.convert(latex[:MOST_FORMULA], display=display)
        )
    except Exception:  # the converter fails in many ways on bad formulas
        tree = None
    # The converter does not escape \\text, so elements of any kind may come out of it.
    if (
        tree is None
        or len(latex) > MOST_FORMULA
        or not all(part.tag in SAFE_ELEMENTS for part in tree.iter())
    ):
        return f"<code>{html.escape(latex)}</code>"
    for element in tree.iter():
        # \\href and \\style reach attributes; only those that concern layout are kept.
        element.attrib = {
            name: value for name, value in element.attrib.items() if name in SAFE_ATTRIBUTES
        }
    ElementTree.register_namespace("", MATHML)
    return ElementTree.tostring(tree, encoding="unicode")


HINT, CALLS = "hint", "it calls"  # words, not values
MOST_SHOWN = 3000  # characters of an input or an answer
DATE = "%Y-%m-%d %H:%M:%S %Z"
LEFT_EMPTY = "No response."  # what nbgrader says of a written answer
STAMP = "Graded without the box (--unsafe): these marks are not protected against cheating code."


def write_all(room: Classroom, exercise: Exercise, pseudonyms: bool = False) -> list[Path]:
    """Write the feedback page of everybody whose submission was graded.

    Returns the pages, in order of the names that they bear.
    """
    name, pages, people = exercise.assignment.name, [], roster.read(room)
    folder = room.folder / "feedback" / (f"{name}_pseudonyms" if pseudonyms else name)
    order = (lambda one: pseudonym(room, one)) if pseudonyms else None
    for student in sorted(room.students(name), key=order):
        if result := room.result(name, student):
            shown = pseudonym(room, student) if pseudonyms else student
            path = folder / f"{shown}.html"
            full = people[student].name if student in people and not pseudonyms else ""
            write(path, render(room, exercise, student, result, full or shown))
            pages.append(path)
    for path in {*folder.glob("*.html")} - {*pages}:  # somebody who has left
        path.unlink()
    room.log("feedback", assignment=name, students=len(pages))
    return pages


def write_for_moodle(room: Classroom, exercise: Exercise) -> Path | None:
    """Put the pages of hand-ins that came in Moodle's folders into a zip file that Moodle takes
    back; None where no hand-in did, and then none is left of earlier ones.
    """
    name, data = exercise.assignment.name, io.BytesIO()
    path = room.folder / "feedback" / f"{name}_moodle.zip"
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for student, folder in collect.moodle_folders(room, name).items():
            page = room.folder / "feedback" / name / f"{student}.html"
            if page.exists():
                archive.write(page, Path(folder, f"{name}.html"))
    if not archive.namelist():
        path.unlink(missing_ok=True)
        return None
    write(path, data.getvalue())
    return path


def render(room: Classroom, exercise: Exercise, student: str, result: dict, shown: str = "") -> str:
    """The page of one student, as text; `shown` is the name on it."""
    shown, name = shown or student, exercise.assignment.name
    for item, called in calls_of_what_is_wrong(room, exercise, student, result):
        words = f"{' and '.join(called)}, wrong too: it may be one mistake"
        result["items"][item].setdefault("shown", {})[CALLS] = words
    scores = record.scores(room, name, student)
    title = f"{name}: {exercise.assignment.title}"
    when = _when(room, name, student)
    parts = [f"<h1>{html.escape(title)}</h1>", f"<p>{html.escape(shown)}, handed in {when}</p>"]
    if not result["boxed"]:
        parts.append(f'<p class="stamp">{STAMP}</p>')
    if not (readable := result.get("readable", True)):  # a note says so once, not each exercise
        result = result | {"items": {}}
        for row in scores.values():
            row["comment"] = row["comment"].removesuffix(LEFT_EMPTY)
    parts += [_summary(scores, exercise), _table(scores, result, _numbers(exercise))]
    if result["notes"]:
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in result["notes"])
        parts.insert(-1, f"<h2>What was noticed</h2><ul>{notes}</ul>")  # before the exercises
    if result["printed"]:
        parts.append(f"<h2>What your code printed</h2><pre>{html.escape(result['printed'])}</pre>")
    if readable:
        checked = room.folder / "checked" / record.known_as(room, student)
        notebook = nbformat.read(checked / name / exercise.notebook.name, as_version=4)
        parts += ["<h2>What you handed in</h2>", *_cells(notebook, scores)]
    return document(f"{title}, {shown}", "\n".join(parts))


def _when(room: Classroom, assignment: str, student: str) -> str:
    """When it was handed in: as the class list says, or else by its date and the deadline."""
    person = roster.read(room).get(student) or roster.Listed(student)
    extra, late = arrivals.lateness(room, assignment, student, person)
    if late is not None:
        days = round(max(0.0, late - extra), 9)  # as in the penalty
        return f"{days:g} day{'s' * (days != 1)} late" if days else "on time"
    if arrivals.came_in_time(room, assignment, student):
        return "on time"
    arrived, due = arrivals.arrival(room, assignment, student), room.rules.due.get(assignment)
    if not due:
        return f"{arrived:{DATE}}"
    until = due + timedelta(days=extra)
    return f"{arrived.astimezone(due.tzinfo):{DATE}}; it was due {until:{DATE}}"


def _summary(scores: dict, exercise: Exercise) -> str:
    total = sum(row["points"] for row in scores.values())
    words = f"<p><strong>{total:g} of {exercise.assignment.points:g} points.</strong>"
    if any(row["waiting"] and not row.get("again") for row in scores.values()):
        words += " Written answers are still waiting to be read."
    if any(row.get("again") for row in scores.values()):
        words += " Points given by hand are still waiting to be looked at again."
    if late := scores["late penalty"]["points"]:
        words += (
            f" {-late:g} points, {late / (late - total):.0%} of {total - late:g}, were taken off"
            " because the submission was late."
        )
    return words + "</p>"


def _numbers(exercise: Exercise) -> dict[str, str]:
    """What stands before a graded cell's name: "5. ", from the heading above it."""
    numbers, number = {}, ""
    for cell in nbformat.read(exercise.notebook, as_version=4).cells:
        if heading := re.match(r"## (\d+\. )", cell.source):
            number = heading[1]
        numbers[cell.metadata.nbgrader.grade_id] = number
    return numbers


def _table(scores: dict, result: dict, numbers: dict[str, str]) -> str:
    """The points of each exercise, then why any were lost and what was measured."""
    rows, reasons = [], []
    for name, row in scores.items():
        if name == "late penalty":
            continue
        points = f"{row['points']:g} of {row['of']:g}"
        if row.get("again"):
            points += ", to be looked at again"
        elif row["waiting"]:
            points = f"waiting, {row['of']:g} at most"
        label = html.escape(numbers.get(name, "") + name)
        if reason := _reason(row, result["items"].get(name, {})):
            place = html.escape(name)
            reasons.append(f'<h3 id="{place}">{label}: {points}</h3>{reason}')
            label = f'<a href="#{place}">{label}</a>'
        rows.append(f'<tr><th scope="row">{label}</th><td>{points}</td></tr>')
    head = '<thead><tr><th scope="col">Exercise</th><th scope="col">Points</th></tr></thead>'
    table = f"<h2>Points</h2><table>{head}<tbody>{''.join(rows)}</tbody></table>"
    return table + "<h2>What was found</h2>" * bool(reasons) + "".join(reasons)


def _reason(row: dict, item: dict) -> str:
    """Why points were lost or what was measured, and what a teacher wrote; empty where there is
    nothing to say.
    """
    kind = ' class="lost"'
    if row["points"] == row["of"]:  # the points may have been given by hand
        kind, item = "", {"message": item["message"]} if item.get("measured") else {}
    message = item.get("message", "")
    lines = [f"<p{kind}>{_with_code(message)}</p>"] if message else []
    if row["comment"] and not (row["waiting"] and row["comment"] == LEFT_EMPTY):
        lines.append(_comment(row["comment"]))  # what waits may stand in a cell of the student's
    lines += [f"<p>{html.escape(text)}</p>" for text in _cases(item.get("cases", []))]
    for word, text in item.get("shown", {}).items():
        if text and not (word == HINT and text in message):  # most messages hold the hint already
            told = html.escape(text[:MOST_SHOWN] + "..." * (len(text) > MOST_SHOWN))
            told = told if word in (HINT, CALLS) else f"<code>{told}</code>"
            lines.append(f"<p><b>{word}</b> {told}</p>")
    return "".join(lines)


def _with_code(words: str) -> str:
    """Words as HTML; what stands between backticks is code."""
    return re.sub("`(.+?)`", r"<code>\1</code>", html.escape(words))


def _cases(cases: list) -> list[str]:
    """How many of the cases were right, and which were not."""
    if not cases or any(0 < share < 1 for _, share in cases):  # of a5's network
        return []
    wrong = [label for label, share in cases if share < 1]
    return [f"Right in {len(cases) - len(wrong)} of {len(cases)} cases. Not in: {'; '.join(wrong)}"]


def _cells(notebook, scores: dict) -> list[str]:
    parts = []
    for cell in notebook.cells:
        name = cell.metadata.get("nbgrader", {}).get("grade_id", "")
        text = cell.cell_type == "markdown"
        parts.append(markdown(cell.source) if text else f"<pre>{html.escape(cell.source)}</pre>")
        if name in scores and cell.cell_type == "markdown" and scores[name]["comment"]:
            parts.append(_comment(scores[name]["comment"]))
    return parts


def _comment(text: str) -> str:
    """What a teacher wrote, in Markdown, as the Formgrader says."""
    return f'<div class="lost">{markdown(text)}</div>'


class SafeMarkdown(Preprocessor):
    """Turn Markdown cells into HTML in which nothing can run."""

    def preprocess_cell(self, cell, resources, index):
        """Render one cell."""
        if cell.cell_type == "markdown":
            # One block on one line passes through the Formgrader's own Markdown untouched.
            cell.source = f"<div>{markdown(cell.source).replace(chr(10), '&#10;')}</div>"
        return cell, resources
