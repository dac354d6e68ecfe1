"""The overview of a made-up class."""

import csv
import os
import random
import re
import shutil
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from autograder.course import exercises_of
from autograder.grading.overview import Row, sentence, title, write_overview

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
STEM = "01_norm"
EXERCISES = exercises_of("norm")


def made_up_class(size: int = 30) -> list[Row]:
    """Most solve the first exercises and few the last; mistakes lean to one per exercise."""
    dice = random.Random(5)
    rows = []
    for number in range(size):
        for place, (name, exercise) in enumerate(EXERCISES.items()):
            names = list(dict.fromkeys(mistake.name for mistake in exercise.mistakes))
            luck = dice.random() + 0.12 * place
            if luck < 0.6:
                score, mistakes = exercise.points, []
            elif luck < 1.1:
                pick = min(int(dice.expovariate(0.7)), len(names) - 1)
                score, mistakes = dice.randint(1, exercise.points - 1), [names[pick]]
            else:
                score, mistakes = 0, []
            rows.append(Row(f"student {number}", STEM, name, score, exercise.points, mistakes))
    return rows


def read_csv(folder: Path) -> list[dict[str, str]]:
    with open(folder / "mistakes.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def page(folder: Path) -> BeautifulSoup:
    return BeautifulSoup((folder / "overview.html").read_text("utf-8"), "html.parser")


def small_class() -> list[Row]:
    slip = EXERCISES["rms_norm"].mistakes[0].name
    other = EXERCISES["rms_norm"].mistakes[-1].name
    return [
        Row("ada", STEM, "rms_norm", 3, 6, [slip, other, slip]),
        Row("bo; the <b>", STEM, "rms_norm", 0, 6, [slip]),
        Row("cy", STEM, "rms_norm", 0, 6, []),
        Row("di", STEM, "rms_norm", 6, 6, []),
        Row("ada", STEM, "layer_norm", 6, 6, []),
        Row("bo; the <b>", STEM, "norm_quiz", 5, 6, ["question_3_b"]),
    ]


def test_the_csv_has_each_mistake_with_its_students(tmp_path: Path) -> None:
    write_overview(tmp_path, small_class())
    first, second, quiz = read_csv(tmp_path)
    slip = EXERCISES["rms_norm"].mistakes[0]
    assert first == {
        "lesson": STEM,
        "exercise": "rms_norm",
        "mistake": slip.name,
        "students": "2",
        "share": "0.50",
        "sentence": slip.sentence,
        "who": "ada; bo; the <b>",
    }
    assert (second["students"], second["share"], second["who"]) == ("1", "0.25", "ada")
    assert (quiz["exercise"], quiz["mistake"], quiz["share"]) == (
        "norm_quiz",
        "question_3_b",
        "1.00",
    )
    assert sorted(one.name for one in tmp_path.iterdir()) == ["mistakes.csv", "overview.html"]


def test_the_page_begins_where_the_class_is_stuck(tmp_path: Path) -> None:
    write_overview(tmp_path, small_class())
    first = page(tmp_path).select_one(".first").get_text()
    assert "Begin with norm_quiz" in first and "0 of 1 student solved it" in first
    assert "Question 3, answer b." in first and "Then: rms_norm (1 solved it)." in first


def test_the_page_counts_and_explains(tmp_path: Path) -> None:
    write_overview(tmp_path, small_class())
    soup = page(tmp_path)
    cells = [[cell.get_text() for cell in row(["th", "td"])] for row in soup.table("tr")]
    assert cells[1] == ["layer_norm", "1", "1 (100%)", "0 (0%)", "0 (0%)", "6.0 of 6"]
    assert cells[2] == ["rms_norm", "4", "1 (25%)", "1 (25%)", "2 (50%)", "2.2 of 6"]
    slip = EXERCISES["rms_norm"].mistakes[0]
    told = soup.find("th", string=title(slip.name)).find_next_siblings("td")
    assert [one.get_text() for one in told] == ["2 (50%)", slip.sentence.replace("`", "")]
    assert "answers of 2 of 4 students. 1 lost points otherwise" in soup.get_text()
    assert "rms_norm: 1 solved, 1 partly, 2 not at all" in soup.img["alt"]


def test_the_page_is_whole_and_names_nobody(tmp_path: Path) -> None:
    rows = [*small_class(), Row("ed", "99_<i>gone", "<script>x</script>", 0, 1, ["a_<b>b"])]
    write_overview(tmp_path, rows)
    soup = page(tmp_path)
    assert (
        not soup(["script", "link", "i", "b"]) and "color-scheme: light dark" in soup.style.string
    )
    assert "ada" not in soup.get_text() and "the <b>" not in soup.get_text()
    assert all(image["src"].startswith("data:image/png") for image in soup("img"))
    assert all(cell.get("scope") for cell in soup("th")) and len(soup("caption")) == len(
        soup("table")
    )
    levels = [int(heading.name[1]) for heading in soup(re.compile(r"h\d"))]
    assert levels[0] == 1 and all(b <= a + 1 for a, b in zip(levels, levels[1:], strict=False))


def test_nothing_and_everything(tmp_path: Path) -> None:
    write_overview(tmp_path, [])
    assert "Nothing has been graded" in page(tmp_path).get_text() and read_csv(tmp_path) == []
    write_overview(tmp_path, [Row("ada", STEM, "layer_norm", 6, 6, [])])
    assert "Everyone has solved everything" in page(tmp_path).get_text()


def test_every_mistake_has_its_sentence() -> None:
    for name, exercise in EXERCISES.items():
        for mistake in exercise.mistakes:
            assert sentence(STEM, name, mistake.name) == mistake.sentence
    assert sentence(STEM, "layer_norm", "no_such") == sentence("99_no", "a", "b") == ""


@pytest.mark.parametrize("width", [320, 1100])
def test_it_fits_the_window_light_and_dark(tmp_path: Path, width: int) -> None:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    write_overview(tmp_path, made_up_class())
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=flags)
        for scheme in ("light", "dark"):
            tab = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            said: list[str] = []
            tab.on("console", lambda message, said=said: said.append(message.text))
            tab.goto((tmp_path / "overview.html").as_uri())
            assert tab.evaluate("document.documentElement.scrollWidth") <= width and not said
            if folder := os.environ.get("COURSE_SCREENSHOTS"):
                tab.screenshot(path=Path(folder) / f"overview-{scheme}-{width}.png", full_page=True)
                if width > 1000:
                    tab.pdf(path=Path(folder) / "overview.pdf")
        chromium.close()
