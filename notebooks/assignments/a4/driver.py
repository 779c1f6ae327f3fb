"""How the exercises of a4 are run: every function takes and returns plain data, so nothing needs
translating.

`RUNS` asks for integers where an exercise promises them: 32.0 equals 32, but no shift may be a
float.
"""

import operator

INTEGERS = {  # which parts of an answer are, and how to say that
    "scale_and_zero_point": ((1,), "a float and an integer"),
    "fixed_point": ((0, 1), "two integers"),
}


def run_pair(name):
    """A call of an exercise that returns two numbers."""
    places, words = INTEGERS[name]

    def run(student, inputs):
        answer = student[name](**inputs)
        is_pair = isinstance(answer, tuple | list) and len(answer) == 2  # else comparing tells
        if is_pair and not all(_is_integer(answer[place]) for place in places):
            raise TypeError(f"the answer should be {words}, but is {answer}")
        return answer

    return run


def _is_integer(number):
    """Whether it is an integer of Python, NumPy or torch."""
    try:
        operator.index(number)
    except TypeError:
        return False
    return True


RUNS = {name: run_pair(name) for name in INTEGERS}
VIEWS = {}
SCORES = {}
