"""Write docs/reference, the man page and completion scripts from the code.

With --check, fail if one of them is stale.
"""

import sys
from pathlib import Path
from typing import Final

import admission
import commands
import controllers
import exit_codes
import extensions
import fields
import kinds
import limits
import man_page
import metrics
from markdown import Page

from kedge.cli.completion.scripts import FILES, SCRIPTS

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "reference"
PAGES: Final = (
    commands.page,
    kinds.page,
    fields.page,
    extensions.page,
    admission.page,
    controllers.page,
    limits.page,
    metrics.page,
    exit_codes.page,
)


def main(arguments: list[str]) -> int:
    pages = [make() for make in PAGES]
    texts = {f"{each.name}.md": each.text() for each in pages} | {"README.md": index(pages)}
    texts["kedge.1"] = man_page.text()
    texts |= {
        f"completion/{shell}/{Path(FILES[shell]).name}": script for shell, script in SCRIPTS.items()
    }
    stale = [name for name, text in texts.items() if current(name) != text]
    files = (each for each in FOLDER.rglob("*") if each.is_file())
    extra = sorted({str(each.relative_to(FOLDER)) for each in files} - texts.keys())
    if arguments == ["--check"]:
        for name in (*stale, *extra):
            print(f"docs/reference/{name} is not what the code says: run 'make docs'")
        return 1 if stale or extra else 0
    FOLDER.mkdir(exist_ok=True)
    for name in stale:
        (FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / name).write_text(texts[name])
    for name in extra:
        (FOLDER / name).unlink()
    print(f"{len(texts)} reference pages, {len(stale) + len(extra)} changed")
    return 0


def current(name: str) -> str:
    path = FOLDER / name
    return path.read_text() if path.exists() else ""


def index(pages: list[Page]) -> str:
    lines = [f"- [{each.title}]({each.name}.md)" for each in pages]
    return "# Reference\n\nGenerated from the code by `make docs`.\n\n" + "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
