#!/usr/bin/env python3
"""The rules of the house that a machine can check; ctest runs it.

    scripts/floors.py [ROOT]

Prints one line a finding, "file:line: what is wrong", and exits 1 where there is any.
"""
import pathlib
import re
import sys

LINES_MAX = 400
SOURCES = (".h", ".cpp")

# A folder of src/ and the folders whose headers it may include beside its own.
FLOORS = {
    "base": (),
    "layout": ("base",),
    "protocol": ("base", "layout"),
    "core": ("base", "layout", "protocol"),
    "os": ("base",),
    "transport": ("base", "layout", "protocol", "core", "os"),
    "net": ("base", "layout", "protocol", "os"),
    "runtime": ("base", "layout", "protocol", "core", "os", "transport", "net"),
}
# The floors whose code is a value: the simulator can only replay what decides by its inputs alone.
PURE = ("base", "layout", "protocol", "core")
PURE_BANNED_HEADERS = {
    "atomic", "condition_variable", "fstream", "future", "iostream", "mutex", "random", "semaphore", "shared_mutex",
    "stop_token", "thread", "unordered_map", "unordered_set", "unistd.h", "time.h", "ctime", "pthread.h",
}
PURE_BANNED_HEADER_TREES = ("boost/", "spdlog/", "sys/", "openssl/")
PURE_BANNED = [
    (r"\b\w*clock\w*\s*::\s*now\b|::\s*now\s*\(", "reads a clock; the caller brings the time"),
    (r"\brandom_device\b|\bmt19937|\b[s]?rand\s*\(", "draws random numbers; the caller brings them"),
    (r"\bstd::\w+_distribution\b", "uses a std:: distribution, which differs between libraries"),
    (r"\bgetenv\b", "reads the environment"),
    (r"\bstd::(jthread|thread|this_thread|mutex|shared_mutex|atomic\w*|condition_variable|async|future|promise)\b",
     "knows threads"),
    (r"\bstd::(cout|cerr|clog|[io]?fstream)\b", "does input or output"),
    (r"\bstd::unordered_\w+", "uses a container whose order of iteration is not fixed"),
]
# The one place where a pure folder meets the world: the default argument of Settings::from_environment.
GETENV_ALLOWED = "src/base/settings.cpp"

UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK")) + r")\b")
SLEEP = re.compile(r"\b(sleep_for|sleep_until|usleep|nanosleep)\b|\btime\.sleep\b|(?<![\w.])sleep\s*\(")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def files_under(root, folders, suffixes):
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and path.suffix in suffixes and "build" not in path.relative_to(root).parts:
                yield path


def lines_of(path):
    return path.read_text(encoding="utf-8").splitlines()


def code_lines(path):
    """The lines with comments and the insides of strings blanked; include lines are kept whole."""
    text = path.read_text(encoding="utf-8")
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])*\'', re.S)

    def blank(match):
        piece = match.group(0)
        if piece.startswith('"'):
            line_start = text.rfind("\n", 0, match.start()) + 1
            if INCLUDE.match(text[line_start:match.end()]):
                return piece
            return '""'
        return re.sub(r"[^\n]", " ", piece)

    return pattern.sub(blank, text).splitlines()


def name(root, path):
    return path.relative_to(root).as_posix()


def check_includes(root):
    for path in files_under(root, ("src",), SOURCES):
        floor = path.relative_to(root / "src").parts[0]
        if floor not in FLOORS:
            yield f"{name(root, path)}:1: src/{floor} is no floor that scripts/floors.py knows"
            continue
        for number, line in enumerate(code_lines(path), 1):
            found = INCLUDE.match(line)
            if not found:
                continue
            kind, header = found.groups()
            where = f"{name(root, path)}:{number}: "
            first = header.split("/")[0]
            if kind == '"':
                if first == "kvferry" or first == floor or first in FLOORS[floor]:
                    continue
                if header == "wire.pb.h" and floor == "protocol":
                    continue
                if first in FLOORS:
                    yield f"{where}{floor} may not know {first}"
                else:
                    yield f'{where}"{header}" is neither "folder/header.h" of a floor below nor a public header'
            elif floor in PURE and (header in PURE_BANNED_HEADERS or header.startswith(PURE_BANNED_HEADER_TREES)):
                yield f"{where}{floor} is pure and may not include <{header}>"


def check_public_headers(root):
    for path in files_under(root, ("include",), (".h",)):
        for number, line in enumerate(code_lines(path), 1):
            found = INCLUDE.match(line)
            if not found:
                continue
            kind, header = found.groups()
            standard = kind == "<" and "/" not in header and "." not in header
            if not standard and not (kind == '"' and header.startswith("kvferry/")):
                yield f"{name(root, path)}:{number}: public headers include the standard library and kvferry/ only"


def check_example_engine(root):
    """The example proves what a user can do, so it sees what a user sees."""
    for path in files_under(root, ("examples",), SOURCES):
        for number, line in enumerate(code_lines(path), 1):
            found = INCLUDE.match(line)
            if found and found.group(1) == '"' and found.group(2).split("/")[0] in FLOORS:
                yield f"{name(root, path)}:{number}: examples use the public API alone"


def check_pure_words(root):
    for floor in PURE:
        for path in files_under(root, (f"src/{floor}",), SOURCES):
            for number, line in enumerate(code_lines(path), 1):
                for pattern, what in PURE_BANNED:
                    if not re.search(pattern, line):
                        continue
                    if "getenv" in line and name(root, path) == GETENV_ALLOWED:
                        continue
                    yield f"{name(root, path)}:{number}: {floor} is pure and {what}"


def check_unfinished(root):
    folders = ("include", "src", "tools", "sim", "bench", "examples", "tests", "cmake", "scripts")
    for path in files_under(root, folders, SOURCES + (".txt", ".cmake", ".proto", ".py", ".sh")):
        for number, line in enumerate(lines_of(path), 1):
            if UNFINISHED.search(line):
                yield f"{name(root, path)}:{number}: unfinished work is marked here; finish it or take the mark away"


def check_lengths(root):
    """A ratchet: the list of long files only shrinks, and no file on it grows."""
    allowed = {}
    listing = root / "scripts/long_files.txt"
    for line in lines_of(listing) if listing.exists() else ():
        if line.strip() and not line.startswith("#"):
            count, path = line.split()
            allowed[path] = int(count)
    folders = ("include", "src", "tools", "sim", "bench", "examples", "tests")
    counts = {name(root, path): len(lines_of(path)) for path in files_under(root, folders, SOURCES)}
    for path, count in counts.items():
        limit = allowed.get(path, LINES_MAX)
        if count > max(limit, LINES_MAX):
            yield f"{path}:1: {count} lines, at most {max(limit, LINES_MAX)}; two ideas live here, find them"
    for path, limit in allowed.items():
        count = counts.get(path)
        if count is None or count <= LINES_MAX:
            yield f"scripts/long_files.txt:1: {path} is not long any more; take it off the list"
        elif count < limit:
            yield f"scripts/long_files.txt:1: {path} has {count} lines now; write that instead of {limit}"


def check_sleeps(root):
    for path in files_under(root, ("tests",), SOURCES + (".py",)):
        lines = code_lines(path) if path.suffix in SOURCES else lines_of(path)
        for number, line in enumerate(lines, 1):
            if SLEEP.search(line):
                yield f"{name(root, path)}:{number}: tests wait for a condition with a deadline, they do not sleep"


def check_listed(root):
    """Every source is named in the CMakeLists.txt above it: what is not built rots, and a test that is not built lies."""
    for path in files_under(root, ("src", "tools", "sim", "bench", "examples", "tests"), (".cpp",)):
        folder = path.parent
        while not (folder / "CMakeLists.txt").exists() and folder != root:
            folder = folder.parent
        lists = re.sub(r"#[^\n]*", "", (folder / "CMakeLists.txt").read_text())
        names = set(re.findall(r"[\w./-]+\.cpp", lists))
        if "${target}.cpp" in lists:  # one executable a name, in a loop
            names.update(f"{word}.cpp" for word in re.findall(r"[\w-]+", lists))
        if path.relative_to(folder).as_posix() not in names:
            yield f"{name(root, path)}:1: not named in {name(root, folder / 'CMakeLists.txt')}, so it is never built"


CHECKS = (check_includes, check_public_headers, check_example_engine, check_pure_words, check_unfinished,
          check_lengths, check_sleeps, check_listed)


def findings(root):
    return [finding for check in CHECKS for finding in check(root)]


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    found = findings(root)
    print("\n".join(found) if found else "floors: every rule holds")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
