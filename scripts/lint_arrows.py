#!/usr/bin/env python3
"""Checks what the compiler does not: the arrows between the libraries (the table of lib/README.md), where third-party
headers may appear, the length of files, leftover markers, and ASCII.

usage: scripts/lint_arrows.py [--root DIR]    prints one problem a line, exit 1 when there is one
       scripts/lint_arrows.py --self-test     runs the lint on small bad trees, so that it cannot rot unseen
"""
import argparse
import os
import re
import sys
from typing import NamedTuple

HEADER_LINES = 200
SOURCE_LINES = 600
HEADER_SUFFIXES = (".h", ".cuh")
CPP_SUFFIXES = HEADER_SUFFIXES + (".cpp", ".cu")
TEXT_SUFFIXES = CPP_SUFFIXES + (".py", ".sh", ".cmake", "CMakeLists.txt")
FOLDERS = ("app", "lib", "scripts", "test", "third_party")

# Of the libraries it configures, this one sees the config structs alone and therefore links none of them.
CONFIG_ONLY_LIBRARY = "recipe"
# ... except these, which it uses whole.
WHOLE_FOR_CONFIG_ONLY = ("base",)

# Split, so that this file passes its own check.
MARKER = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


class Quarantine(NamedTuple):
    what: str
    header: re.Pattern
    allowed: re.Pattern
    where: str


QUARANTINES = (
    Quarantine("yaml-cpp", re.compile(r"^yaml-cpp/"), re.compile(r"^lib/recipe/[^/]+\.cpp$"), "lib/recipe/*.cpp"),
    Quarantine("libcurl", re.compile(r"^curl/"), re.compile(r"^lib/hub/http_curl\.cpp$"), "lib/hub/http_curl.cpp"),
    Quarantine("CLI11", re.compile(r"^CLI/"), re.compile(r"^app/"), "app/"),
    Quarantine("a communication library", re.compile(r"^(nccl\.h|gloo/|(torch/csrc/distributed/)?c10d/)"),
               re.compile(r"^(lib/dist|test)/"), "lib/dist and tests"),
    Quarantine("CUDA", re.compile(r"^(cuda(_runtime(_api)?)?\.h$|(ATen|c10)/cuda/)"),
               re.compile(r"^(lib/dist/|test/)|\.cuh?$"), ".cu files, lib/dist and tests"),
    Quarantine("<torch/torch.h>", re.compile(r"^torch/(torch|all)\.h$"), re.compile(r"\.(cpp|cu)$"), "source files"),
)


class Library(NamedTuple):
    rank: int
    name: str
    may_include: frozenset


def parse_table(readme):
    """The libraries of lib/README.md by name, and what is wrong with the table itself."""
    rows = []
    for line in readme.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("|") and len(cells) == 4 and cells[0].isdigit():
            rows.append((int(cells[0]), cells[1], cells[2]))
    libraries, problems = {}, []
    if not rows:
        problems.append("lib/README.md: found no table of libraries")
    for rank, name, listed in rows:
        if listed == "all":
            allowed = {other for other_rank, other, _ in rows if other_rank < rank}
        else:
            allowed = {word.strip() for word in listed.split(",")} - {"-"}
        if name in libraries or any(rank == other.rank for other in libraries.values()):
            problems.append(f"lib/README.md: rank {rank} or library {name} is listed twice")
        libraries[name] = Library(rank, name, frozenset(allowed))
    for library in libraries.values():
        for other in sorted(library.may_include):
            if other not in libraries:
                problems.append(f"lib/README.md: {library.name} may include {other}, which is not a library")
            elif libraries[other].rank >= library.rank:
                problems.append(f"lib/README.md: {library.name} may not include {other}: its rank is not lower")
    return libraries, problems


def includes_of(text):
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1) == '"', match.group(2)


def check_arrow(own, target, libraries):
    """Why the library `own` must not include `target`, or None."""
    folder, _, file = target.rpartition("/")
    if folder not in libraries:
        return f'"{target}" is no header of a library: write "<library>/<file>.h"'
    other = libraries[folder]
    if own is None or folder == own.name:
        return None
    if other.rank >= own.rank:
        return f'"{target}": {own.name} (rank {own.rank}) may not look up to {folder} (rank {other.rank})'
    if folder not in own.may_include:
        return f'"{target}": {own.name} may include {", ".join(sorted(own.may_include)) or "nothing"}, not {folder}'
    if own.name == CONFIG_ONLY_LIBRARY and folder not in WHOLE_FOR_CONFIG_ONLY and not file.endswith("_config.h"):
        return f'"{target}": {own.name} may include only the *_config.h of {folder}'
    return None


def check_includes(path, text, libraries):
    parts = path.split("/")
    in_library = parts[0] == "lib"
    if in_library and parts[1] not in libraries:
        return [f"{path}: lib/{parts[1]} is not in the table of lib/README.md"]
    problems = []
    for number, is_quoted, target in includes_of(text):
        for quarantine in QUARANTINES:
            if quarantine.header.match(target) and not quarantine.allowed.search(path):
                problems.append(f"{path}:{number}: {quarantine.what} may be included only in {quarantine.where}")
        is_own_code = target.split("/")[0] in libraries
        if (in_library and (is_quoted or is_own_code)) or (parts[0] == "app" and is_own_code):
            problem = check_arrow(libraries[parts[1]] if in_library else None, target, libraries)
            if problem:
                problems.append(f"{path}:{number}: {problem}")
    return problems


def check_text(path, text):
    problems = []
    lines = text.splitlines()
    if path.endswith(CPP_SUFFIXES):
        limit = HEADER_LINES if path.endswith(HEADER_SUFFIXES) else SOURCE_LINES
        if len(lines) > limit:
            problems.append(f"{path}: {len(lines)} lines, at most {limit} are allowed")
    if path.endswith(HEADER_SUFFIXES) and "#pragma once" not in lines:
        problems.append(f"{path}: #pragma once is missing")
    for number, line in enumerate(lines, 1):
        marker = MARKER.search(line)
        if marker:
            problems.append(f"{path}:{number}: {marker.group(0)}: do it, or file an issue")
        if not line.isascii():
            problems.append(f"{path}:{number}: not ASCII: escape it")
    return problems


def lint(readme, files):
    """`files`: path from the root -> text. Returns the problems, in a fixed order."""
    libraries, problems = parse_table(readme)
    if problems:
        return problems
    for path in sorted(files):
        if path.endswith(CPP_SUFFIXES):
            problems += check_includes(path, files[path], libraries)
        problems += check_text(path, files[path])
    return problems


def read_tree(root):
    files = {}
    for folder in FOLDERS:
        for directory, _, names in os.walk(os.path.join(root, folder)):
            for name in names:
                if name.endswith(TEXT_SUFFIXES):
                    path = os.path.join(directory, name)
                    with open(path, encoding="utf-8", errors="surrogateescape") as source:
                        files[os.path.relpath(path, root).replace(os.sep, "/")] = source.read()
    return files


TEST_TABLE = """
| rank | library | may include | purpose |
|---|---|---|---|
| 0 | base | - | errors |
| 1 | io | base | files |
| 2 | dist | base | groups |
| 3 | recipe | base, dist | typed recipe |
| 4 | train | all | the loop |
"""

# Name of the file, its text, and a part of the one problem it must give; None: it must pass.
TEST_CASES = (
    ("lib/io/file.cpp", '#include "base/error.h"\n#include "io/file.h"\n#include <vector>\n', None),
    ("lib/train/step.cpp", '#include "dist/group.h"\n#include "recipe/recipe.h"\n', None),
    ("lib/recipe/load.cpp", '#include <yaml-cpp/yaml.h>\n#include "base/error.h"\n#include "dist/launch_config.h"\n', None),
    ("lib/dist/group.cpp", "#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>\n", None),
    ("app/main.cpp", '#include <CLI/CLI.hpp>\n#include "train/trainer.h"\n#include "exit_codes.h"\n', None),
    ("lib/base/error.cpp", '#include "io/file.h"\n', "may not look up to io"),
    ("lib/io/file.cpp", '#  include "train/step.h"\n', "may not look up to train"),
    ("lib/base/error.cpp", "#include <io/file.h>\n", "may not look up to io"),
    ("lib/dist/group.cpp", '#include "io/file.h"\n', "dist may include base, not io"),
    ("lib/recipe/load.cpp", '#include "dist/group.h"\n', "only the *_config.h of dist"),
    ("lib/io/file.cpp", '#include "file.h"\n', 'write "<library>/<file>.h"'),
    ("lib/io/file.cpp", '#include "app/main.h"\n', "is no header of a library"),
    ("lib/misc/file.cpp", "", "lib/misc is not in the table"),
    ("lib/io/file.cpp", "#include <yaml-cpp/yaml.h>\n", "yaml-cpp may be included only in lib/recipe/*.cpp"),
    ("lib/recipe/load.h", "#pragma once\n#include <yaml-cpp/yaml.h>\n", "yaml-cpp may be included only in"),
    ("lib/io/file.cpp", "#include <curl/curl.h>\n", "libcurl may be included only in lib/hub/http_curl.cpp"),
    ("lib/train/step.cpp", "#include <CLI/CLI.hpp>\n", "CLI11 may be included only in app/"),
    ("lib/train/step.cpp", "#include <torch/csrc/distributed/c10d/Backend.hpp>\n", "only in lib/dist"),
    ("lib/train/step.cpp", "#include <gloo/context.h>\n", "only in lib/dist"),
    ("lib/train/step.cpp", "#include <c10/cuda/CUDAStream.h>\n", "CUDA may be included only in"),
    ("lib/io/file.h", "#pragma once\n#include <torch/torch.h>\n", "<torch/torch.h> may be included only in source"),
    ("lib/io/file.h", "int f();\n", "#pragma once is missing"),
    ("lib/io/file.h", "#pragma once\n" + "\n" * HEADER_LINES, "at most 200"),
    ("lib/io/file.cpp", "\n" * (SOURCE_LINES + 1), "at most 600"),
    ("lib/io/file.cpp", "// TO" + "DO: later\n", "file an issue"),
    ("scripts/run.sh", "# FIX" + "ME\n", "file an issue"),
    ("test/io/file_test.cpp", 'const char* kText = "caf\u00e9";\n', "not ASCII"),
)

TEST_TABLES = (
    ("", "found no table"),
    (TEST_TABLE.replace("| 1 | io | base |", "| 1 | io | dist |"), "its rank is not lower"),
    (TEST_TABLE.replace("| 1 | io | base |", "| 1 | io | bsae |"), "which is not a library"),
    (TEST_TABLE.replace("| 1 | io |", "| 0 | io |"), "listed twice"),
)


def self_test():
    failures = []

    def expect(label, problems, wanted):
        is_right = not problems if wanted is None else len(problems) == 1 and wanted in problems[0]
        if not is_right:
            failures.append(f"{label}: expected {wanted!r}, found {problems}")

    for path, text, wanted in TEST_CASES:
        expect(path, lint(TEST_TABLE, {path: text}), wanted)
    for table, wanted in TEST_TABLES:
        expect("table", lint(table, {})[:1], wanted)
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        problems, n_checked = self_test(), f"{len(TEST_CASES) + len(TEST_TABLES)} cases"
    else:
        with open(os.path.join(arguments.root, "lib", "README.md"), encoding="utf-8") as readme:
            table = readme.read()
        files = read_tree(arguments.root)
        problems, n_checked = lint(table, files), f"{len(files)} files"
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"lint_arrows: {n_checked}, {len(problems)} problem(s)", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
