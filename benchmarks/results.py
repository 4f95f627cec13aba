"""Generate the pages and figures of benchmarks/results from the CSV files there.

    python benchmarks/results.py benchmarks/results

A CSV file has the name TARGET.MODE.csv or TARGET.MODE.quick.csv, with a dash instead of the colon of the
target. `graphveil reproduce TARGET --mode MODE` writes it. For each file this writes TARGET.MODE.md and an
SVG figure per dataset, and then README.md, which lists them, and trends.md. It measures nothing.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import trends

from graphveil.papers.as_published.figures import figures_of
from graphveil.papers.as_published.outputs import Results, read_results_csv
from graphveil.papers.as_published.target import MODES, Mode, ReproductionOptions, cells_of
from graphveil.papers.as_published.targets import TARGETS

_COLUMNS = 72  # characters per line of a command
HEAD = """# Results

Results of single [scripts](../README.md), and reproduced tables and figures of papers.

## Results of scripts

* [Aggregation weights](weights.md) for GAP and ClassCode
* [Attacks](attacks.md) on edges, membership and records, and malicious clients
* [Audits](audit.md) of every method and unit
* [Default settings](defaults.md) of every method, compared with documented numbers
* [Gallery](gallery.md) of broken claims
* [LPGNN and label posterior](lpgnn.md)
* [Released graphs](topology-tables.md)
* [SimGAT compared with KProp](simgat-tables.md)

## Reproduced papers

[`graphveil reproduce`](../../docs/how-to/reproduce.md) writes a CSV file per target and mode.
`python benchmarks/results.py benchmarks/results` generates each page from the CSV file with its name. A page
contains the command that wrote the CSV file. [Trends](trends.md) is generated from the same files.

Attacks are `gap:table3` (membership), `heterorr:linkteller` (edges) and `heterorr:reconstruction` (records).
"""


def main() -> None:
    """Write the pages of a folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="folder with the CSV files")
    folder = parser.parse_args().folder
    for name, content in pages(folder).items():
        (folder / name).write_text(content, encoding="utf-8")
    for path in sorted(folder.glob("*.csv")):
        results = kept(path)
        for name, drawn in figures(results, path.stem).items():
            (folder / name).write_bytes(drawn)


def pages(folder: Path) -> dict[str, str]:
    """Return every page by its name."""
    found, lines = dict[str, str](), []
    read = {path: kept(path) for path in sorted(folder.glob("*.csv"))}
    for path, results in read.items():
        found[f"{path.stem}.md"] = "\n".join(page(results, path)) + "\n"
        run_options, target = results.run_options, results.target
        lines.append(
            f"* [`{target.name}`, {run_options.mode} mode]({path.stem}.md): {target.title} "
            f"({', '.join(target.datasets)}; {run_options.runs} run{'s' * (run_options.runs > 1)})"
        )
    found["trends.md"] = trends.page({path.stem: results for path, results in read.items()})
    return {"README.md": "\n".join([HEAD, *lines]) + "\n", **found}


def page(results: Results, path: Path) -> Iterator[str]:
    """Yield the lines of a page: its command, figures, tables."""
    title, _, rest = results.page().partition("\n")
    yield f"{title} ({results.run_options.mode} mode)"  # a target has a page per mode
    yield from (
        "",
        "[All results](README.md)",
        "",
        f"```console\n$ {command(results)}\n```",
        "",
        f"{whole(results)}{without_strict(results, path)}",
        "",
    )
    drawn = dict.fromkeys(point.place[0] for point in results.points if point.mean is not None)
    for dataset in drawn if results.target.figure else ():
        words = f"{results.target.title}: {dataset}"
        yield from (f"![{words}]({path.stem}.{dataset.replace('/', '-')}.svg){{.wide}}", "")
    yield from rest.strip().split("\n")


def whole(results: Results) -> str:
    """Return a sentence with the number of cells, and the size and time of the whole grid."""
    run_options, target = results.run_options, TARGETS[results.target.name]
    cells = len(cells_of(target, ReproductionOptions(mode=run_options.mode, runs=3)))
    minutes = target.minutes[0 if run_options.mode == "paper" else 2]
    return (
        f"{len(results.runs):,} cells. The whole grid on {', '.join(target.datasets)} with three runs has "
        f"{cells:,}, about {_minutes(minutes)} on two cores."
    )


def _minutes(number: float) -> str:
    return f"{number:g} minute{'' if number == 1 else 's'}"


def without_strict(results: Results, path: Path) -> str:
    """Return a sentence with the command for strict mode if it was not run."""
    target = TARGETS[results.target.name]
    kinds = {line.method for line in target.lines}
    strict_files = list(path.parent.glob(f"{path.name.partition('.')[0]}.strict.*csv"))
    if results.run_options.mode == "strict" or "strict" not in target.modes or kinds == {"-"} or strict_files:
        return ""
    return (
        f" Strict mode was not run here. `graphveil reproduce {target.name} --mode strict` takes about "
        f"{_minutes(target.minutes[2])} on two cores."
    )


def command(results: Results) -> str:
    """Return the command for these results."""
    target, run_options = results.target, results.run_options
    words = [f"graphveil reproduce {target.name} --mode {run_options.mode} --runs {run_options.runs}"]
    words += [f"--datasets {','.join(target.datasets)}"]
    if target.axis is not None and target.axis.chosen:
        words += [f"--at {','.join(f'{x:g}' for x in target.axis.values)}"]
    if run_options.quick:
        words += ["--quick"]
    return " \\\n    ".join(_lines(words))


def _lines(words: Sequence[str]) -> Iterator[str]:
    """Join words to lines of limited length."""
    line, *others = words
    for word in others:
        if len(line) + len(word) > _COLUMNS:
            yield line
            line = word
        else:
            line = f"{line} {word}"
    yield line


def figures(results: Results, stem: str) -> dict[str, bytes]:
    """Return the figures of results by file name."""
    if not results.target.figure:
        return {}
    drawn = figures_of(results.target, results.plotted, ("svg",))
    return {f"{stem}.{name}": content for name, content in drawn.items()}


def kept(path: Path) -> Results:
    """Return the results in a file, whose name states target and mode."""
    name, mode, *quick = path.stem.split(".")
    target = next(TARGETS[each] for each in TARGETS if each.replace(":", "-") == name)
    return read_results_csv(path.read_text(encoding="utf-8"), target, mode_named(mode), quick=bool(quick))


def mode_named(name: str) -> Mode:
    """Return the mode of a name."""
    return next(mode for mode in MODES if mode == name)


if __name__ == "__main__":
    main()
