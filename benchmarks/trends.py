"""The trends that papers report, each with the differences of ours that speak for or against it.

``benchmarks/results.py`` makes ``benchmarks/results/trends.md`` of this list and of the CSV files there.
A trend whose file is not there is left out.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from graphveil.lab.papers.outputs import Results

HEAD = """# Which trends of the papers hold here

Papers say that one thing is better than another. Each row is such a trend, with the differences that it
claims to be above zero, as they came out here: points of the first metric of the page that it links
to, means of runs that are paired by seed. A star stands where every run has the sign of the mean;
chance alone does that to one difference in four of three runs, and what is beyond chance stands on the
page itself. A trend holds where all its differences are above zero.

Only LPGNN's and SimGAT's graph, Cora, is the papers' own. GAP's rows are of Berkeley13 unless they name
another school, where the paper has UIllinois20; Weighted's are of Amazon Computers, and HeteroRR's of Cora,
Twitch and Reed98. Made by `python benchmarks/results.py benchmarks/results`.
"""
SECTIONS = {
    "paper": """
## Paper mode

The papers' own algorithms and accounting, flaws included. {held}
""",
    "strict": """
## Strict mode

The same lines under guarantees that hold, with settings that were fixed beforehand. EdgeRR was compared
with its rivals in this mode alone. {held}
""",
}
TABLE = """
| the paper's trend | ours | does it hold |
|---|---|---|
"""
STAR = r"\*"  # in Markdown two bare ones would set in italics what stands between
Place = tuple[str, str, str, float | None]  # data set, panel, line, place on the axis
Names = str | tuple[str, ...]


@dataclass(frozen=True)
class Trend:
    """One claim, and the pairs of places of which the first is said to be above the second.

    Args:
        claim: what the paper says.
        file: the CSV file, without its ending.
        pairs: label, place, other place.
    """

    claim: str
    file: str
    pairs: tuple[tuple[str, Place, Place], ...]

    def for_mode(self, mode: str, results: Collection[str]) -> "Trend | None":
        """Return the trend with the file of a mode; None where there is none."""
        target, own, *_ = self.file.split(".")
        names = (self.file,) if own == mode else (f"{target}.{mode}", f"{target}.{mode}.quick")
        return next((replace(self, file=name) for name in names if name in results), None)


def lines(
    claim: str, file: str, datasets: Names, panels: Names, one: str, other: str, xs: Iterable[float | None]
) -> Trend:
    """Return the claim that one line is above another; the other may be one that no place changes."""
    every, parts, places = named(datasets), named(panels), tuple(xs)
    pairs = (
        (
            label(dataset, panel if len(parts) > 1 else "", "" if x is None else f"at {x:g}"),
            (dataset, panel, one, x),
            (dataset, panel, other, x),
        )
        for dataset in every
        for panel in parts
        for x in places
    )
    return Trend(claim, file, tuple(pairs))


def along(
    claim: str, file: str, datasets: Names, line: str, steps: Iterable[tuple[str, float, float]]
) -> Trend:
    """Return the claim that a line is higher at the first of two places, panel by panel."""
    every, places = named(datasets), tuple(steps)
    pairs = (
        (
            label(dataset, f"{panel}: {high:g} over {low:g}"),
            (dataset, panel, line, high),
            (dataset, panel, line, low),
        )
        for dataset in every
        for panel, high, low in places
    )
    return Trend(claim, file, tuple(pairs))


def named(names: Names) -> tuple[str, ...]:
    """Return one name or several as a tuple."""
    return (names,) if isinstance(names, str) else names


def label(dataset: str, *words: str) -> str:
    """Return the label of a difference: which school, where it is not the first or nothing else is said."""
    said = [word for word in words if word]
    return ", ".join(said if said and dataset != OTHER else (dataset.rpartition("/")[2], *said))


SCHOOL, OTHER = SCHOOLS = ("facebook100/Berkeley13", "facebook100/Rutgers89")
EDGE, NODE = "edge level", "node level"
FIGURE6, FIGURE7, FIGURE9 = (f"gap-figure{number}.paper.quick" for number in (6, 7, 9))
TABLE2, BACKBONES = "gap-table2.paper", "lpgnn-backbones.paper.quick"
HOPS, MEMBERS = "gap-figure8.paper.quick", "gap-table3.paper"
AT4, AT1, AT16, AT8 = (
    *(f"edge level, epsilon {epsilon}" for epsilon in (4, 1)),
    *(f"node level, epsilon {epsilon}" for epsilon in (16, 8)),
)
ALL = (1.0, 4.0, 8.0)
MECHANISMS, LABELS = (f"lpgnn-{name}.paper.quick" for name in ("mechanisms", "labels"))
KPROP = "lpgnn-kprop.paper"
FEATURES, EDGES = "heterorr-features.paper.quick", "heterorr-edges.strict"
WEIGHTED, SIMGAT = "weighted-figure3.paper.quick", "simgat-results.paper"
TRENDS = (
    lines("GAP: above SAGE over a perturbed graph", FIGURE6, SCHOOLS, EDGE, "GAP-EDP", "SAGE-EDP", ALL),
    lines("GAP: above an MLP that reads no edge", FIGURE6, SCHOOLS, EDGE, "GAP-EDP", "MLP", ALL),
    lines("GAP at node level: above SAGE", FIGURE6, SCHOOLS, NODE, "GAP-NDP", "SAGE-NDP", ALL),
    lines("GAP at node level: above the private MLP", FIGURE6, SCHOOLS, NODE, "GAP-NDP", "MLP-DP", ALL),
    lines("GAP: the encoder's gain", FIGURE7, SCHOOLS, EDGE, "GAP-EDP", "GAP-EDP without encoder", ALL),
    lines(
        "GAP at node level: the encoder's gain",
        FIGURE7,
        SCHOOLS,
        NODE,
        "GAP-NDP",
        "GAP-NDP without encoder",
        ALL,
    ),
    along(
        "GAP: accuracy rises from one hop to two",
        HOPS,
        SCHOOLS,
        "GAP-EDP",
        ((AT4, 2, 1), (AT1, 2, 1)),
    ),
    along("GAP: and falls again with four", HOPS, SCHOOLS, "GAP-EDP", ((AT4, 2, 4), (AT1, 2, 4))),
    along(
        "GAP at node level: accuracy rises from one hop to two",
        HOPS,
        SCHOOLS,
        "GAP-NDP",
        ((AT16, 2, 1), (AT8, 2, 1)),
    ),
    along("GAP at node level: and falls again", HOPS, SCHOOLS, "GAP-NDP", ((AT16, 2, 4), (AT8, 2, 4))),
    along(
        "GAP: what falls is the noise (one hop with the noise of one, over one with the noise of four)",
        HOPS,
        SCHOOLS,
        "one hop, noise of K",
        ((AT4, 1, 4), (AT1, 1, 4), (AT16, 1, 4), (AT8, 1, 4)),
    ),
    along(
        "GAP: accuracy rises with the bound of degrees D up to 100",
        FIGURE9,
        SCHOOLS,
        "GAP-NDP",
        (("epsilon 16", 100, 20), ("epsilon 4", 100, 20)),
    ),
    along(
        "GAP: and falls beyond",
        FIGURE9,
        SCHOOLS,
        "GAP-NDP",
        (("epsilon 16", 100, 400), ("epsilon 4", 100, 400)),
    ),
    *(
        lines(f"GAP: above {rival} (Table 2)", TABLE2, SCHOOLS, panel, one, rival, (None,))
        for panel, one, rival in (
            ("edge level, epsilon 4", "GAP-EDP", "SAGE-EDP"),
            ("edge level, epsilon 4", "GAP-EDP", "MLP"),
            ("node level, epsilon 8", "GAP-NDP", "SAGE-NDP"),
            ("node level, epsilon 8", "GAP-NDP", "MLP-DP"),
        )
    ),
    Trend(
        "GAP: without privacy membership can be told, under epsilon 1 it cannot (AUC, without less with)",
        MEMBERS,
        tuple(
            (line, (SCHOOL, "", line, float("inf")), (SCHOOL, "", line, 1.0))
            for line in ("GAP-NDP", "SAGE-NDP", "MLP-DP")
        ),
    ),
    lines(
        "Weighted: learned attention is worse than none",
        WEIGHTED,
        "amazon/computers",
        "",
        "unweighted (GAP)",
        "learned attention",
        (1.0, 8.0),
    ),
    lines(
        "Weighted: similarity is worse than none, or as good",
        WEIGHTED,
        "amazon/computers",
        "",
        "unweighted (GAP)",
        "similarity",
        (1.0, 8.0),
    ),
    lines(
        "Weighted: similarity is better than learned attention",
        WEIGHTED,
        "amazon/computers",
        "",
        "similarity",
        "learned attention",
        (1.0, 8.0),
    ),
    *(
        lines(f"LPGNN: multi-bit above {rival}", MECHANISMS, "cora", "", "multi-bit", rival, (0.1, 1.0))
        for rival in ("1bm", "lpm", "agm")
    ),
    along(
        "LPGNN: KProp's gain on features (16 steps over none)",
        KPROP,
        "cora",
        "eps_x = 1",
        (("features", 16, 0),),
    ),
    along("LPGNN: the same at eps_x 0.01", KPROP, "cora", "eps_x = 0.01", (("features", 16, 0),)),
    along("LPGNN: KProp's gain on labels at eps_y 1", KPROP, "cora", "eps_y = 1", (("labels", 16, 0),)),
    along("LPGNN: with labels hardly noisy it costs", KPROP, "cora", "eps_y = 2", (("labels", 0, 16),)),
    *(
        lines(f"LPGNN: Drop above {rival}", LABELS, "cora", "", "Drop", rival, (1.0,))
        for rival in ("forward correction", "cross entropy")
    ),
    *(
        lines(
            f"LPGNN: behind KProp, GCN is above {rival} where features are very noisy (eps_x 0.1)",
            BACKBONES,
            "cora",
            panels,
            "GCN",
            rival,
            (0.1,),
        )
        for rival, panels in (("GAT", ("eps_y = 1", "eps_y = inf")), ("SAGE", ("eps_y = inf",)))
    ),
    *(
        lines(
            f"LPGNN: randomized features above {rival}",
            "lpgnn-features.paper.quick",
            "cora",
            "",
            "raw",
            rival,
            (1.0,),
        )
        for rival in ("degree, one-hot", "ones", "random")
    ),
    *(
        Trend(
            f"SimGAT: similar nodes ({kind}) are better than a hop",
            SIMGAT,
            tuple(
                (
                    f"k = {k}",
                    ("cora", "", f"SimGAT(k - 1, {kind}), k = {k}", 1.0),
                    ("cora", "", f"KProp(k), k = {k}", 1.0),
                )
                for k in (2, 4, 8, 16)
            ),
        )
        for kind in ("multihop", "deepwalk")
    ),
    *(
        lines(f"HeteroRR: FeatureRR above {rival}", FEATURES, "cora", "GCN", "FeatureRR", rival, (1.0, 9.0))
        for rival in ("multi-bit (LPGNN)", "three-outputs", "piecewise")
    ),
    *(
        Trend(
            f"HeteroRR: EdgeRR above {rival}",
            EDGES,
            tuple(
                (
                    f"{share} % private, at {x:g}",
                    ("twitch/ES", panel, "EdgeRR", x),
                    ("twitch/ES", panel, rival, x),
                )
                for share in (5, 20)
                for panel in (f"{share} % of the edges private",)
                for x in (0.5, 2.0)
            ),
        )
        for rival in ("LapGraph", "PrivHRG", "EdgeRand", "public edges alone")
    ),
    Trend(
        "HeteroRR: LinkTeller finds edges without privacy, and not under EdgeRR (AUC, without less with)",
        "heterorr-linkteller.paper.quick",
        tuple(
            (data, (data, "", "GCN, no privacy", None), (data, "", "GCN on EdgeRR", 1.0))
            for data in ("facebook100/Reed98", "cora")
        ),
    ),
)


@dataclass(frozen=True)
class Gain:
    """One difference: what it is of, and by how many points, run by run."""

    label: str
    points: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean over the runs."""
        return sum(self.points) / len(self.points)

    @property
    def words(self) -> str:
        """What the page says of it."""
        agreed = all(gain > 0 for gain in self.points) or all(gain < 0 for gain in self.points)
        sign = f"{self.mean:+.1f}".replace("-", "−")
        return f"{self.label} {sign}{STAR if agreed else ''}"


def page(results: Mapping[str, Results]) -> str:
    """Return the page of trends, from the results of files by their names."""
    return HEAD + "".join(_section(mode, words, results) for mode, words in SECTIONS.items())


def _section(mode: str, words: str, results: Mapping[str, Results]) -> str:
    """Return the trends of a mode, and how many of them hold."""
    found = [
        (trend, list(gains(trend, (results.get(f"{trend.file}.quick"), results[trend.file]))))
        for trend in (each.for_mode(mode, results) for each in TRENDS)
        if trend is not None
    ]
    rows = [(trend, some, verdict(some)) for trend, some in found if some]
    table = "\n".join(
        f"| [{trend.claim}]({trend.file}.md) | {'; '.join(gain.words for gain in some)} | {word} |"
        for trend, some, word in rows
    )
    return words.format(held=held([word for _, _, word in rows])) + TABLE + table + "\n"


def held(verdicts: list[str]) -> str:
    """Say how many trends hold.

    >>> held(["yes", "1 of 2", "no", "yes"])
    'Of 4 trends 2 hold, 1 holds at some places, and 1 does not.'
    """
    yes, no = verdicts.count("yes"), verdicts.count("no")
    some, ends = len(verdicts) - yes - no, {1: "s"}
    partly = f", {some} hold{ends.get(some, '')} at some places" if some else ""
    return (
        f"Of {len(verdicts)} trends {yes} hold{ends.get(yes, '')}{partly}, and {no} do{'es' * (no == 1)} not."
    )


def gains(trend: Trend, files: Iterable[Results | None]) -> Iterator[Gain]:
    """Yield the differences of a trend, at the places that were run: a later file counts more."""
    points = {point.place: point for each in files if each for point in each.points if point.runs}
    for label, one, other in trend.pairs:
        first, second = points.get(one), points.get(other) or points.get((*other[:3], None))
        if first is None or second is None:
            continue
        seeds = sorted(set(first.runs) & set(second.runs))
        a, b = ([point.runs[seed][point.metric] for seed in seeds] for point in (first, second))
        yield Gain(label, tuple(100 * (x - y) for x, y in zip(a, b, strict=True)))


def verdict(some: list[Gain]) -> str:
    """Say whether the differences are above zero."""
    above = sum(round(gain.mean, 1) > 0 for gain in some)
    return "yes" if above == len(some) else "no" if not above else f"{above} of {len(some)}"
