import json

import pytest

from course.grading import course, stats
from course.grading.classroom import Classroom, write

A5 = course.load("a5")
RULE = A5.load_driver()
BESIDE_TARGET = {  # accuracy above the least that earns points, and bytes as a share of the most that do
    "ada": (0.14, 0.30), "bela": (0.11, 0.44), "chen": (0.08, 0.25), "dora": (0.06, 0.62),
    "emil": (0.01, 0.95), "fay": (0.18, 1.40), "gwen": (-0.06, 0.21), "hugo": (0.09, 0.70),
    "kira": (-0.54, 9.00),
}  # fmt: skip
CLASS = {
    name: (round(RULE.TARGET_ACCURACY + more, 2), int(size * RULE.TARGET_BYTES))
    for name, (more, size) in BESIDE_TARGET.items()
}


@pytest.fixture
def room(tmp_path):
    room = Classroom.open(tmp_path / "class")
    networks = {
        student: {"points": 30 * RULE.earned(accuracy, size), "measured": {"accuracy": accuracy, "bytes": size}}
        for student, (accuracy, size) in CLASS.items()
    }
    for student, network in (networks | {"ines": {"points": 0, "measured": {}}}).items():
        room.submission(student, "a5").mkdir(parents=True)
        items = {"network": {"of": 30, "message": ""} | network, "front": {"points": 8, "of": 8, "message": ""}}
        write(room.result_path("a5", student), json.dumps({"items": items}))
    room.submission("jan", "a5").mkdir(parents=True)  # not graded yet
    return room


def test_the_best_come_first_and_the_figure_shows_every_network_and_the_rule(room, monkeypatch):
    table = stats.standings(room, A5)  # of those with equal points, the smaller file comes first
    assert table["student"].tolist() == ["ada", "bela", "chen", "hugo", "dora", "emil", "gwen", "fay", "kira"]
    assert table["share"].is_monotonic_decreasing and table["share"].iloc[:2].tolist() == [1.0, 1.0]
    assert table.set_index("student").loc["emil", ["accuracy", "bytes"]].tolist() == list(CLASS["emil"])

    drawn = {}
    monkeypatch.setattr(stats.Figure, "savefig", lambda figure, path, **settings: drawn.update({path: figure}))
    png, csv = stats.draw_leaderboard(room, A5)
    (plot,) = drawn[png].axes
    points = [tuple(map(float, offset)) for part in plot.collections[-2:] for offset in part.get_offsets()]
    left, right = plot.get_xlim()
    front = next(line for line in plot.lines if line.get_label() == "front").get_xydata()
    assert [tuple(point) for point in front] == [CLASS[name][::-1] for name in ("chen", "ada")]
    inside = [(float(size), accuracy) for accuracy, size in CLASS.values() if accuracy > 0.5]
    assert sorted(points) == sorted([*inside, (right, plot.get_ylim()[0])])  # what is outside lies at the edge
    assert left < min(size for _, size in CLASS.values()) and right > RULE.TARGET_BYTES
    assert {"1 ada", "6 emil"} <= {text.get_text() for text in plot.texts}
    assert len(csv.read_text().splitlines()) == 1 + len(CLASS)


def test_nothing_is_drawn_of_nothing(tmp_path, a1):
    assert stats.draw_leaderboard(Classroom.open(tmp_path), a1) == []
    with pytest.raises(stats.StatsError, match="grade run"):
        stats.draw(Classroom.open(tmp_path), a1)
