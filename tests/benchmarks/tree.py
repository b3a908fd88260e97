"""The worktree of the benchmark, and what happens to it. The same numbers give the same bytes on every side."""

import random
from pathlib import Path

__all__ = ["change_many", "edit_one", "make", "sample"]

FILES_PER_DIRECTORY = 20
WORDS = ("return", "value", "None", "self", "for", "item", "in", "import", "data", "class", "True", "range", "print")


def make(root: Path, files: int) -> None:
    """Make small text files of about 1.6 KB, like sources; every one has its own content."""
    chance = random.Random(7)
    for index in range(files):
        if index % FILES_PER_DIRECTORY == 0:
            folder = root / f"package_{index // 400}" / f"module_{index // FILES_PER_DIRECTORY}"
            folder.mkdir(parents=True)
        lines = (" ".join(chance.choices(WORDS, k=8)) for _ in range(35))
        (folder / f"file_{index}.py").write_text(f"# {index}\n" + "\n".join(lines) + "\n")


def sample(root: Path) -> list[Path]:
    """All files of make(), sorted."""
    return sorted(root.glob("package_*/module_*/file_*.py"))


def edit_one(root: Path, run: int) -> None:
    """Append a line to one file."""
    files = sample(root)
    with open(files[(run * 7919) % len(files)], "a") as file:
        file.write(f"# edit {run}\n")


def change_many(root: Path, run: int, changed: int, deleted: int, added: int) -> None:
    """Change, delete and add so many files, spread over the whole tree."""
    files = sample(root)
    random.Random(run).shuffle(files)
    for path in files[:changed]:
        path.write_text(path.read_text() + f"# run {run}\n")
    for path in files[changed : changed + deleted]:
        path.unlink()
    for index, path in enumerate(files[changed + deleted :][:added]):
        path.with_name(f"added_{run}_{index}.py").write_text(f"# added {index}\n" * 60)
