"""Write the generated reference pages: `python docs/site/reference.py`. A test compares them with the code.

One page per command in ``reference/cli/`` and one per module of the public API in ``reference/python/``.
"""

import importlib
import inspect
import re
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import graphveil

REFERENCE = Path(__file__).parents[1] / "reference"
PYTHON = {  # page: title, what it is for, public names
    "estimators": (
        "Estimators",
        "Train a model with a privacy guarantee. All estimators share the parameters of `Estimator`.",
        "graphveil: Estimator AutoClassifier ClassCode Spectral GAP MLP RelationalClassifier GCN GAT SAGE "
        "load_model METHODS register; "
        "graphveil.estimators.lifecycle: Model; "
        "graphveil.training.metrics: Evaluation ClassMetrics",
    ),
    "custom-models": (
        "Custom models",
        "Train your own modules.",
        "graphveil: PrivateGNN PrivateModule private_hops ReleasedRows",
    ),
    "links": (
        "Links and recommendations",
        "Score pairs of nodes, and recommend items to users.",
        "graphveil: LinkPredictor Recommender Interactions; "
        "graphveil.links.pairs: PairModel; "
        "graphveil.links.recommender: ItemModel Recommendations",
    ),
    "local": (
        "Local privacy",
        "Estimators for unit `local-attributes` and `edge-subset`.",
        "graphveil: LPGNN LabelPosterior SimGAT HeteroRR",
    ),
    "collection": (
        "Collection of LDP reports",
        "Collection protocols, clients and the collector.",
        "graphveil.local.collect: *",
    ),
    "data": (
        "Graphs and datasets",
        "Load, prepare and split graphs and tables.",
        "graphveil: Graph Tables Rows read_graph open_graph load_dataset list_datasets split compare",
    ),
    "privacy": (
        "Privacy units and guarantees",
        "Privacy units, guarantees, accounting and calibration.",
        "graphveil: Guarantee calibrate; graphveil.privacy: *",
    ),
    "ledger": (
        "Privacy ledger",
        "Ledgers in memory and on disk.",
        "graphveil: MemoryLedger attach_ledger ledger_of; graphveil.ledger: *",
    ),
    "mechanisms": ("Mechanisms", "Noise, local mechanisms and randomized labels.", "graphveil.mechanisms: *"),
    "perturb": ("Graph release", "Mechanisms that release a noisy graph.", "graphveil.perturb: *"),
    "audit": ("Audits", "Lower bounds, canaries and neighbor tests.", "graphveil.audit: *"),
    "attacks": ("Attacks", "Measure what an attacker learns.", "graphveil.attacks: *"),
    "papers": (
        "Mechanisms as published",
        "Mechanisms of papers, with their flaws and without a valid guarantee.",
        "graphveil.papers.as_published: *",
    ),
    "sweeps": ("Sweeps", "Grids of methods, budgets and settings.", "graphveil: sweep"),
    "backends": ("Aggregation backends", "Who computes sums over edges.", "graphveil.backends: *"),
    "serve": ("Server", "The HTTP application.", "graphveil.serve: *"),
}


def main() -> None:
    """Write all pages, and remove those of names that are gone."""
    pages = {**cli_pages(), **python_pages()}
    for folder in ("cli", "python"):
        (REFERENCE / folder).mkdir(exist_ok=True)
        for path in (REFERENCE / folder).glob("*.md"):
            if f"{folder}/{path.name}" not in pages:
                path.unlink()
    for name, text in pages.items():
        (REFERENCE / name).write_text(text, encoding="utf-8")


# -- command line ------------------------------------------------------------------------------------------


def cli_pages() -> dict[str, str]:
    """Return the page of each command, and an index."""
    from graphveil.cli import command as root

    group = root.__wrapped__()  # whose commands have not run
    lines = ["# Command line", "", "Run `graphveil COMMAND --help` for the same text in a terminal.", ""]
    lines += ["| command | purpose |", "|---|---|"]
    pages = {}
    for name, command in group.commands.items():
        lines.append(f"| [`{name}`]({name}.md) | {one_line(command)} |")
        parts = [f"# graphveil {name}", "", text_of(command)]
        for inner, one in getattr(command, "commands", {}).items():
            parts += [
                "",
                f"## graphveil {name} {inner}",
                "",
                text_of(one),
                *options(f"{name} {inner}", one, 3),
            ]
        if not hasattr(command, "commands"):
            parts += options(name, command, 2)
        pages[f"cli/{name}.md"] = "\n".join(parts).rstrip() + "\n"
    lines += ["", "Exit codes and JSON output: [JSON output](../json.md)."]
    return {"cli/index.md": "\n".join(lines) + "\n", **pages}


def one_line(command: Any) -> str:
    """Return the first paragraph of a command's help."""
    return escape((command.help or "").strip().partition("\n\n")[0])


def text_of(command: Any) -> str:
    """Return a command's description as paragraphs."""
    found = inspect.cleandoc(command.help or "").replace("\f", "").replace("\b\n", "")
    return "\n\n".join(escape(part) for part in found.split("\n\n"))


def escape(text: str) -> str:
    """Return text in one line, in which nothing outside of code is markup."""
    parts = " ".join(text.split()).split("`")
    parts[::2] = [re.sub(r"([*_<>|$\[\]])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def options(name: str, command: Any, level: int) -> list[str]:
    """Return the usage line, the options panel by panel, and the examples of a command."""
    from graphveil.cli.help import examples_text

    context = command.context_class(command, info_name=f"graphveil {name}")
    usage = " ".join(command.get_usage(context).removeprefix("Usage: ").split())
    lines = ["", "```console", f"$ {usage}", "```"]
    panels: dict[str, list[Any]] = {}
    for parameter in command.get_params(context):
        if getattr(parameter, "hidden", False):
            continue
        kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
        panels.setdefault(parameter.rich_help_panel or kind, []).append(parameter)
    for panel, parameters in panels.items():
        lines += ["", f"{'#' * level} {panel}", ""]
        for parameter in parameters:
            lines += [heading(parameter), f":   {details(parameter)}", ""]
    examples = examples_text(command).rstrip().removeprefix("Examples:\n").splitlines()
    shown = [re.sub(r"^  (?=graphveil )", "$ ", line) for line in examples]
    return [*lines, f"{'#' * level} Examples", "", "```console", *shown, "```"]


def heading(parameter: Any) -> str:
    """Return an option's names with its value, as a term."""
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar or parameter.name.upper()}`"
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    if parameter.is_flag:
        return names
    annotation = parameter.type_descriptor.annotation
    kinds = {"Path": "PATH", "str": "TEXT", "int": "INT", "float": "FLOAT"}
    choices = "|".join(map(str, get_args(annotation))) if get_origin(annotation) is Literal else ""
    return (
        f"{names} `{parameter.metavar or choices or kinds.get(getattr(annotation, '__name__', ''), 'VALUE')}`"
    )


def details(parameter: Any) -> str:
    """Return an option's help, whether it is required, and its default."""
    parts = [escape(parameter.help)] if parameter.help else []
    if parameter.required:
        parts.append("Required.")
    elif parameter.default not in (None, False, (), [], "") and not callable(parameter.default):
        parts.append(f"Default: `{parameter.default}`.")
    return " ".join(parts) or "See the description of the command."


# -- Python ------------------------------------------------------------------------------------------------


def python_pages() -> dict[str, str]:
    """Return the page of each public module, and an index."""
    index = ["# Python API", "", "Every public name of graphveil. Examples in docstrings run as tests.", ""]
    index += ["| page | content |", "|---|---|"]
    pages = {}
    for page, (title, purpose, names) in PYTHON.items():
        found = [pair for group in names.split("; ") for pair in public(group)]
        lines = [f"# {title}", "", purpose, ""]
        for shown, where in found:
            lines += [f"::: {where}", "    options:", f"      heading: {shown}", ""]
        pages[f"python/{page}.md"] = "\n".join(lines).rstrip() + "\n"
        index.append(f"| [{title}]({page}.md) | {purpose} |")
    return {"python/index.md": "\n".join(index) + "\n", **pages}


def public(group: str) -> list[tuple[str, str]]:
    """Return public names of a module, each with the place of its definition."""
    module_name, _, names = group.partition(": ")
    module = importlib.import_module(module_name)
    exported = getattr(module, "__all__", None) or [
        name
        for name, one in vars(module).items()
        if name[0] != "_" and not (inspect.isroutine(one) and not one.__module__.startswith("graphveil"))
    ]
    chosen = sorted(exported) if names == "*" else names.split()
    found = []
    for name in chosen:
        value = getattr(module, name)
        if inspect.ismodule(value):
            continue
        defined = inspect.isclass(value) or inspect.isfunction(value)
        where = f"{value.__module__}.{value.__qualname__}" if defined else f"{module_name}.{name}"
        found.append((f"{module_name}.{name}".replace("graphveil.", "gv.", 1), where))
    return found


def undocumented() -> set[str]:
    """Return public names of the package that no page shows."""
    shown = {
        shown for text in python_pages().values() for shown in re.findall(r"heading: gv\.([\w.]+)", text)
    }
    return {
        name
        for name in graphveil.__all__
        if name not in shown and not inspect.ismodule(getattr(graphveil, name))
    }


if __name__ == "__main__":
    main()
