"""Makes lesson_histories.csv: `python data/make_lesson_histories.py`. Nobody real is in it.

48 lessons in 8 chapters of 6: lesson 1 to 6 are chapter 1, 7 to 12 chapter 2, and so on. Each
learner has a habit, which can be read off the lessons taken so far:

- in order: the next lesson, through the chapter and on into the next one;
- in pairs: the same lesson of the other chapter of the pair (1 and 2, 3 and 4, ...), then back to
  the next lesson of the first;
- looking back: after every two new lessons the first of the two once more.

One step in ten is a lesson drawn at random, after which the learner goes on from there.
"""

import csv
import random
from pathlib import Path

LESSONS, IN_CHAPTER = 48, 6
LEARNERS, SHORTEST, LONGEST = 1500, 6, 16
SURPRISE = 0.1
HABITS = ("in order", "in pairs", "looking back")
COLUMNS = ("learner", "split", "lessons")
HERE = Path(__file__).with_name("lesson_histories.csv")


def after(lesson: int) -> int:
    """The next lesson; the first one after the last."""
    return lesson % LESSONS + 1


def twin(lesson: int) -> int:
    """The lesson at the same place in the other chapter of the pair."""
    chapter, place = divmod(lesson - 1, IN_CHAPTER)
    return (chapter ^ 1) * IN_CHAPTER + place + 1


def history(habit: str, length: int, chance: random.Random) -> list[int]:
    """The lessons that a learner of this habit takes."""
    lesson, back, new = chance.randint(1, LESSONS), False, 1
    taken = [lesson]
    while len(taken) < length:
        if chance.random() < SURPRISE:
            lesson, back, new = chance.randint(1, LESSONS), False, 1
        elif habit == "in order":
            lesson = after(lesson)
        elif habit == "in pairs":
            lesson, back = (after(twin(lesson)) if back else twin(lesson)), not back
        elif new == 2:  # the review itself does not count as new
            taken.append(taken[-2])
            new = 0
            continue
        else:
            lesson, new = after(lesson), new + 1
        taken.append(lesson)
    return taken


def rows() -> list[tuple[int, str, str]]:
    """What stands in the file: the learner's number, the split, the lessons with spaces between."""
    chance = random.Random(8)
    made = []
    for learner in range(1, LEARNERS + 1):
        length = chance.randint(SHORTEST, LONGEST)
        lessons = history(chance.choice(HABITS), length, chance)
        split = "held out" if learner % 5 == 0 else "train"
        made.append((learner, split, " ".join(map(str, lessons))))
    return made


def main(path: Path = HERE) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows())


if __name__ == "__main__":
    main()
