"""Under ``vmap_records`` no operation of torch reads or changes another record, whatever its indices are.

The operations are all that take indices, and those whose rules merge the batch into another dimension. Each
runs on a table and four indices per record.
"""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from graphveil.core.clipping.clipped_sums import PerSampleClippedSum, per_record_logits
from graphveil.core.clipping.ego_graphs import EgoGraphClippedSum, StoredEgoGraphs, ego_graph_logits
from graphveil.core.clipping.isolation import synthetic_records, vmap_records
from graphveil.errors import ConfigError
from graphveil.estimators.own.module_checks import reject_unsupported_types

F = torch.nn.functional
COUNT, ROWS, COLUMNS, OWN = 4, 5, 3, 1  # the record between others whose indices differ
Operation = Callable[[Tensor, Tensor], Any]
VALID = [0, 1, 2, 3]
INDICES = [VALID, [0, 1, 2, 5], [3, 4, 5, 2], [9, 8, 7, 6], [15, 16, 17, 18], [0, 1, 3, 100]]
INDICES += [[0, 1, 2, -1], [0, 1, 2, -6], [-1, -2, -3, -4]]
OPERATIONS: dict[str, Operation] = {
    "embedding": lambda t, i: F.embedding(i, t),
    "torch.embedding": lambda t, i: torch.embedding(t, i),
    "aten.embedding": lambda t, i: torch.ops.aten.embedding(t, i),
    "embedding padding": lambda t, i: F.embedding(i, t, padding_idx=0),
    "embedding max_norm": lambda t, i: F.embedding(i, t.clone(), max_norm=1.0),
    "embedding_bag": lambda t, i: F.embedding_bag(i[None], t, mode="sum"),
    "embedding_bag mean": lambda t, i: F.embedding_bag(i[None], t, mode="mean"),
    "embedding_bag max": lambda t, i: F.embedding_bag(i, t, torch.tensor([0]), mode="max"),
    "index_select": lambda t, i: t.index_select(0, i),
    "index_select1": lambda t, i: t.t().index_select(1, i),
    "index": lambda t, i: t[i],
    "index2": lambda t, i: t[i, i % 3],
    "index2b": lambda t, i: t[0, i],
    "aten.index": lambda t, i: torch.ops.aten.index(t, [i]),
    "_unsafe_index": lambda t, i: torch.ops.aten._unsafe_index(t, [i]),
    "gather": lambda t, i: t.gather(0, i[:, None].expand(4, 3)),
    "take": lambda t, i: t.take(i),
    "take15": lambda t, i: t.take(i * 3),
    "take_along_dim": lambda t, i: torch.take_along_dim(t, i[:, None], 0),
    "select tensor": lambda t, i: torch.select(t, 0, i[0]),
    "narrow tensor": lambda t, i: torch.narrow(t, 0, i[0], 1),
    "scatter": lambda t, i: t.scatter(0, i[:, None].expand(4, 3), t[:4] * 2),
    "scatter value": lambda t, i: t.scatter(0, i[:, None].expand(4, 3), 1.0),
    "scatter_add": lambda t, i: t.scatter_add(0, i[:, None].expand(4, 3), t[:4]),
    "scatter_reduce amax": lambda t, i: t.scatter_reduce(0, i[:, None].expand(4, 3), t[:4], "amax"),
    "scatter_reduce mean": lambda t, i: t.scatter_reduce(0, i[:, None].expand(4, 3), t[:4], "mean"),
    "scatter_reduce prod": lambda t, i: t.scatter_reduce(0, i[:, None].expand(4, 3), t[:4], "prod"),
    "scatter_reduce sum": lambda t, i: t.scatter_reduce(0, i[:, None].expand(4, 3), t[:4], "sum"),
    "index_add": lambda t, i: t.index_add(0, i, t[:4]),
    "index_copy": lambda t, i: t.index_copy(0, i, t[:4]),
    "index_fill": lambda t, i: t.index_fill(0, i, 7.0),
    "index_reduce": lambda t, i: t.index_reduce(0, i, t[:4], "amax"),
    "index_put": lambda t, i: t.index_put((i,), t[:4]),
    "index_put acc": lambda t, i: t.index_put((i,), t[:4], accumulate=True),
    "_unsafe_index_put": lambda t, i: torch.ops.aten._unsafe_index_put(t, [i], t[:4]),
    "setitem": lambda t, i: (lambda c: (c.__setitem__(i, t[:4]), c)[1])(t.clone()),
    "put": lambda t, i: t.put(i, t[:4, 0]),
    "put acc": lambda t, i: t.put(i, t[:4, 0], accumulate=True),
    "one_hot": lambda t, i: F.one_hot(i, 5),
    "bincount": lambda t, i: torch.bincount(i),
    "bincount min": lambda t, i: torch.bincount(i.clamp(0), minlength=5),
    "searchsorted": lambda t, i: torch.searchsorted(t[:, 0].sort().values, i.double()),
    "bucketize": lambda t, i: torch.bucketize(i.double(), t[:, 0].sort().values),
    "histc": lambda t, i: torch.histc(t, 5, -2, 2),
    "histogram": lambda t, i: torch.histogram(t, 5).hist,
    "as_strided": lambda t, i: t.as_strided((ROWS + 1, COLUMNS), (COLUMNS, 1)),
    "as_strided off": lambda t, i: t.as_strided((ROWS, COLUMNS), (COLUMNS, 1), ROWS * COLUMNS),
    "as_strided t": lambda t, i: t.t().as_strided((ROWS, COLUMNS), (COLUMNS, 1), 3),
    "as_strided clone": lambda t, i: t.clone().as_strided((ROWS, COLUMNS), (COLUMNS, 1), 3),
    "as_strided_scatter": lambda t, i: t.clone().as_strided_scatter(t, (ROWS, COLUMNS), (COLUMNS, 1), 3),
    "unfold": lambda t, i: t.unfold(0, 2, 1),
    "roll": lambda t, i: t.roll(2, 0),
    "masked_scatter": lambda t, i: t.masked_scatter(t > 0, t),
    "masked_fill": lambda t, i: t.masked_fill(t > 0, 1),
    "masked_select": lambda t, i: t.masked_select(t > 0),
    "nonzero": lambda t, i: t.nonzero(),
    "unique": lambda t, i: torch.unique(i),
    "max_unpool1d": lambda t, i: F.max_unpool1d(t[:4, 0][None], i[None], 1, 1, output_size=[5]),
    "max_unpool2d": lambda t, i: F.max_unpool2d(
        t[:4, 0].reshape(1, 2, 2), i.reshape(1, 2, 2), 2, output_size=[4, 4]
    ),
    "max_unpool3d": lambda t, i: F.max_unpool3d(
        t[:4, 0].reshape(1, 1, 2, 2), i.reshape(1, 1, 2, 2), (1, 2, 2)
    ),
    "max_unpool2d b": lambda t, i: F.max_unpool2d(
        t[:4, 0].reshape(1, 1, 2, 2), (i + 12).reshape(1, 1, 2, 2), 2
    ),
    "nll_loss": lambda t, i: F.nll_loss(t[:4].log_softmax(1), i, reduction="none"),
    "nll_loss mean": lambda t, i: F.nll_loss(t[:4].log_softmax(1), i),
    "cross_entropy": lambda t, i: F.cross_entropy(t[:4], i, reduction="none"),
    "nll w": lambda t, i: F.nll_loss(t[:4].log_softmax(1), i % 3, weight=t[0].abs()),
    "multi_margin": lambda t, i: F.multi_margin_loss(t[:4], i, reduction="none"),
    "multilabel_margin": lambda t, i: F.multilabel_margin_loss(t[:4], i[:, None].expand(4, 3)),
    "ctc": lambda t, i: F.ctc_loss(
        t[:, None].log_softmax(2), i[None, :2], torch.tensor([5]), torch.tensor([2])
    ),
    "grid_sample": lambda t, i: F.grid_sample(t[None, None], i.double().reshape(1, 1, 2, 2)),
    "cdist": lambda t, i: torch.cdist(t, t),
    "cumsum": lambda t, i: t.cumsum(0),
    "sort": lambda t, i: t.sort(0).values,
    "topk": lambda t, i: t.topk(2, 0).values,
    "repeat_interleave": lambda t, i: t[:4].repeat_interleave(i, dim=0),
    "repeat_interleave size": lambda t, i: t[:4].repeat_interleave(i, dim=0, output_size=12),
    "tensor_split": lambda t, i: torch.tensor_split(t, i)[0],
    "diagonal_scatter": lambda t, i: t.diagonal_scatter(t[:3, 0]),
    "select_scatter": lambda t, i: t.select_scatter(t[1], 0, 4),
    "slice_scatter": lambda t, i: t.slice_scatter(t[:2], 0, 3, 5),
    "batch_norm": lambda t, i: F.batch_norm(t, None, None, training=True),
    "layer_norm": lambda t, i: F.layer_norm(t, (3,)),
    "instance_norm": lambda t, i: F.instance_norm(t[None]),
    "group_norm": lambda t, i: F.group_norm(t, 1),
    "softmax": lambda t, i: t.softmax(0),
    "attention": lambda t, i: F.scaled_dot_product_attention(t[None], t[None], t[None]),
    "conv1d": lambda t, i: F.conv1d(t.t()[None], t.t()[None, :, :2]),
    "pool": lambda t, i: F.adaptive_avg_pool1d(t.t()[None], 2),
    "index_fill t": lambda t, i: t.index_fill(0, i, t[0, 0]),
    "kthvalue": lambda t, i: t.kthvalue(2, 0).values,
    "cov": lambda t, i: torch.cov(t),
    "matmul": lambda t, i: t @ t.t(),
    "einsum": lambda t, i: torch.einsum("ij,ik->jk", t, t),
    "sparse coo": lambda t, i: torch.sparse_coo_tensor(i[None], t[:4], (5, 3)).to_dense(),
    "sparse mm": lambda t, i: torch.sparse.mm(
        torch.sparse_coo_tensor(torch.stack([i, i]), t[:4, 0], (5, 5)), t
    ),
    "data": lambda t, i: F.embedding(i, t.data),
    "detach numpy": lambda t, i: torch.from_numpy(t.detach().numpy()).sum(),
    "item": lambda t, i: t * t.sum().item(),
    "storage": lambda t, i: torch.tensor(list(t.untyped_storage())[:3]),
    "set_": lambda t, i: torch.empty(0, dtype=t.dtype).set_(t.untyped_storage(), 0, (20,)),
    "dlpack": lambda t, i: torch.from_dlpack(t),
    "tolist": lambda t, i: torch.tensor(t.tolist()),
    "view_as_batched resize_": lambda t, i: t.clone().resize_(40),
    "tril_idx": lambda t, i: torch.combinations(t[:, 0]),
    "linalg.inv": lambda t, i: torch.linalg.inv(t[:3] + 3 * torch.eye(3)),
    "pad": lambda t, i: F.pad(t, (1, 1)),
    "pad circ": lambda t, i: F.pad(t[None], (1, 1), mode="circular"),
    "interp": lambda t, i: F.interpolate(t[None], size=7),
    "index_select meta cat": lambda t, i: torch.cat([t, t])[i],
    "isin": lambda t, i: torch.isin(t, i),
    "trapz": lambda t, i: torch.trapezoid(t),
    "fold": lambda t, i: F.fold(t[None, :4], (2, 3), (2, 1), stride=1),
    "lu_unpack": lambda t, i: torch.lu_unpack(t[:3] @ t[:3].t(), i[:3].int() + 1)[1] + 0,
    "lu_unpack P": lambda t, i: torch.lu_unpack(t[:3], i[:3].int() + 1)[0],
    "lu_solve": lambda t, i: torch.linalg.lu_solve(t[:3] + 3 * torch.eye(3), i[:3].int() + 1, t[:3]),
    "ldl_solve": lambda t, i: torch.linalg.ldl_solve(t[:3] + 3 * torch.eye(3), i[:3].int() + 1, t[:3]),
    "searchsorted sorter": lambda t, i: torch.searchsorted(t[:4, 0], t[:2, 1], sorter=i),
    "unravel": lambda t, i: torch.stack(torch.unravel_index(i, (5, 3))),
    "nll2d": lambda t, i: F.nll_loss(t[:4].t().reshape(1, 3, 2, 2), i.reshape(1, 2, 2), reduction="none"),
    "index 2idx": lambda t, i: t[i[:, None], i % 3],
    "index bool": lambda t, i: torch.where((i > 1)[:, None], t[:4], 0),
    "gather1": lambda t, i: t.gather(1, i[None, :3].expand(5, 3)),
    "index_select scalar-ish": lambda t, i: t[:, 0].index_select(0, i),
    "embedding1": lambda t, i: F.embedding(i[0], t),
    "index_add alpha": lambda t, i: t.index_add(0, i, t[:4], alpha=2),
    "index_fill1": lambda t, i: t.index_fill(1, i, 7.0),
    "index_fill_": lambda t, i: t.clone().index_fill_(0, i, 7.0),
    "index_fill fn": lambda t, i: torch.index_fill(t, 0, i, 7.0),
    "index_fill aten": lambda t, i: torch.ops.aten.index_fill(t, 0, i, 7.0),
    "index_fill0": lambda t, i: t.index_fill(0, i[1], 7.0),
    "index_fill vec": lambda t, i: t[:, 0].index_fill(0, i, 7.0),
    "index_copy_": lambda t, i: t.clone().index_copy_(0, i, t[:4]),
    "index_add_": lambda t, i: t.clone().index_add_(0, i, t[:4]),
    "scatter_": lambda t, i: t.clone().scatter_(0, i[:, None].expand(4, 3), t[:4]),
    "scatter mult": lambda t, i: torch.ops.aten.scatter(
        t, 0, i[:, None].expand(4, 3), t[:4], reduce="multiply"
    ),
    "index_put_": lambda t, i: t.clone().index_put_((i,), t[:4]),
    "index_reduce_": lambda t, i: t.clone().index_reduce_(0, i, t[:4], "prod"),
    "put_": lambda t, i: t.clone().put_(i, t[:4, 0]),
    "_index_put_impl_": lambda t, i: torch.ops.aten._index_put_impl_(t.clone(), [i], t[:4], False, True),
    "_unsafe_masked_index": lambda t, i: torch.ops.aten._unsafe_masked_index(t, i >= 0, [i], 0.0),
    "masked_scatter2": lambda t, i: t.masked_scatter(t > -9, t[:2]),
    "masked_scatter i": lambda t, i: t.masked_scatter((i[0] < 100) & (t > -9), t[:1]),
    "embedding_renorm": lambda t, i: torch.embedding_renorm_(t.clone(), i, 1.0, 2.0),
    "embedding_bag offs": lambda t, i: F.embedding_bag(torch.zeros(4, dtype=torch.int64), t, i, mode="sum"),
    "embedding_bag psw": lambda t, i: F.embedding_bag(
        i[None], t, mode="sum", per_sample_weights=t[:4, 0][None]
    ),
    "rnn": lambda t, i: torch.rnn_tanh_cell(t[:1], t[:1], t[:3], t[:3], t[0], t[1]),
    "empty": lambda t, i: torch.empty(5, 3, dtype=t.dtype) + t * 0,
    "new_empty": lambda t, i: t.new_empty((5, 3)),
    "empty_like": lambda t, i: torch.empty_like(t),
    "empty_strided": lambda t, i: t.new_empty_strided((5, 3), (3, 1)),
    "fft": lambda t, i: torch.fft.fft(t).real,
    "stft": lambda t, i: torch.stft(t.flatten(), 4, return_complex=True).real,
    "block_diag": lambda t, i: torch.block_diag(t, t),
    "cartesian": lambda t, i: torch.cartesian_prod(t[:, 0], t[:, 1]),
    "unsafe_chunk": lambda t, i: torch.unsafe_chunk(t, 2)[0],
    "lerp": lambda t, i: torch.lerp(t, t * 2, t),
    "renorm": lambda t, i: t.renorm(2, 0, 1.0),
    "pdist": lambda t, i: F.pdist(t),
    "cosine_embedding": lambda t, i: F.cosine_similarity(t[None], t[:, None], dim=-1),
    "median": lambda t, i: t.median(0).values,
    "mode": lambda t, i: t.mode(0).values,
    "quantile": lambda t, i: t.quantile(0.3),
    "logcumsumexp": lambda t, i: t.logcumsumexp(0),
    "cummax": lambda t, i: t.cummax(0).values,
    "svd": lambda t, i: torch.linalg.svdvals(t),
    "cholesky": lambda t, i: torch.linalg.cholesky(t.t() @ t + torch.eye(3)),
    "triangular": lambda t, i: torch.linalg.solve_triangular(t[:3] + 3 * torch.eye(3), t[:3], upper=True),
    "bilinear": lambda t, i: F.bilinear(t[:2], t[:2], t[None, :3]),
    "triplet": lambda t, i: F.triplet_margin_loss(t, t * 2, t.flip(0)),
    "prelu": lambda t, i: F.prelu(t, t[0]),
    "glu": lambda t, i: F.glu(t.t()[:2], 0),
    "local_response": lambda t, i: F.local_response_norm(t[None], 2),
    "householder": lambda t, i: torch.linalg.householder_product(t, t[0]),
    "scalar_tensor mul": lambda t, i: t * t.sum(),
    "where1": lambda t, i: torch.where(t > 0)[0],
    "argwhere": lambda t, i: torch.argwhere(t),
    "count_nonzero": lambda t, i: t.count_nonzero(),
    "set_data": lambda t, i: (lambda c: (setattr(c, "data", t * 2), c)[1])(t.clone()),
    "resize_as_": lambda t, i: t.clone().resize_as_(torch.zeros(40)),
    "t_": lambda t, i: t.clone().t_(),
    "squeeze_": lambda t, i: t.clone().unsqueeze_(0),
    "view_as_complex": lambda t, i: torch.view_as_real(torch.view_as_complex(t[:, :2].contiguous())),
    "dropout": lambda t, i: F.dropout(t),
    "rand": lambda t, i: torch.rand(3) + t[0],
    "out=": lambda t, i: torch.add(t, t, out=torch.zeros(5, 3, dtype=t.dtype)),
    "getitem list": lambda t, i: t[[0, 1]],
    "index none": lambda t, i: t[None, i],
    "index slice": lambda t, i: t[1:, i % 3],
    "addmm": lambda t, i: torch.addmm(t[:3], t[:3], t[:3]),
    "baddbmm": lambda t, i: torch.baddbmm(t[None, :3], t[None, :3], t[None, :3]),
    "histogramdd": lambda t, i: torch.histogramdd(t, [2, 2, 2]).hist,
    "native_batch_norm": lambda t, i: torch.native_batch_norm(
        t[None], None, None, None, None, True, 0.1, 1e-5
    )[0],
    "pixel": lambda t, i: F.channel_shuffle(t[:4].reshape(1, 4, 3, 1), 2),
    "einsum idx": lambda t, i: t.T[:, i],
    "sum to": lambda t, i: t.sum_to_size(1, 3),
}
REPLACED = [
    name for name in OPERATIONS if name.startswith(("embedding", "torch.emb", "aten.emb", "index_fill"))
]
REPLACED = [name for name in REPLACED if name not in ("embedding max_norm", "embedding_renorm")]
REPLACED = [name for name in REPLACED if "bag" not in name and name != "index_fill1"]


def tables() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(COUNT, ROWS, COLUMNS, generator=generator, dtype=torch.float64)


def result(operation: Operation, table: Tensor, index: Tensor) -> Tensor | None:
    """Return the results of all records; None if one raises."""
    try:
        found: Tensor = vmap_records(lambda t, i: operation(t, i))(table, index)
    except Exception:
        return None
    return found.nan_to_num()


def with_own(others: list[int], own: list[int]) -> Tensor:
    index = torch.tensor(others).repeat(COUNT, 1)
    index[OWN] = torch.tensor(own)
    return index


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_reads_and_changes_its_own_record_only(name: str) -> None:
    operation, table = OPERATIONS[name], tables()
    loud, own_loud = 50 * table + 3, table.clone()
    loud[OWN], own_loud[OWN] = table[OWN], 7 * table[OWN] - 2
    other = torch.arange(COUNT) != OWN
    for own in INDICES:
        for others in (VALID, own):
            first = result(operation, table, with_own(others, own))
            if first is None:
                continue
            for given, index in ((loud, with_own(others, own)), (table, with_own(VALID, own))):
                again = result(operation, given, index)
                assert again is None or torch.equal(again[OWN], first[OWN]), (own, others)
            again = result(operation, own_loud, with_own(others, VALID))
            assert again is None or torch.equal(again[other], first[other]), (own, others)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REPLACED)
def test_a_replaced_operation_equals_the_one_of_torch(name: str) -> None:
    operation, index = OPERATIONS[name], torch.tensor([VALID, [3, 1, 1, 0], [2, 2, 4, 0], VALID])
    loss = lambda t, i: operation(t, i).square().sum()  # noqa: E731 - shared by both
    table = tables()
    found = vmap_records(lambda t, i: operation(t, i))(table, index)
    gradients = vmap_records(grad(loss))(table, index)
    for number in range(COUNT):
        alone = table[number].clone().requires_grad_()
        torch.testing.assert_close(found[number], operation(alone, index[number]).detach())
        (expected,) = torch.autograd.grad(loss(alone, index[number]), alone)
        torch.testing.assert_close(gradients[number], expected)


# -- code that sees a whole batch ----


class OwnRule(torch.autograd.Function):
    """Adds up the records of a batch by its own rule."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x * 1

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient

    @staticmethod
    def vmap(info: Any, dims: Any, x: Tensor) -> Any:
        return x + x.flip(0), dims[0]


class OwnRuleToo(OwnRule):
    """Inherits the rule."""


class Generated(torch.autograd.Function):
    """Reads a table in both passes, by the rule that torch generates."""

    generate_vmap_rule = True

    @staticmethod
    def forward(table: Tensor, index: Tensor) -> Tensor:
        return F.embedding(index, table)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        table, index = ctx.saved_tensors
        return torch.zeros_like(table) + F.embedding(index + 4, table).sum() * gradient.sum(), None


@torch.library.custom_op("graphveil_test::doubled", mutates_args=())
def doubled(x: Tensor) -> Tensor:
    """Double, and by its own rule mix."""
    return x * 2


@doubled.register_vmap
def _(info: Any, dims: Any, x: Tensor) -> Any:
    return x + x.flip(0), dims[0]


def with_hooks(x: Tensor) -> Tensor:
    with torch.autograd.graph.saved_tensors_hooks(lambda kept: kept, lambda kept: kept.flip(0)):
        return x.exp()


@pytest.mark.parametrize(
    "function",
    [OwnRule.apply, OwnRuleToo.apply, doubled, torch.ops.graphveil_test.doubled, with_hooks],
    ids=["function", "inherited", "operation", "operation by name", "hooks"],
)
def test_code_that_sees_a_whole_batch_is_rejected(function: Any) -> None:
    table = tables()
    assert torch.isfinite(vmap(function)(table)).all()
    with pytest.raises((ConfigError, RuntimeError), match=r"own rule|would read all records"):
        vmap_records(function)(table.requires_grad_(function is with_hooks))


def test_a_function_with_a_generated_rule_runs_with_checked_indices_in_both_passes() -> None:
    table, index = tables(), torch.zeros(COUNT, 1, dtype=torch.int64)
    loss = lambda t, i: Generated.apply(t, i).sum()  # noqa: E731 - shared by both
    found = vmap_records(grad(loss))(table, index)
    for number in range(COUNT):
        expected = COLUMNS * table[number, 4].sum()
        torch.testing.assert_close(found[number], expected.expand(ROWS, COLUMNS))
    for beyond in (1, 5):  # of the table in the backward and in the forward pass
        index[OWN] = beyond
        with pytest.raises((RuntimeError, IndexError), match="out of"):
            vmap_records(grad(loss))(table, index)


def embedded(table: Tensor, index: Tensor) -> Tensor:
    return torch.embedding(table, index)


with warnings.catch_warnings(action="ignore"):  # jit is deprecated, and still there
    compiled = torch.jit.script(embedded)


class Buckets(nn.Module):
    """Looks up a row by a feature, in a table that is one row short."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(4, classes, dtype=torch.float64))
        self.own = nn.Linear(inputs, classes, dtype=torch.float64)

    def forward(self, x: Tensor, edge_index: Tensor | None = None) -> Tensor:
        bucket = (x[:, 0].sigmoid() * 4.2).long()
        return self.own(x) + 20 * F.embedding(bucket, self.table * x.mean(0)[:1])


class Script(Buckets):
    """Calls compiled code, which nothing can replace."""

    def forward(self, x: Tensor, edge_index: Tensor | None = None) -> Tensor:
        return self.own(x) + compiled(self.table, (x[:, 0].sigmoid() * 4.2).long())


def test_a_module_that_calls_compiled_code_is_rejected() -> None:
    reject_unsupported_types(Buckets(2, 3))
    with pytest.raises(ConfigError, match="calls compiled code"):
        reject_unsupported_types(Script(2, 3))


# -- clipped sums and predictions ----


def features(loud: float) -> Tensor:
    """Return trees of which the first one's root is beyond the table; the second's features differ."""
    x = torch.randn(6, 4, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x[0, 0, 0] = 100.0
    x[1] = loud
    return x


def outcome(loud: float, route: Any) -> tuple[Tensor, Tensor]:
    """Return the sum of clipped gradients without the second record, and all logits."""
    torch.manual_seed(0)
    module, x, labels = Buckets(2, 3), features(loud), torch.arange(6) % 3
    if route == "records":
        gradients: Any = PerSampleClippedSum(module, x[:, 0], labels)
        logits = per_record_logits(module, x[:, 0], 3)
    else:
        records = StoredEgoGraphs(x, torch.tensor([[1, 2], [0, 0]]).expand(6, 2, 2))
        gradients = EgoGraphClippedSum(module, records, labels, route=route)
        logits = ego_graph_logits(module, records, 6, 3, route=route)
    sums = []
    for index in (torch.arange(6), torch.tensor([1])):
        gradients.sums.zero_()
        gradients.add(index, 1.0)
        sums.append(gradients.sums.clone())
    return sums[0] - sums[1], logits


@pytest.mark.parametrize("route", ["vmap", "ghost", "loop", "records"])
def test_a_table_that_is_one_row_short_mixes_no_records(route: Any) -> None:
    (sums, logits), (loud_sums, loud_logits) = outcome(0.1, route), outcome(-0.3, route)
    torch.testing.assert_close(sums, loud_sums, rtol=0, atol=1e-9)
    keep = torch.tensor([True, False, True, True, True, True])
    assert torch.equal(logits[keep], loud_logits[keep])
    assert not logits[0].any() and logits[2:].any(dim=1).all()


def test_a_probe_raises_instead() -> None:
    with synthetic_records(), pytest.raises((RuntimeError, IndexError), match="out of bounds"):
        per_record_logits(Buckets(2, 3), features(0.1)[:, 0], 3)
