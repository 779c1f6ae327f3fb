from helpers.plots.names import place_names
from helpers.plots.style import subplots


def square():
    _, ax = subplots(size=(5, 4))
    ax.set(xlim=(0, 10), ylim=(0, 10))
    return ax


def box_of(text):
    text.figure.draw_without_rendering()
    return text.get_window_extent()


def test_a_name_stands_at_the_upper_left_of_its_point():
    ax = square()
    place_names(ax, [("one", 5, 5)], [(5, 5)])
    x, y = ax.transData.transform((5, 5))
    assert box_of(ax.texts[0]).x1 < x and box_of(ax.texts[0]).y0 > y


def test_names_cover_no_mark_and_no_other_name():
    ax = square()
    marks = [(5, 5), (4, 5.5), (5.1, 5.1)]
    place_names(ax, [("first", 5, 5), ("second", 5.1, 5.1)], marks)
    boxes = [box_of(text) for text in ax.texts]
    assert len(boxes) == 2 and not boxes[0].overlaps(boxes[1])
    assert not any(box.contains(*ax.transData.transform(mark)) for box in boxes for mark in marks)


def test_a_name_stays_inside_the_axes():
    ax = square()
    place_names(ax, [("at the left edge", 0.2, 5)], [(0.2, 5)])
    assert box_of(ax.texts[0]).x0 >= ax.bbox.x0


def test_what_is_written_already_stays_free():
    ax = square()
    place_names(ax, [("first", 5, 5)], [(5, 5)])
    place_names(ax, [("later", 5.1, 5)], [(5.1, 5)])
    first, later = (box_of(text) for text in ax.texts)
    assert not first.overlaps(later)


def test_of_names_without_room_the_first_stays():
    ax = square()
    crowd = [(5 + x / 4, 5 + y / 4) for x in range(-6, 7) for y in range(-4, 5) if x > 0 or y < 0]
    place_names(ax, [("better", 5, 5), ("worse", 5, 5)], crowd)
    assert [text.get_text() for text in ax.texts] == ["better"]
