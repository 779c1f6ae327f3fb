"""Copies of forbidden functions are told to the teacher."""

import inspect
import textwrap
import time

import pytest
import torch.nn.utils.fusion as fusion

from course.grading import answers, course
from course.grading.copies import copied
from course.grading.judge import ODD
from course.grading.tokens import names_in, texts_in

NAME = "torch.nn.utils.fusion.fuse_conv_bn_weights"
PATTERNS = ("torch.nn.utils.fusion.*",)
COPY = textwrap.dedent(inspect.getsource(fusion.fuse_conv_bn_weights))


@pytest.mark.parametrize(
    "source",
    [
        COPY,
        COPY.replace("fuse_conv_bn_weights", "mine").replace("conv_w", "w").replace("bn_b", "b"),
        f"exec({COPY!r})",
        f"import torch\n\n\ndef other():\n    pass\n\n\n{COPY}",
    ],
    ids=["as it is", "other names", "in a text", "among others"],
)
def test_a_copy_is_found(source):
    assert copied(["x = 1", source], PATTERNS) == [NAME]


@pytest.mark.parametrize("name", course.names())
def test_no_right_answer_is_one(name):
    exercise = course.load(name)
    patterns = tuple({p for item in exercise.assignment.items for p in item.forbidden})
    right = [answer.code for answer in answers.read(exercise) if answer.right]
    cells = [*answers.solution_cells(exercise).values(), *right]
    assert copied(cells, patterns) == []
    assert ODD.findall("\n".join(cells)) == []


def test_to_ask_for_colab_is_nothing_odd():
    assert ODD.findall("IN_COLAB = 'google.colab' in sys.modules") == []
    assert ODD.findall("sys.modules['torch'] = 1") == ["sys.modules"]


def test_half_a_function_and_code_that_python_does_not_read_are_no_copies():
    assert copied([COPY[: len(COPY) // 2], "def ("], PATTERNS) == []


def test_a_text_that_python_parses_for_minutes_is_read_at_once():
    source = "import " + ".".join(["a"] * 90_000)
    start = time.process_time()
    assert copied([source], PATTERNS) == texts_in(source) == []
    assert names_in(source) == {"import", "a"}
    assert time.process_time() - start < 10


def test_names_and_texts_are_found_without_the_parser():
    source = "y = f(x).g + 'a\\n' f'{z}'\ndef ("
    assert names_in(source) == {"f", "x", "def"}
    assert "a\n" in texts_in(source)
