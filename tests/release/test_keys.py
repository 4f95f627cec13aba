import hashlib
import hmac
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.keys import KeyStore, ReleaseKey, canonical
from graphveil.core.ledger import MemoryLedger
from graphveil.core.noise.random import RowStream
from graphveil.core.plan import ReleasePlan, hops
from graphveil.core.queries.neighbor_sums import NeighborSumData
from graphveil.core.release import Release
from graphveil.core.unit import UndirectedEdge
from graphveil.errors import ReleaseError
from tests.mechanisms.sources import keys_are_fresh, keys_follow_the_system


def secret() -> bytes:
    return ReleaseKey.fresh().master


def nonce() -> bytes:
    return ReleaseKey.fresh().nonce


def noise() -> bytes:
    """Return the noise of a release on an empty graph with a fresh key."""
    plan = ReleasePlan(UndirectedEdge(), hops(0.5, 1, 4), delta=1e-5)
    empty = Adjacency.from_edges([], [], num_nodes=3, directed=False)
    answer = Release.open(plan, empty, budget=MemoryLedger()).answer(NeighborSumData(torch.zeros(3, 4)))
    return answer.numpy().tobytes()


@pytest.mark.system_noise
@pytest.mark.parametrize("draw", [secret, nonce, noise])
def test_keys_come_from_the_operating_system_one_by_one(
    draw: Callable[[], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    if draw is not noise:
        keys_are_fresh(draw, monkeypatch)
    keys_follow_the_system(draw, monkeypatch, every=16 if draw is noise else 1)


def test_noise_follows_every_bit_of_its_key() -> None:
    key = bytes(range(32))
    seen = {RowStream(key).words(np.arange(1), words_per_row=1).tobytes()}
    for bit in range(256):
        flipped = (int.from_bytes(key, "big") ^ 1 << bit).to_bytes(32, "big")
        seen.add(RowStream(flipped).words(np.arange(1), words_per_row=1).tobytes())
    assert len(seen) == 257


def test_a_seeded_key_is_marked_repeats_its_secrets_and_never_its_id() -> None:
    first, second = ReleaseKey.from_seed(1, "gap"), ReleaseKey.from_seed(1, "gap")
    assert first.reproducible
    assert (first.nonce, first.master) == (second.nonce, second.master)
    assert first.release_id != second.release_id
    for other in (ReleaseKey.from_seed(2, "gap"), ReleaseKey.from_seed(1, "classcode")):
        assert other.master != first.master


def test_a_query_key_is_the_documented_hmac() -> None:
    key = ReleaseKey.from_seed(1, "gap")
    descriptor = {"b": 1, "a": [2.5, "x"]}
    assert canonical(descriptor) == b'{"a":[2.5,"x"],"b":1}'
    message = key.nonce + hashlib.sha256(canonical(descriptor)).digest()
    assert key.query_key(canonical(descriptor)) == hmac.new(key.master, message, "sha256").digest()
    assert key.query_key(canonical({"b": 1, "a": [2.5, "y"]})) != key.query_key(canonical(descriptor))


def test_digests_are_keyed_and_differ_by_shape_and_type() -> None:
    key, other = ReleaseKey.from_seed(1, "gap"), ReleaseKey.from_seed(2, "gap")
    x = torch.arange(4)
    assert key.digest(x) == key.digest(x.clone())
    assert key.digest(x) != other.digest(x)
    same_bytes = x.view(torch.float64)
    different = [x.reshape(2, 2), x.to(torch.int32), same_bytes, x.flip(0), x[:3], x[:0]]
    assert len({key.digest(y) for y in [x, *different]}) == 7
    assert key.digest(x) != hashlib.sha256(x.numpy().tobytes()).hexdigest()
    assert key.digest(x, x[:1]) != key.digest(x[:1], x)


def test_a_repr_does_not_show_the_master_key() -> None:
    key = ReleaseKey.fresh()
    assert repr(key.master) not in repr(key)
    assert key.master.hex() not in repr(key)


def test_a_key_is_written_once_read_and_erased(tmp_path: Path) -> None:
    store, key = KeyStore(tmp_path / "keys"), ReleaseKey.fresh()
    store.save(key)
    assert store.load(key.release_id) == key.master
    with pytest.raises(FileExistsError):
        store.save(key)
    store.erase(key.release_id)
    store.erase(key.release_id)
    with pytest.raises(ReleaseError, match="is missing"):
        store.load(key.release_id)
