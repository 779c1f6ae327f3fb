"""Exercises inside the lessons: checked at once, with hints in steps; what is right is kept for later lessons.

checks.use("exercises/lesson_05.py")      # once per notebook: where its exercises are
def output_size(...): ...                 # the learner's cell
checks.check(output_size)                 # says that it is right and keeps it, or raises with a hint
fold = checks.yours("fold_conv_bn")       # in a later lesson: the learner's own, or the course's

specification.py   what an exercise is: inputs from a seed, an independent oracle, a tolerance, hints
inputs.py          random inputs that several exercises need
compare.py         where two answers differ, in words
trying.py          one try at an exercise: what is wrong, in terms of the learner's own lines
keeping.py         mine.py, the answers that were right, and solutions of the course
"""

from helpers.checks.exercises import NotRightYet, by_lesson, check, find, progress, use, yours
