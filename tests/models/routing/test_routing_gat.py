"""Graph attention: dense and sparse layers compute the same, and sparse ones fit into bounded memory."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from models.routing.gat import DenseGAT, nearest_neighbours, sparse_gat
from tests.models.routing.policies import assert_valid, make_instances, make_policy

# torch_geometric compiles classes with TorchScript when it is imported.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")


@pytest.mark.parametrize("graph", ["complete", "nearest"])
def test_dense_gat_equals_torch_geometric(graph):
    from torch_geometric.nn import GATConv

    dense = DenseGAT(16, 4)
    sparse = GATConv(16, 4, heads=4, edge_dim=1, add_self_loops=False)
    sparse.load_state_dict(dense.state_dict())
    assert sparse_gat(16, 4).state_dict().keys() == dense.state_dict().keys()
    nodes, locs = torch.randn(2, 7, 16), torch.rand(2, 7, 2)
    distance = torch.cdist(locs, locs)
    near = distance <= (distance.kthvalue(3, -1, keepdim=True).values if graph == "nearest" else 9)
    sources = [[(i, j) for i in range(7) for j in range(7) if near[b, i, j]] for b in range(2)]
    assert graph == "complete" or sum(map(len, sources)) == 42
    mixed = dense(nodes, torch.where(near, distance, torch.inf))
    for b in range(2):
        target, source = torch.tensor(sources[b]).T
        expected = sparse(nodes[b], torch.stack([source, target]), distance[b, target, source][:, None])
        torch.testing.assert_close(mixed[b], expected, rtol=1e-5, atol=1e-5)


def test_edges_lead_from_the_nearest_the_node_itself_and_the_depot():
    locs = torch.tensor([[[0.0, 0], [1, 0], [1.1, 0], [1.3, 0], [1.3, 0], [1.3, 0], [1.3, 0]]])
    distance = torch.cdist(locs, locs, compute_mode="donot_use_mm_for_euclid_dist")
    edges, lengths = nearest_neighbours(distance.repeat(2, 1, 1), 2)
    pairs = set(map(tuple, edges.T.tolist()))
    assert {(i, i) for i in range(14)} <= pairs
    assert {(0, i) for i in range(7)} | {(7, 7 + i) for i in range(7)} <= pairs
    assert (2, 1) in pairs
    assert (3, 1) not in pairs
    assert all((source < 7) == (target < 7) for source, target in pairs)
    for (source, target), length in zip(edges.T.tolist(), lengths[:, 0].tolist(), strict=True):
        assert length == pytest.approx(abs(locs[0, source % 7, 0] - locs[0, target % 7, 0]).item())


def test_with_all_neighbours_the_sparse_encoder_equals_the_dense_one():
    dense, sparse, instances = make_policy("gat"), make_policy("gat", neighbors=50), make_instances(3, 8)
    sparse.load_state_dict(dense.state_dict())
    for one, other in zip(dense.encode(instances), sparse.encode(instances), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


class LargestTensor(TorchDispatchMode):
    """Records the largest number of elements of any tensor that is made."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return out


def test_a_thousand_customers_fit_into_bounded_memory_with_neighbours():
    policy, instances = make_policy("gat", neighbors=10, layers=1), make_instances(1, 1000, 150)
    with torch.no_grad():
        rollout = policy(instances)
        with LargestTensor() as largest:
            policy.encode(instances)
    assert_valid(instances, rollout.actions, rollout.cost)
    assert largest.elements == 2 * 1001**2  # differences of coordinates; a dense layer of two heads has more than one
