"""Opens nbgrader's formgrader on a graded class: python -m autograder.grading.formgrader OUT"""

import os
import sys
from pathlib import Path


def main(arguments: list[str]) -> str | None:
    """Become JupyterLab in OUT/course; further arguments go to it. Returns a sentence on error."""
    if not arguments or arguments[0].startswith("-"):
        return "Name the folder that `autograder grade --out` wrote, e.g. grades."
    course = Path(arguments[0]).resolve() / "course"
    if not (course / "nbgrader_config.py").exists():
        return f"{arguments[0]} holds no graded class. Grade one: autograder grade … --out FOLDER"
    os.chdir(course)  # nbgrader's server extension reads the configuration in the working folder
    print("In JupyterLab, open the menu Nbgrader and choose Formgrader.", flush=True)
    command = [sys.executable, "-m", "jupyter", "lab", f"--ServerApp.root_dir={course}"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        # Jupyter refuses without it, and root is usual in containers.
        command.append("--allow-root")
    os.execv(sys.executable, [*command, *arguments[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
