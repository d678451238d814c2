"""Check that every link in the documentation leads to a file, and to a heading, that exists."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)[^)]*\)")
BLOCK: Final = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
INLINE: Final = re.compile(r"`[^`\n]*`")


def main() -> int:
    pages = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    pages += sorted((ROOT / "examples").rglob("*.md"))
    broken = [f"{page.relative_to(ROOT)}: {why}" for page in pages for why in problems(page)]
    print("\n".join(broken) or f"{len(pages)} pages, every link leads somewhere")
    return 1 if broken else 0


def problems(page: Path) -> Iterator[str]:
    for link in LINK.findall(INLINE.sub("", BLOCK.sub("", page.read_text()))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield f"there is no {link}"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            yield f"there is no heading for {link}"


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-") for text in headings}


if __name__ == "__main__":
    sys.exit(main())
