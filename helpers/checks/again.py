"""`python -m helpers.checks.again EXERCISES NAME`: check a kept answer where nothing else is defined."""

import sys

from helpers.checks import exercises
from helpers.checks.trying import first_failure


def main(file: str, name: str) -> int:
    """The exit status is 0 when the answer in mine.py is right."""
    exercises.use(file)
    failure = first_failure(exercises.find(name), exercises.answers().own(name))
    if failure:
        print(failure.replace("\n", " "), file=sys.stderr)
    return int(failure is not None)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
