"""Private sums are formed in declared places only, which ``docs/privacy/proofs/noise.md`` lists."""

import ast
import importlib
import inspect
import pkgutil
from functools import cache
from pathlib import Path

import graphveil.core
from graphveil.core.private_edges import PRIVATE_SUM_SITES
from graphveil.core.query import Query

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "graphveil"
# What reads exact numbers and draws no noise, each with its own argument:
EXACT_READS = {
    "graphveil.core.queries.out_edge_sums:own_lists",  # as the next
    "graphveil.core.queries.out_edge_sums:own_list_sums",  # row v is only for readers of v's record
    "graphveil.core.queries.out_edge_sums:OutEdgeSumQuery.answer",  # factors of sources, for NoisyRows
    "graphveil.core.queries.projected_sums:ProjectedSumQuery.answer",  # as OutEdgeSumQuery
    "graphveil.core.queries.out_edge_sums:exceeds_degree",  # one bit, of an assumption that the owner asserts
    "graphveil.core.queries.bounded_lists:own_ego_graphs",  # as the first
    "graphveil.core.queries.bounded_lists:BoundedTrees.__init__",  # TreeStepsQuery is charged for all roots
    "graphveil.core.queries.edge_training:_in_edges",  # of EdgeGradients
}
SYNTHETIC = {  # sums over synthetic records
    "graphveil.estimators.own.private_module:_fingerprint",
    "graphveil.estimators.gnn.module_training:check_trainable",
    "graphveil.estimators.gnn.module_training:_probed",
}
READS = {"total", "count", "exact", "in_edges", "out_neighbors"}
PUBLISHED = "graphveil.papers.as_published.graph_queries"  # what papers draw, without a valid guarantee
TOOLS = tuple(f"graphveil.core.{part}." for part in ("accounting", "clipping", "edges", "noise"))


@cache
def calls(folder: str) -> tuple[tuple[str, ast.Call], ...]:
    """Return the calls below a folder of the package, each with the qualified name of what it is in."""
    found = list[tuple[str, ast.Call]]()

    def search(node: ast.AST, module: str, place: str) -> None:
        for part in ast.iter_child_nodes(node):
            inner = place
            if isinstance(part, ast.FunctionDef | ast.ClassDef):
                inner = f"{place}.{part.name}" if place else part.name
            if isinstance(part, ast.Call):
                found.append((f"{module}:{inner}", part))
            search(part, module, inner)

    for path in sorted((PACKAGE / folder).rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        search(ast.parse(path.read_text(encoding="utf-8")), module, "")
    return tuple(found)


def is_of_releases(place: str) -> bool:
    """Whether a place is in a query or in a release: not in what these are made of."""
    return place.startswith(("graphveil.core.", PUBLISHED)) and not place.startswith(TOOLS)


@cache
def release_calls() -> tuple[tuple[str, ast.Call], ...]:
    """Return the calls of queries and releases, each with the qualified name of what it is in."""
    return tuple((place, call) for place, call in (*calls("core"), *calls("papers")) if is_of_releases(place))


def parts(*without: str) -> list[str]:
    """Return the folders of the package."""
    return [path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name not in without]


def name_of(call: ast.Call) -> str:
    """Return the last part of what is called."""
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def is_declared(place: str) -> bool:
    """Whether a place is declared, or is within one that is."""
    return any(place == site.place or place.startswith(f"{site.place}.") for site in PRIVATE_SUM_SITES)


def is_reached_from_declared_places(place: str, seen: frozenset[str] = frozenset()) -> bool:
    """Whether a function is called by declared places alone, however far away."""
    if is_declared(place) or place in EXACT_READS:
        return True
    function = place.rpartition(":")[2].split(".")[-1]
    module = place.partition(":")[0]
    callers = {caller for caller, call in release_calls() if name_of(call) == function} - {place}
    if function.startswith("_"):  # the private names of other modules are other functions
        callers = {caller for caller in callers if caller.partition(":")[0] == module}
    return bool(callers) and all(
        caller in seen or is_reached_from_declared_places(caller, seen | {place}) for caller in callers
    )


def all_modules_of_release() -> None:
    for found in pkgutil.walk_packages(graphveil.core.__path__, "graphveil.core."):
        importlib.import_module(found.name)
    importlib.import_module(PUBLISHED)


def private_sum_table() -> str:
    """Return the list of places as the table in ``docs/privacy/proofs/index.md``, one line a place."""
    rows = []
    for site in sorted(PRIVATE_SUM_SITES, key=lambda site: (site.place, site.queries)):
        module, _, name = site.place.partition(":")
        file = "/".join(module.split(".")[1:]) + ".py"
        queries, note = ", ".join(f"`{query}`" for query in site.queries), site.note and f"; {site.note}"
        rows.append(f"| {queries} | `{name}` in `{file}`{note} |")
    return "\n".join(["| query | where its exact numbers get their noise |", "|---|---|", *rows])


def test_the_page_lists_the_declared_places() -> None:
    all_modules_of_release()
    page = (ROOT / "docs" / "privacy" / "proofs" / "noise.md").read_text(encoding="utf-8")
    assert private_sum_table() in page, f"docs/privacy/proofs/noise.md, must hold\n{private_sum_table()}"


def test_every_query_has_a_declared_place() -> None:
    all_modules_of_release()
    kinds, found = [Query], set[str]()
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        if not inspect.isabstract(kind) and kind.__module__.startswith(("graphveil.core.", PUBLISHED)):
            found.add(kind.__name__)
    assert {query for site in PRIVATE_SUM_SITES for query in site.queries} == found


def test_noise_is_drawn_in_declared_places_only() -> None:
    drawing = {
        place
        for place, call in release_calls()
        if isinstance(call.func, ast.Attribute)
        and (call.func.attr == "draw" or (call.func.attr == "noise" and call.args))
        and "super()" not in ast.unparse(call.func)
        and ast.unparse(call.func) != "self.trees.draw"
        and ast.unparse(call.func) != "self.draw"
    }
    assert drawing
    assert not {place for place in drawing if not is_reached_from_declared_places(place)}


def test_edges_are_read_exactly_in_declared_places_only() -> None:
    reading = {
        place
        for place, call in release_calls()
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in READS
        and ast.unparse(call.func.value).startswith(("private", "examples.private", "PrivateEdges("))
    }
    assert reading
    assert not {place for place in reading if not is_reached_from_declared_places(place)}


def test_clipped_gradients_are_summed_in_declared_places_only() -> None:
    summing = {
        place
        for part in parts()
        for place, call in calls(part)
        if name_of(call) == "add" and ast.unparse(call.func).endswith("gradients.add")
    }
    assert {place for place in summing if not is_declared(place)} == SYNTHETIC


def test_no_part_but_release_has_noise_for_steps() -> None:
    """Audits look at the law of the noise, on gradients of their own."""
    found = {
        place
        for part in parts("audit")
        for place, call in calls(part)
        if not is_of_releases(place) and name_of(call) in ("randomness", "StepNoise")
    }
    assert not found
