"""Two examples per command, shown at the end of its help."""

import textwrap

EXAMPLES: dict[str, tuple[str, str]] = {
    "demo": ("graphveil demo", "graphveil demo --epsilon 2 --out runs/demo"),
    "datasets": ("graphveil datasets", "graphveil datasets synthetic/demo"),
    "check": (
        "graphveil check --nodes nodes.csv --edges edges.csv",
        "graphveil check --nodes nodes.csv --edges edges.csv --label plan --unit node-record",
    ),
    "prepare": (
        "graphveil prepare --nodes nodes.parquet --edges 'part-*.parquet' --id user --out graph",
        "graphveil prepare --nodes n.csv --edges e.csv --id user --memory 4GB --out graph",
    ),
    "train": (
        "graphveil train classcode --dataset synthetic/demo --unit undirected-edge --epsilon 1",
        "graphveil train gnn --module sage --dataset synthetic/demo --unit node-record --epsilon 8",
    ),
    "sweep": (
        "graphveil sweep classcode,gap --dataset synthetic/demo --unit undirected-edge --epsilon 1,4 "
        "--out sweep",
        "graphveil sweep gap --dataset synthetic/demo --unit undirected-edge --epsilon 1 --set hops=1,2 "
        "--out sweep",
    ),
    "report": ("graphveil report runs/first runs/second", "graphveil report runs/first --out first.html"),
    "reproduce": ("graphveil reproduce list", "graphveil reproduce gap-table2 --quick"),
    "predict": (
        "graphveil predict runs/first --out predictions.parquet",
        "graphveil predict runs/first --nodes new.csv --edges new_edges.csv",
    ),
    "perturb": (
        "graphveil perturb edge-rand --dataset synthetic/demo --unit undirected-edge --epsilon 4 --out noisy",
        "graphveil perturb lap-graph --dataset synthetic/demo --unit undirected-edge --epsilon 4 --out noisy",
    ),
    "compare": (
        "graphveil compare synthetic/demo noisy",
        "graphveil compare synthetic/demo noisy --sources 256",
    ),
    "calibrate": (
        "graphveil calibrate gap --unit undirected-edge --epsilon 1 --delta 1e-6",
        "graphveil calibrate gap --unit undirected-edge --noise-std 4 --delta 1e-6",
    ),
    "audit": ("graphveil audit runs/first", "graphveil audit runs/first --pairs 20"),
    "explain": ("graphveil explain runs/first", "graphveil explain runs/first --json"),
    "serve": ("graphveil serve runs/first", "graphveil serve runs/first --port 8080 --keys keys.json"),
    "keys": ("graphveil keys keys.json", "graphveil keys keys.json --subject alice --subject bob"),
    "attack linkteller": (
        "graphveil attack linkteller runs/first",
        "graphveil attack linkteller runs/first --count 200 --sampling balanced",
    ),
    "attack topology": (
        "graphveil attack topology runs/first",
        "graphveil attack topology runs/first --seed 1",
    ),
    "attack membership": (
        "graphveil attack membership runs/first",
        "graphveil attack membership runs/first --shadows 8",
    ),
    "attack reconstruction": (
        "graphveil attack reconstruction runs/local",
        "graphveil attack reconstruction runs/local --seed 1",
    ),
    "attack poisoning": (
        "graphveil attack poisoning runs/local --share 0.05",
        "graphveil attack poisoning runs/local --share 0.05 --hubs",
    ),
    "ledger init": (
        "graphveil ledger init users --unit undirected-edge --epsilon 4 --delta 1e-6",
        "graphveil ledger init users --unit node-record --epsilon 8 --delta 1e-6",
    ),
    "ledger list": ("graphveil ledger list", "graphveil ledger list --json"),
    "ledger show": ("graphveil ledger show users", "graphveil ledger show users --last 20"),
    "ledger verify": ("graphveil ledger verify", "graphveil ledger verify users"),
    "ledger check-runs": ("graphveil ledger check-runs runs", "graphveil ledger check-runs runs/first"),
    "ledger export": (
        "graphveil ledger export users --out users.jsonl",
        "graphveil ledger export users --out users.jsonl --json",
    ),
    "ledger raise": (
        "graphveil ledger raise users --epsilon 6 --reason approved",
        "graphveil ledger raise users --unit node-record --epsilon 10 --reason approved",
    ),
    "ledger unbind": ("graphveil ledger unbind users", "graphveil ledger unbind users --json"),
    "ledger backup": (
        "graphveil ledger backup backup.sqlite",
        "graphveil ledger backup backup.sqlite --json",
    ),
    "ledger restore": (
        "graphveil ledger restore backup.sqlite",
        "graphveil ledger restore backup.sqlite --runs runs",
    ),
    "collect protocol": (
        "graphveil collect protocol --columns age,visits --high 100 --eps-x 2 --out survey.json",
        "graphveil collect protocol --dim 8 --classes yes,no --eps-x 2 --eps-y 1 --out survey.json",
    ),
    "collect show": ("graphveil collect show survey.json", "graphveil collect show survey.json --json"),
    "collect randomize": (
        "graphveil collect randomize --protocol survey.json --nodes own.csv --id user --out reports.csv",
        "graphveil collect randomize --protocol survey.json --nodes own.csv --id user --max-eps 3 "
        "--out reports.csv",
    ),
    "collect decode": (
        "graphveil collect decode --protocol survey.json --reports reports.csv --id user --out nodes.csv",
        "graphveil collect decode --protocol survey.json --reports reports.csv --id user --skip-bad "
        "--out nodes.csv",
    ),
    "collect learn": (
        "graphveil collect learn --protocol survey.json --reports reports.csv --id user --edges edges.csv "
        "--source a --target b --out model",
        "graphveil collect learn --protocol survey.json --reports reports.csv --id user --edges edges.csv "
        "--source a --target b --method simgat --out model",
    ),
}


def examples_text(command: str) -> str:
    """Return the examples of a command as lines that can be pasted; an empty string for a group.

    >>> print(examples_text("explain"))
    Examples:
      graphveil explain runs/first
      graphveil explain runs/first --json
    <BLANKLINE>
    """
    if command not in EXAMPLES:
        return ""
    wrapped = (
        textwrap.wrap(one, 74, break_long_words=False, break_on_hyphens=False) for one in EXAMPLES[command]
    )
    return "\n".join(["Examples:", *("  " + " \\\n      ".join(lines) for lines in wrapped), ""])
