"""Try an answer at once, on the visible inputs. Travels with the student's bundle.

from instant import check
check("name of the exercise")
"""

import sys
import time
import traceback
from collections import Counter
from pathlib import Path

import driver
import wire
from compare import Tolerance, difference
from guard import Forbidden, Guard

import __main__

_items = wire.decode((Path(__file__).parent / "visible.safetensors").read_bytes())
_misses = Counter()


def check(name):
    """Say whether an exercise gives the right answers on the visible inputs; the second and the
    third wrong try get a hint.
    """
    if name not in _items:
        print(f"there is no exercise {name}; there are {', '.join(_items)}")
        return
    item = _items[name]
    if item["function"] not in vars(__main__):
        print(f"{name}: there is no function called {item['function']} yet")
        return
    began = time.process_time()
    # Read again each time: an answer that changes its inputs must not change the next try.
    tried = 0
    for case in wire.decode(wire.encode(item["cases"])):
        tried += 1
        right, words = _try(name, item, case)
        if not right:
            break
    absent = (
        " (answers must do without `helpers`: grading has none)" if "helpers" in sys.modules else ""
    )
    if sys.version_info[:2] > tuple(item["python"]):
        major, minor = item["python"]
        absent += f" (grading has Python {major}.{minor}: what is newer fails there)"
    spent = time.process_time() - began
    # Grading tries more inputs; a second or so, as for the first use of a library, is spent once.
    spent = max(spent, (spent - 1) * item["hidden"] / tried)
    if spent > item["seconds"]:
        absent += f" (with all inputs of grading it computes for about {spent:.0f} s;"
        absent += f" grading ends it after {item['seconds']:g} s)"
    print(f"{name}: {words}{absent}")


def _try(name, item, case):
    """Answer one case: whether it is right, and what to say."""
    run = driver.RUNS.get(
        name, lambda student, inputs: wire.call(student[item["function"]], inputs)
    )
    view = driver.VIEWS.get(name, lambda answer, probe: answer)
    try:
        with Guard(item["forbidden"]) as guard:
            answer = run(vars(__main__), case["inputs"])
        if guard.found:
            raise Forbidden(guard.found)
    except Forbidden as error:
        return False, f"not allowed: {error}"
    except Exception as error:
        if not wire.undone(error):
            words = wire.described(error, vars(__main__))
            formal = isinstance(error, wire.WireError) or wire.MISNAMED in words
            formal = formal or name in driver.SCORES  # whose hints are about points
            return False, _misused(case, words) if formal else _wrong(name, case, words)
        *_, (last, _) = traceback.walk_tb(error.__traceback__)
        others = {one["function"] for one in _items.values()} - {item["function"]}
        if last.f_code.co_name in others:
            return False, f"it calls {last.f_code.co_name}, which is not done yet"
        return False, "not done yet: it still raises NotImplementedError()"
    try:
        observed = view(wire.decode(wire.encode(answer)), case["probe"])
    except Exception as error:
        return False, _misused(case, f"the answer cannot be used ({error})")
    if name in driver.SCORES:
        share, words, _ = driver.SCORES[name](case["expected"], observed)
        if not share:
            return False, _wrong(name, case, words)
        return share == 1, f"{'right' if share == 1 else 'it works'} on the visible inputs. {words}"
    found = difference(case["expected"], observed, Tolerance(*item["tolerance"]))
    if not found:
        return True, "right on the visible inputs"
    if wire.is_of_form(found[0]):
        return False, _misused(case, found[0])
    return False, _wrong(name, case, *found)


def _misused(case, words):
    """What is wrong with the form of an answer; hints speak of its content."""
    return f"not right yet. {case['label']}: {words}."


def _wrong(name, case, words, shown=""):
    """What differs; then, try by try, a nudge, the way, and the first wrong value with it."""
    _misses[name] += 1
    text, (nudge, hint) = f"not right yet. {case['label']}: {words}.", _items[name]["hints"]
    steps = (
        " (After the next wrong answer you get a hint.)",
        f"\n  Hint: {nudge}",
        f"\n  Hint: {hint}",
    )
    return (
        text
        + steps[min(_misses[name], 3) - 1]
        + (f"\n  {shown}" if shown and _misses[name] > 3 else "")
    )
