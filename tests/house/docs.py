"""Documents keep up with the tree: code that README shows is code that is built, links lead somewhere, named files exist.

    docs.py ROOT
"""
import pathlib
import re
import sys
import textwrap

FOLDERS = "include|src|tools|bindings|sim|examples|tests|bench|docs|scripts|cmake"
NAMED = re.compile(rf"`((?:{FOLDERS})/[\w./-]+\.\w+|(?:{FOLDERS})/[\w/-]+/)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def pages(root):
    yield from sorted(root.glob("*.md"))
    for folder in FOLDERS.split("|"):
        yield from sorted((root / folder).rglob("*.md"))


def anchors(page):
    headings = re.findall(r"^#+\s+(.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def check_page(root, page):
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        where = f"{page.relative_to(root)}:{number}: "
        for target in LINK.findall(line):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            if not file.exists():
                yield f"{where}the link to {target} leads nowhere"
            elif anchor and file.suffix == ".md" and anchor not in anchors(file):
                yield f"{where}{target}: there is no such heading"
        for path in NAMED.findall(line):
            if not (root / path).exists():
                yield f"{where}{path} is named but does not exist"


def check_embedded_code(root):
    """What README shows as the way to embed kvferry is what examples/embed builds and runs."""
    source = (root / "examples/embed/main.cpp").read_text(encoding="utf-8")
    marked = re.search(r"^// readme: begin\n(.*?)^// readme: end\n", source, re.S | re.M)
    if not marked:
        yield "examples/embed/main.cpp: the part for README is not marked"
        return
    wanted = textwrap.dedent(marked.group(1)).strip()
    shown = re.findall(r"```cpp\n(.*?)```", (root / "README.md").read_text(encoding="utf-8"), re.S)
    if wanted not in [block.strip() for block in shown]:
        yield "README.md: no ```cpp block equals the marked part of examples/embed/main.cpp"


def check_error_codes(root):
    """The page of error codes has a row for each code, in order, with the meaning that the code table gives."""
    table = (root / "src/base/codes.h").read_text(encoding="utf-8")
    wanted = re.findall(r'CodeRow\{Code::\w+,\s*"(\w+)",\s*Reaction::(\w+),\s*"([^"]*)"\}', table)
    page = (root / "docs/reference/errors.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| `(\w+)` \| ([\w ]+) \| (.*) \|$", page, re.M)
    words = {"fix_the_call": "fix the call", "room_is_lost": "the room is lost"}
    for code, reaction, meaning in wanted:
        row = (code, words.get(reaction, reaction.replace("_", " ")), meaning)
        if row not in shown:
            yield f"docs/reference/errors.md: needs the row | `{row[0]}` | {row[1]} | {row[2]} |"
    if [row[0] for row in shown] != [row[0] for row in wanted]:
        yield "docs/reference/errors.md: its codes are not those of src/base/codes.h, in order"


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    count = 0
    found = [*check_embedded_code(root), *check_error_codes(root)]
    for page in pages(root):
        count += 1
        found += check_page(root, page)
    print("\n".join(found) if found else f"docs: {count} pages are in step with the tree")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
