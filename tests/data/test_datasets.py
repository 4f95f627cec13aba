"""Public datasets: published statistics, names, missing or damaged files, and the root folder."""

import dataclasses
import shutil
from pathlib import Path

import pytest
import torch

from graphveil.data import dataset_info, list_datasets, load_dataset
from graphveil.data.datasets import entry_of, read_or_fetch
from graphveil.errors import ConfigError, GraphError

# name: nodes, edges, features, class counts, degree mean / median / max, isolated, homophily
PUBLISHED = {
    "facebook100/Reed98": (962, 18_812, 117, [20, 117, 131, 165, 209, 158], 39.11, 29, 313, 0, 0.501),
    "amazon/computers": (
        13_752,
        245_861,
        767,
        [436, 2142, 1414, 542, 5158, 308, 487, 818, 2156, 291],
        35.76,
        22,
        2992,
        281,
        0.777,
    ),
    "amazon/photo": (
        7_650,
        119_081,
        745,
        [369, 1686, 703, 915, 882, 823, 1941, 331],
        31.13,
        22,
        1434,
        115,
        0.827,
    ),
    "cora": (2_708, 5_278, 1_433, [351, 217, 418, 818, 426, 298, 180], 3.90, 3, 168, 0, 0.810),
    "citeseer": (3_327, 4_552, 3_703, [249, 590, 668, 701, 596, 508], 2.74, 2, 99, 48, 0.738),
    "pubmed": (19_717, 44_324, 500, [4103, 7739, 7875], 4.50, 2, 171, 0, 0.802),
    "twitch/DE": (9_498, 153_138, 3_170, [3756, 5742], 32.25, 15, 4259, 0, 0.632),
    "twitch/ES": (4_648, 59_382, 3_170, [3288, 1360], 25.55, 12, 1022, 0, 0.580),
    "wikipedia/chameleon": (2_277, 31_371, 3_132, None, 27.55, 12, 732, 0, None),
    "wikipedia/squirrel": (5_201, 198_353, 3_148, None, 76.27, 17, 1903, 0, None),
    "heterophilous/minesweeper": (10_000, 39_402, 7, [8000, 2000], 7.88, 8, 8, 0, 0.683),
    "heterophilous/squirrel_filtered": (
        2_223,
        46_998,
        2_089,
        [756, 516, 397, 321, 233],
        42.28,
        10,
        693,
        0,
        0.207,
    ),
    "heterophilous/tolokers": (11_758, 519_000, 10, [9192, 2566], 88.28, 30, 2138, 0, 0.595),
    "facebook_pages": (22_470, 170_823, 4_714, [6495, 6880, 5768, 3327], 15.20, 7, 709, 0, 0.885),
    "lastfm_asia": (7_624, 27_806, 1, None, 7.29, 4, 216, 0, 0.874),
    "karate": (34, 78, 34, [12, 5, 11, 6], 4.59, 3, 17, None, None),
}

# After the class filter of gap: nodes, edges, first year, features, degree mean / median / max, isolated
FILTERED = {
    "Berkeley13": (18_980, 677_467, 2004, 437, 71.39, 54, 1110, 41),
    "Wisconsin87": (17_703, 545_495, 2005, 613, 61.63, 49, 2840, 36),
    "Rutgers89": (20_064, 609_731, 2005, 376, 60.78, 47, 562, 43),
}


# -- statistics of the real files ----


@pytest.mark.parametrize("name", PUBLISHED)
def test_statistics_are_the_published_ones(data_root: Path, name: str) -> None:
    nodes, edges, features, counts, mean, median, largest, isolated, homophily = PUBLISHED[name]
    info = dataset_info(name, data_root)
    assert (info["nodes"], info["edges"], info["features"]) == (nodes, edges, features)
    assert counts is None or info["class_counts"] == counts
    assert info["degree_mean"] == pytest.approx(mean, abs=0.006)
    assert (info["degree_median"], info["degree_max"]) == (median, largest)
    assert isolated is None or info["isolated"] == isolated
    assert homophily is None or info["homophily"] == pytest.approx(homophily, abs=0.0006)
    (row,) = (row for row in list_datasets(data_root) if row["name"] == name)
    assert (row["nodes"], row["features"], row["local"]) == (nodes, features, True)


@pytest.mark.parametrize("school", FILTERED)
def test_class_filter_of_facebook100(data_root: Path, school: str) -> None:
    nodes, edges, year, features, mean, median, largest, isolated = FILTERED[school]
    graph = load_dataset(f"facebook100/{school}", data_root)
    degrees = graph.adjacency.indptr.diff()
    assert (graph.num_nodes, len(graph.adjacency.indices)) == (nodes, 2 * edges)
    assert graph.class_names == tuple(map(str, range(year, 2010)))
    assert graph.num_features == features and int(degrees.max()) == largest
    assert float(degrees.double().mean()) == pytest.approx(mean, abs=0.006)
    assert int(degrees.median()) == median and int((degrees == 0).sum()) == isolated
    paper = load_dataset(f"facebook100/{school}", data_root, mode="paper")
    assert paper.num_nodes == nodes - isolated


def test_facebook100_without_a_recipe_keeps_unlabeled_nodes(data_root: Path) -> None:
    info = dataset_info("facebook100/Berkeley13", data_root)
    assert (info["nodes"], info["edges"], info["labeled"]) == (22_937, 852_444, 18_980)
    assert info["homophily"] == pytest.approx(0.520, abs=0.0006)


def test_class_filter_of_lastfm(data_root: Path) -> None:
    graph = load_dataset("lastfm_asia", data_root, recipe="lpgnn")
    assert (graph.num_nodes, graph.num_classes) == (7_083, 10)
    assert len(graph.adjacency.indices) == 2 * 25_814


@pytest.mark.parametrize(("name", "train"), [("cora", 140), ("citeseer", 120), ("pubmed", 60)])
def test_planetoid_has_its_public_split(data_root: Path, name: str, train: int) -> None:
    graph = load_dataset(name, data_root, recipe="planetoid")
    sizes = [int(graph.labeled_in(part).sum()) for part in ("train", "val", "test")]
    assert sizes == [train, 500, 1000]


def test_the_seed_determines_the_split(data_root: Path) -> None:
    first, second = (load_dataset("karate", data_root, seed=seed) for seed in (0, 1))
    assert not torch.equal(first.masks["train_mask"], second.masks["train_mask"])


# -- names ----
DOCUMENTED = {
    *("facebook100/Berkeley13", "facebook_pages", "amazon/computers", "amazon/photo", "cora", "citeseer"),
    *("pubmed", "twitch/DE", "lastfm_asia", "reddit", "ogbn_products", "ppi", "flickr_mir", "karate"),
    *("synthetic/facebook", "synthetic/reddit", "synthetic/amazon", "synthetic/large", "synthetic/demo"),
    *("wikipedia/chameleon", "heterophilous/minesweeper", "heterophilous/tolokers"),
}


def test_the_list_has_every_documented_name_once() -> None:
    names = [row["name"] for row in list_datasets()]
    assert set(names) >= DOCUMENTED and len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("facebook_page", "; did you mean 'facebook_pages'"),
        ("Cora", "; did you mean 'cora'"),
        ("synthetic/redit", "; did you mean 'synthetic/reddit'"),
        ("zzz", "; `graphveil datasets` lists them"),
        *((path, "") for path in ("", "facebook100/", "facebook100/../secret1", "/etc/passwd")),
        ("facebook100/a", ""),
    ],
)
def test_rejects_unknown_names_and_suggests_a_similar_one(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"is not the name of a data set{message}"):
        load_dataset(name)


@pytest.mark.parametrize("name", [5, None, b"cora", ["cora"]])
def test_rejects_names_that_are_not_text(name: object) -> None:
    with pytest.raises(ConfigError, match="name must be text"):
        load_dataset(name)  # type: ignore[arg-type]


def test_rejects_unknown_recipes_and_modes() -> None:
    with pytest.raises(ConfigError, match="recipe='gpa' is not one of"):
        load_dataset("cora", recipe="gpa")
    with pytest.raises(ConfigError, match="mode='loose' is not one of strict, paper"):
        load_dataset("cora", mode="loose")


# -- missing and damaged files ----


def test_a_failed_download_names_the_missing_files_and_prints_no_details(tmp_path: Path) -> None:
    tries = list[Path]()

    def fail(root: Path, name: str) -> dict[str, object]:
        tries.append(root)
        raise OSError("Zanzibar: name or service not known")

    offline = dataclasses.replace(entry_of("facebook_pages"), fetch=fail)
    with pytest.raises(GraphError) as error:
        read_or_fetch(offline, tmp_path / "first")
    message = str(error.value)
    assert f"facebook_pages is not under {tmp_path}/first and cannot be downloaded (OSError)" in message
    assert "facebook_pages/facebook_edges.csv" in message and "--root" in message
    assert "Zanzibar" not in message and tries == [tmp_path / "first"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("flickr_mir", r"has no download .*read_graph"),
        ("ogbn_products", r"products.zip as ROOT/ogbn_products"),
        ("facebook100/UIllinois20", "checksum is not known.* Put UIllinois20.mat into a folder"),
        ("facebook100/Berkley13", "checksum is not known.* Put Berkley13.mat into a folder"),
    ],
)
def test_datasets_without_a_download_are_reported_with_a_fix(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        load_dataset(name, tmp_path)


def test_damaged_files_are_named_and_not_quoted(tmp_path: Path) -> None:
    (tmp_path / "karate").mkdir()
    (tmp_path / "karate" / "karate.npz").write_bytes(b"Zanzibar")
    with pytest.raises(GraphError, match="karate is damaged") as error:
        load_dataset("karate", tmp_path)
    assert "Zanzibar" not in str(error.value)


# -- the root folder ----


def test_the_default_root_is_the_environment_variable_and_then_the_cache(
    data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(data_root / "karate", tmp_path / "karate")
    monkeypatch.setenv("GRAPHVEIL_DATA", str(tmp_path))
    assert load_dataset("karate").num_nodes == 34
    here, *others = [row["name"] for row in list_datasets() if row["local"]]
    assert here == "karate" and all(name.startswith("synthetic/") for name in others)
    for variable, value, folder in (
        ("GRAPHVEIL_DATA", "given", "given"),
        ("XDG_CACHE_HOME", str(tmp_path), f"{tmp_path}/graphveil"),
    ):
        monkeypatch.delenv("GRAPHVEIL_DATA")
        monkeypatch.setenv(variable, value)
        for root, missing in ((None, folder), ("other", "other")):
            with pytest.raises(GraphError, match=f"is not under {missing}"):
                load_dataset("flickr_mir", root)
