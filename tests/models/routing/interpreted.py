"""Compare the routing kernels, run by Triton's interpreter on the CPU, with torch and native code.

    TRITON_INTERPRET=1 python tests/models/routing/interpreted.py CUSTOMERS TOURS KIND

Tours and log-probabilities, and gradients of drawn tours and of tours to imitate, as `differences` measures them too.
"""

import sys
from pathlib import Path

import torch

sys.path[0] = str(Path(__file__).resolve().parents[3])

from models.routing import kernels, native, stepwise
from models.routing.decoder import Decoding
from models.routing.environment import route_ends, tour_length
from tests.gpu import kernels_on_cpu
from tests.models.routing.policies import assert_valid, make_instances, make_noise, make_policy


def main() -> None:
    customers, tours, kind = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    kernels_on_cpu.register(build_tours=kernels.build_tours, score_tours=kernels.score_tours)
    policy = make_policy(kind, width=40, heads=2)  # a head's 20 channels are padded
    with torch.no_grad():
        policy.decoder.node.weight.mul_(0.3)  # torch loses the slope of tanh to rounding where logits are large
    plain = make_instances(1, customers)
    ways = torch.rand(1, customers + 1, customers + 1, generator=torch.Generator().manual_seed(0))
    instances = plain._replace(matrix=ways)  # other ones there than back
    noise, first = make_noise(1, tours, customers), torch.arange(1, tours + 1)
    decoding = Decoding(policy.decoder, policy.encode(instances), instances)
    for uniform, start in ((noise, first), (noise, None), (None, first))[: 1 if customers > 50 else 3]:
        given = (decoding, tours, uniform, start)
        found, known = kernels.build(*given)
        for name, other in (("torch", stepwise.build(*given)), ("native code", native.build(*given)[0])):
            assert torch.equal(found[..., : other.shape[2]], other), f"not the tours of {name}"
        assert_valid(plain, found, tour_length(plain, found))
        if uniform is not None:
            expected = native.log_prob(decoding, found, forced=start is not None)
            torch.testing.assert_close(known, expected, atol=1e-4, rtol=1e-5)
    drawn, _ = native.build(decoding, tours, noise, first)
    weights = torch.randn(1, tours, generator=torch.Generator().manual_seed(0))
    for ends, forced in ((None, True), (route_ends(drawn, customers + 1), False))[: 1 if customers > 20 else 2]:
        results = []
        for code in (kernels, stepwise, native):
            log_prob = code.log_prob(decoding, drawn, ends, forced)
            slopes = torch.autograd.grad((weights * log_prob).sum(), list(policy.parameters()), retain_graph=True)
            results.append((log_prob, torch.cat([slope.flatten() for slope in slopes])))
        for log_prob, slopes in results[1:]:
            torch.testing.assert_close(results[0][0], log_prob, atol=1e-4, rtol=1e-5)
            torch.testing.assert_close(results[0][1], slopes, atol=3e-5 * slopes.abs().max().item(), rtol=1e-4)
    twice = torch.cat([drawn[..., :1], drawn[..., :-1]], 2)
    assert (kernels.log_prob(decoding, twice) == -torch.inf).all()
    print("equal")


if __name__ == "__main__":
    main()
