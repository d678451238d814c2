"""Build the documentation site in `build/site` from the pages of this checkout.

Zensical wants one folder of pages. This project keeps README, docs and examples side by side, so
that their links work on code hosts. Zensical builds a copy with the same layout. The table of pages
of docs/README.md is the navigation.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCE: Final = ROOT / "build" / "site-source"
RESULT: Final = ROOT / "build" / "site"
FOLDERS: Final = ("docs", "examples")
LINK: Final = re.compile(r"\[([^\]]*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")
CODE: Final = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
ROW: Final = re.compile(r"^\| (?:\[[^\]]*\]\(([^)]+)\)|\*\*([^*]+)\*\*) \|", re.MULTILINE)
FIRST_SECTION: Final = "Use kedge"


def main() -> int:
    shutil.rmtree(SOURCE, ignore_errors=True)
    for page in pages():
        copy(page)
    for folder in FOLDERS:
        add_indexes(SOURCE / folder)
    configuration = SOURCE.parent / "site.yml"
    settings = (Path(__file__).parent / "site.yml").read_text()
    configuration.write_text(settings + yaml.safe_dump({"nav": navigation()}, sort_keys=False))
    program = [str(Path(sys.executable).parent / "zensical"), "build", "--strict", "--clean"]
    code = subprocess.run([*program, "--config-file", str(configuration)], check=False).returncode
    if code == 0:
        print(f"open {RESULT.relative_to(ROOT)}/index.html")
    return code


def pages() -> Iterator[Path]:
    yield from sorted(ROOT.glob("*.md"))
    for folder in FOLDERS:
        yield from sorted((ROOT / folder).rglob("*.md"))


def copy(page: Path) -> None:
    """Copy a page, and the files that it links to."""
    target = SOURCE / page.relative_to(ROOT)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(with_links(page))
    for path in linked(page):
        file = (page.parent / path).resolve()
        if file.is_file() and file.suffix != ".md":
            beside = SOURCE / file.relative_to(ROOT)
            beside.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, beside)


def linked(page: Path) -> Iterator[str]:
    for match in LINK.finditer(CODE.sub("", page.read_text())):
        yield match[2]


def with_links(page: Path) -> str:
    """Return the text of a page, in which links to folders lead to their index pages. A folder
    without pages has none: the text of the link stays."""

    def followed(match: re.Match[str]) -> str:
        text, path, _ = match.groups()
        folder = (page.parent / path).resolve()
        if not folder.is_dir():
            return match[0]
        has_pages = folder.relative_to(ROOT).parts[0] in FOLDERS
        return f"[{text}]({path.rstrip('/')}/README.md)" if has_pages else text

    return LINK.sub(followed, page.read_text())


def add_indexes(folder: Path) -> None:
    """Give each folder without a README.md a list of its pages."""
    for each in [folder, *sorted(path for path in folder.rglob("*") if path.is_dir())]:
        found = sorted(path.relative_to(each) for path in each.glob("*.md"))
        found += sorted(path.relative_to(each) for path in each.glob("*/README.md"))
        if found and not (each / "README.md").exists():
            lines = [f"- [{title(each / path)}]({path})" for path in found]
            (each / "README.md").write_text(
                f"# {each.name.capitalize()}\n\n" + "\n".join(lines) + "\n"
            )


def title(page: Path) -> str:
    return page.read_text().split("\n", 1)[0].removeprefix("# ")


def navigation() -> list[dict[str, object]]:
    """Return the navigation from the table of docs/README.md."""
    index = ROOT / "docs" / "README.md"
    _, table = index.read_text().split("## Pages", 1)
    sections: dict[str, list[str]] = {FIRST_SECTION: []}
    for path, section in ROW.findall(table):
        if section:
            sections[section] = []
        else:
            page = (index.parent / path).resolve()
            page = page / "README.md" if page.is_dir() else page
            sections[list(sections)[-1]].append(str(page.relative_to(ROOT)))
    examples = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("examples/*/README.md"))]
    tutorials = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("docs/tutorials/*.md"))]
    home: list[dict[str, object]] = [
        {"kedge": "README.md"},
        {"Tutorials": tutorials},
        {"Examples": examples},
    ]
    return home + [{name: below} for name, below in sections.items()]


if __name__ == "__main__":
    sys.exit(main())
