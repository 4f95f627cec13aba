"""Apply tables of renames to the Python files of this repository, token by token.

    python tools/names/rename.py tools/names/core.csv tools/names/models.csv tools/names/commands.csv

A row is ``scope,old,new,note``. The scope ``*`` means every file; paths separated by ``;`` mean these
files; ``module`` moves a module or package; ``string`` rows are edits by hand, which this script leaves
alone. A dotted pair such as ``X.of`` -> ``X.from_y`` renames the method in class X and its uses by that
name. Tokens come first, then dotted pairs, then modules, in the order of the tables. The folder is deleted
once the names are in place.
"""

import ast
import csv
import io
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("graphveil", "tests", "benchmarks", "docs")
WORD = re.compile(r"[A-Za-z_]\w*")
TICKS = re.compile(r"(``?)([^`\n]+)(``?)")
Names = dict[str, str]


class Tables:
    """The rows of all tables, by what they apply to."""

    def __init__(self, paths: list[Path]) -> None:
        """Read the tables; rows that disagree are an error."""
        self.everywhere: Names = {}
        self.in_file: defaultdict[str, Names] = defaultdict(dict)
        self.dotted: defaultdict[str, Names] = defaultdict(dict)
        self.modules: Names = {}
        for path in paths:
            with path.open(newline="") as file:
                for row in csv.DictReader(file):
                    self._add(row["scope"].strip(), row["old"].strip(), row["new"].strip())

    def _add(self, scope: str, old: str, new: str) -> None:
        if scope == "string" or old == new:
            return
        if scope == "module":
            self.modules[old] = new
        elif scope == "*" and "." not in old:
            if self.everywhere.setdefault(old, new) != new:
                sys.exit(f"{old} would become {self.everywhere[old]} and {new}")
        else:
            for path in scope.split(";"):
                (self.dotted if "." in old else self.in_file)[path.strip()][old] = new

    def names(self, path: str) -> Names:
        """Return the renames of tokens in a file."""
        return self.everywhere | self.in_file.get(path, {})

    def pairs(self, path: str) -> Names:
        """Return the dotted renames in a file."""
        return self.dotted.get("*", {}) | self.dotted.get(path, {})


def rename_words(text: str, names: Names) -> str:
    """Rename every word of a piece of code."""
    return WORD.sub(lambda match: names.get(match[0], match[0]), text)


def rename_ticks(text: str, names: Names) -> str:
    """Rename words between backticks."""
    return TICKS.sub(lambda match: match[1] + rename_words(match[2], names) + match[3], text)


def rename_code(text: str, path: str, names: Names) -> str:
    """Rename NAME tokens, expressions of f-strings, and code in docstrings and comments."""
    edits = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        new = token.string
        if token.type == tokenize.NAME:
            new = names.get(token.string, token.string)
        elif token.type == tokenize.STRING:
            new = rename_string(token.string, path, names)
        elif token.type == tokenize.COMMENT:
            new = rename_ticks(token.string, names)
        if new != token.string:
            edits.append((token.start, token.end, new))
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for (row, column), (last_row, last_column), new in reversed(edits):
        first, last = starts[row - 1] + column, starts[last_row - 1] + last_column
        text = text[:first] + new + text[last:]
    return text


def rename_string(text: str, path: str, names: Names) -> str:
    """Rename what is code in a string: seeded bugs, dotted names, forward references, doctests."""
    prefix = text[: min(text.index(mark) for mark in "'\"" if mark in text)].lower()
    if path.endswith("contracts/seeded_bugs.py"):
        return rename_words(text, names)
    if "f" in prefix:
        return rename_fstring(text, names)
    if text[len(prefix) :].startswith(('"""', "'''")):
        return "\n".join(_docstring_line(line, names) for line in text.split("\n"))
    body = text[len(prefix) :].strip("'\"")
    if re.fullmatch(r"graphveil(\.\w+)+", body):
        return rename_words(text, names)
    if re.fullmatch(r"[A-Z]\w*(\[.*\]| \| .*)?", body):
        return rename_words(text, {old: new for old, new in names.items() if old.lstrip("_")[:1].isupper()})
    return rename_ticks(text, names)


def _docstring_line(line: str, names: Names) -> str:
    if line.strip().startswith((">>>", "...")):
        return rename_words(line, names)
    argument = re.match(r"(\s+\*{0,2})(\w+)(: .*)$", line)
    if argument:
        line = argument[1] + names.get(argument[2], argument[2]) + argument[3]
    return rename_ticks(line, names)


def rename_fstring(text: str, names: Names) -> str:
    """Rename the expressions of an f-string; quoted text inside them stays."""
    found, at, depth, start = [], 0, 0, 0
    while at < len(text):
        char = text[at]
        if depth == 0 and text[at : at + 2] in ("{{", "}}"):
            found.append(text[at : at + 2])
            at += 1
        elif depth == 0:
            found.append(char)
            depth, start = int(char == "{"), at + 1
        elif char in "'\"" and text.find(char, at + 1) > 0:
            at = text.find(char, at + 1)
        elif char in "{[(":
            depth += 1
        elif char in "}])":
            depth -= 1
            if depth == 0:
                parts = re.split(r"('[^']*'|\"[^\"]*\")", text[start:at])
                found += [
                    part if index % 2 else rename_words(part, names) for index, part in enumerate(parts)
                ]
                found.append(char)
        at += 1
    return rename_ticks("".join(found), names)


def rename_pairs(text: str, names: Names, pairs: Names) -> str:
    """Rename methods and attributes by dotted pairs."""
    for old, new in pairs.items():
        owner, _, name = old.rpartition(".")
        owner, to = names.get(owner, owner), new.rpartition(".")[2]
        text = re.sub(rf"\b{re.escape(owner)}\.{name}\b", f"{owner}.{to}", text)
        lines = text.splitlines(keepends=True)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and node.name == owner:
                for row in range(node.lineno - 1, node.end_lineno or node.lineno):
                    lines[row] = re.sub(rf"\b(def |cls\.){name}\(", rf"\g<1>{to}(", lines[row])
        text = "".join(lines)
    return text


def move_modules(modules: Names) -> None:
    """Move modules and packages, and rename them wherever they are imported or named by path."""
    for old, new in modules.items():
        source, target = (ROOT / f"{name.replace('.', '/')}.py" for name in (old, new))
        if not source.exists():
            source, target = source.with_suffix(""), target.with_suffix("")
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "-C", str(ROOT), "mv", str(source), str(target)], check=True)
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.suffix not in (".py", ".md", ".toml", ".yml") or name.startswith("tools/names"):
            continue
        text = new_text = path.read_text()
        for old, new in sorted(modules.items(), key=lambda item: -len(item[0])):
            (package, stem), (new_package, new_stem) = old.rsplit(".", 1), new.rsplit(".", 1)
            new_text = re.sub(rf"(?<![\w.]){re.escape(old)}(?!\w)", new, new_text)
            if package == new_package:
                lists = rf"(from {re.escape(package)} import (?:\([^)]*\b|[^\n(]*\b)){stem}\b"
                new_text = re.sub(lists, rf"\g<1>{new_stem}", new_text)
            paths = [one.replace(".", "/").removeprefix("graphveil/") + ".py" for one in (old, new)]
            new_text = new_text.replace(*paths)
        if new_text != text:
            path.write_text(new_text)


def main() -> None:
    """Rename in all Python files, then move the modules."""
    tables = Tables([Path(argument) for argument in sys.argv[1:]])
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name, text = str(path.relative_to(ROOT)), path.read_text()
            names = tables.names(name)
            new = rename_pairs(rename_code(text, name, names), names, tables.pairs(name))
            ast.parse(new)
            if new != text:
                path.write_text(new)
    move_modules(tables.modules)


if __name__ == "__main__":
    main()
