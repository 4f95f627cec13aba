import dataclasses
import shutil

import pytest
import torch

from graphveil.data import dataset_info, list_datasets, load_dataset
from graphveil.data.datasets import dataset_folders, entry_of, read_or_fetch
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


class TestRealData:
    @pytest.mark.parametrize("name", list(PUBLISHED))
    def test_statistics(self, data_root, name):
        nodes, edges, features, counts, mean, median, largest, isolated, homophily = PUBLISHED[name]
        info = dataset_info(name, data_root)
        assert (info["nodes"], info["edges"], info["features"]) == (nodes, edges, features)
        assert counts is None or info["class_counts"] == counts
        assert info["degree_mean"] == pytest.approx(mean, abs=0.006)
        assert (info["degree_median"], info["degree_max"]) == (median, largest)
        assert isolated is None or info["isolated"] == isolated
        assert homophily is None or info["homophily"] == pytest.approx(homophily, abs=0.0006)

    @pytest.mark.parametrize("school", list(FILTERED))
    def test_facebook100_after_the_filter(self, data_root, school):
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

    def test_berkeley_before_the_filter(self, data_root):
        info = dataset_info("facebook100/Berkeley13", data_root)
        assert (info["nodes"], info["edges"], info["labeled"]) == (22_937, 852_444, 18_980)
        assert info["homophily"] == pytest.approx(0.520, abs=0.0006)

    def test_lastfm_after_the_lpgnn_filter(self, data_root):
        graph = load_dataset("lastfm_asia", data_root, recipe="lpgnn")
        assert (graph.num_nodes, graph.num_classes) == (7_083, 10)
        assert len(graph.adjacency.indices) == 2 * 25_814

    @pytest.mark.parametrize(("name", "train"), [("cora", 140), ("citeseer", 120), ("pubmed", 60)])
    def test_the_public_split(self, data_root, name, train):
        graph = load_dataset(name, data_root, recipe="planetoid")
        sizes = [int(graph.mask(part).sum()) for part in ("train", "val", "test")]
        assert sizes == [train, 500, 1000]

    def test_seeds_split_differently(self, data_root):
        first, second = (load_dataset("karate", data_root, seed=seed) for seed in (0, 1))
        assert not torch.equal(first.train_mask, second.train_mask)

    def test_the_catalog_knows_the_sizes(self, data_root):
        rows = {row["name"]: row for row in list_datasets(data_root)}
        for name, (nodes, _, features, *_) in PUBLISHED.items():
            row = rows[name]
            assert (row["nodes"], row["features"], row["local"]) == (nodes, features, True)


KNOWN = [
    "facebook100/Berkeley13",
    "facebook_pages",
    "amazon/computers",
    "amazon/photo",
    "cora",
    "citeseer",
    "pubmed",
    "twitch/DE",
    "lastfm_asia",
    "reddit",
    "ogbn_products",
    "ppi",
    "flickr_mir",
    "karate",
    "synthetic/facebook",
    "synthetic/reddit",
    "synthetic/amazon",
    "synthetic/large",
    "synthetic/demo",
    "wikipedia/chameleon",
]


class TestNames:
    def test_all_are_known(self):
        names = [row["name"] for row in list_datasets()]
        assert set(KNOWN) <= set(names) and len(set(names)) == len(names)

    @pytest.mark.parametrize(
        ("name", "near"),
        [("facebook_page", "facebook_pages"), ("Cora", "cora"), ("synthetic/redit", "synthetic/reddit")],
    )
    def test_a_near_miss_is_suggested(self, name, near):
        with pytest.raises(ConfigError, match=f"is not the name of a data set; did you mean '{near}'"):
            load_dataset(name)

    def test_a_name_without_a_near_one_is_told_where_the_names_are(self):
        with pytest.raises(ConfigError, match="; `graphveil datasets` lists them"):
            load_dataset("zzz")

    @pytest.mark.parametrize(
        "name", ["", "facebook100/", "facebook100/../secret1", "/etc/passwd", "facebook100/a"]
    )
    def test_names_are_not_paths(self, name):
        with pytest.raises(ConfigError, match="not the name of a data set"):
            load_dataset(name)

    def test_recipe_and_mode_are_checked_before_anything_is_read(self):
        with pytest.raises(ConfigError, match="recipe='gpa' is not one of"):
            load_dataset("cora", recipe="gpa")
        with pytest.raises(ConfigError, match="mode='loose' is not one of strict, paper"):
            load_dataset("cora", mode="loose")


class TestMissing:
    def test_the_message_says_where_to_put_it(self, tmp_path):
        tries = []

        def fail(root, name):
            tries.append(root)
            raise OSError("Zanzibar: name or service not known")

        offline = dataclasses.replace(entry_of("facebook_pages"), fetch=fail)
        with pytest.raises(GraphError) as error:
            read_or_fetch(offline, [tmp_path / "first", tmp_path])
        message = str(error.value)
        assert f"facebook_pages is not under {tmp_path}/first and cannot be downloaded (OSError)" in message
        assert "facebook_pages/facebook_edges.csv" in message and "--root" in message
        assert "Zanzibar" not in message and tries == [tmp_path]

    def test_downloads_go_to_the_cache_when_no_root_was_given(self, tmp_path, monkeypatch):
        monkeypatch.delenv("GRAPHVEIL_DATA", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert dataset_folders(None) == [tmp_path / "graphveil"]

    def test_flickr_mir_has_no_download(self, tmp_path):
        with pytest.raises(GraphError, match=r"has no download .*read_graph"):
            load_dataset("flickr_mir", tmp_path)

    def test_ogbn_products_says_what_to_unpack(self, tmp_path):
        with pytest.raises(GraphError, match=r"products.zip as ROOT/ogbn_products"):
            load_dataset("ogbn_products", tmp_path)

    @pytest.mark.parametrize("school", ["UIllinois20", "Berkley13"])
    def test_schools_without_a_checksum_are_not_downloaded(self, tmp_path, school):
        with pytest.raises(GraphError, match=f"without a known checksum .* put {school}.mat into a folder"):
            load_dataset(f"facebook100/{school}", tmp_path)

    def test_damaged_files_are_named_and_not_quoted(self, tmp_path):
        (tmp_path / "karate").mkdir()
        (tmp_path / "karate" / "karate.npz").write_bytes(b"Zanzibar")
        with pytest.raises(GraphError, match="karate is damaged") as error:
            load_dataset("karate", tmp_path)
        assert "Zanzibar" not in str(error.value)


class TestRoot:
    def test_the_environment_names_the_default(self, data_root, tmp_path, monkeypatch):
        shutil.copytree(data_root / "karate", tmp_path / "karate")
        monkeypatch.setenv("GRAPHVEIL_DATA", str(tmp_path))
        assert load_dataset("karate").num_nodes == 34
        assert [row["name"] for row in list_datasets() if row["local"] and "/" not in row["name"]] == [
            "karate"
        ]

    def test_an_explicit_root_wins(self, tmp_path, monkeypatch):
        monkeypatch.setenv("GRAPHVEIL_DATA", str(tmp_path))
        assert dataset_folders(tmp_path / "other") == [tmp_path / "other"]
