"""The plan is executed, and the allocator is asked what it really handed out."""

import pytest
import torch
import torchvision
from torch import fx, nn

from helpers import passes
from helpers.graphs.tracing import trace
from helpers.passes import memory_planning
from helpers.passes.memory_planning import ALIGNMENT, Slot, place
from helpers.passes.passer import Passer
from tests.passes.graphs import allocated, network


def planned(net, x):
    graph_module = trace(net.eval(), (x,), route="export")
    report = Passer(["out_variants", "memory_planning"]).run(graph_module)
    return graph_module, report, graph_module.meta["memory_plan"]


def overlapping(slots):
    return [
        (one.node, other.node)
        for i, one in enumerate(slots)
        for other in slots[:i]
        if one.meets(other) and one.offset < other.end and other.offset < one.end
    ]


CHAIN = network(lambda net, x: torch.sin(torch.cos(torch.tanh(torch.exp(x)))))


def test_buffers_that_meet_at_one_step_are_alive_together():
    slots = place([Slot("a", 64, 0, 1), Slot("b", 64, 1, 2), Slot("c", 64, 2, 3)])
    assert [slot.offset for slot in slots] == [0, 64, 0]


def test_the_largest_is_placed_first():
    slots = place([Slot("a", 64, 0, 0), Slot("b", 256, 0, 1), Slot("c", 128, 1, 3)])
    # In their order b would lie behind a, and c behind b.
    assert {slot.node: slot.offset for slot in slots} == {"b": 0, "a": 256, "c": 256}


def test_a_buffer_with_gaps_takes_them_along():
    graph = fx.Graph()
    x = graph.placeholder("x")
    like = {"dtype": torch.float32, "device": torch.device("cpu")}
    buffer = graph.call_function(memory_planning.ALLOCATION, ([2, 3], [20, 1]), like)
    wide = graph.call_function(torch.ops.aten.sin.out, (x,), {"out": buffer})
    graph.output(graph.call_function(torch.ops.aten.sum.default, (wide,)))
    graph_module, x = fx.GraphModule(nn.Module(), graph), torch.randn(2, 3)
    next(iter(graph.nodes)).meta["val"] = x
    Passer(["type_inference"]).run(graph_module)
    Passer(["memory_planning"]).run(graph_module)
    assert [slot.bytes for slot in graph_module.meta["memory_plan"].slots] == [4 * (20 + 3)]
    torch.testing.assert_close(graph_module(x), x.sin().sum())


@pytest.mark.parametrize(("dtype", "count", "second"), [(torch.float64, 500, 4032), (torch.float32, 1024, 4096)])
def test_offsets_are_bytes_and_rounded_up_only_where_needed(dtype, count, second):
    x = torch.randn(count, dtype=dtype)
    graph_module, _, plan = planned(CHAIN, x)
    assert [slot.offset for slot in plan.slots] == [0, second, 0]
    with torch.device("meta"):  # where new tensors go is none of the plan's business
        assert torch.equal(graph_module(x), CHAIN(x))


def test_a_chain_needs_two_buffers():
    x = torch.randn(1000)
    graph_module, report, plan = planned(CHAIN, x)
    assert [slot.offset for slot in plan.slots] == [0, 4032, 0]  # 4000 bytes, rounded up to 64
    assert (plan.bytes, plan.bytes_without_reuse, plan.lower_bound) == (8064, 12096, 8064)
    assert plan.returned_bytes == 4000
    assert torch.equal(graph_module(x), CHAIN(x))
    assert [reason for *_, reason in report.declined] == ["the network returns it: it has to outlive the call"]


def test_bytes_allocated_are_the_bytes_predicted():
    x = torch.randn(1000)
    graph_module, _, plan = planned(CHAIN, x)
    assert allocated(graph_module, x) == plan.bytes + plan.returned_bytes
    assert allocated(CHAIN, x) == 4 * 4000


def test_mobilenet_allocates_the_block_and_its_answer_and_nothing_else():
    layers = torchvision.models.mobilenet_v2().features[:5]
    net = nn.Sequential(layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)).eval()
    x = torch.randn(2, 3, 32, 32)
    folded, _ = passes.optimize(net, x)
    Passer(["to_channels_last"]).run(folded)
    graph_module, _, plan = planned(folded, x)
    assert allocated(graph_module, x) == plan.bytes + plan.returned_bytes
    assert plan.returned_bytes == 2 * 10 * 4
    assert plan.lower_bound <= plan.bytes < 0.4 * plan.bytes_without_reuse
    with torch.no_grad():
        torch.testing.assert_close(graph_module(x), net(x), rtol=1e-4, atol=1e-6)


def test_two_calls_do_not_share_their_answers():
    graph_module, *_ = planned(CHAIN, torch.randn(8))
    first = graph_module(torch.zeros(8))
    kept = first.clone()
    graph_module(torch.ones(8))
    assert torch.equal(first, kept)


def test_a_buffer_lives_as_long_as_the_last_view_of_it():
    def function(net, x):
        y = torch.exp(x)
        view = y.view(10, -1)[2:5].transpose(0, 1)
        z = torch.cos(torch.sin(torch.tanh(x)))
        return view.sum() + z.sum()

    net = network(function)
    x = torch.randn(1000)
    graph_module, _, plan = planned(net, x)
    assert torch.equal(graph_module(x), net(x))
    lives = {slot.node: (slot.first, slot.last) for slot in plan.slots}
    first, last = next(iter(lives.values()))
    assert last - first > 8  # from exp to the sum over its view
    assert overlapping(plan.slots) == []


def random_network(seed):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda count: int(torch.randint(count, (), generator=generator))  # noqa: E731
    graph = fx.Graph()
    values = [graph.placeholder("x")]
    for _ in range(30):
        first, second = values[draw(len(values))], values[-1 - draw(min(4, len(values)))]
        rows = 1 + draw(6)
        values.append(
            [
                lambda a=first, b=second: graph.call_function(torch.mul, (a, b)),
                lambda a=second: graph.call_function(torch.sin, (a,)),
                lambda a=second: graph.call_method("relu_", (graph.call_function(torch.cos, (a,)),)),
                lambda a=second, n=rows: graph.call_function(torch.narrow, (a, 0, 0, 1)),
                lambda a=second, n=rows: graph.call_function(torch.cumsum, (a, 0)),
            ][draw(5)]()
        )
    graph.output((values[-1], values[-3]))
    return fx.GraphModule(nn.Module(), graph)


@pytest.mark.parametrize("seed", range(10))
def test_random_graphs_bit_for_bit(seed):
    net, x = random_network(seed), torch.randn(7, 11)
    expected = net(x)
    graph_module, _, plan = planned(net, x)
    assert all(map(torch.equal, graph_module(x), expected))
    assert overlapping(plan.slots) == []
    assert plan.lower_bound <= plan.bytes <= plan.bytes_without_reuse
    assert all(slot.offset % ALIGNMENT == 0 for slot in plan.slots)
    assert allocated(graph_module, x) == plan.bytes + plan.returned_bytes


def test_a_wrong_plan_gives_wrong_answers(monkeypatch):
    """The comparison above is able to fail: put every buffer at offset 0 and it does."""
    monkeypatch.setattr(memory_planning, "place", lambda slots: tuple(slots))
    net, x = network(lambda net, x: torch.sin(x) * torch.cos(x) + torch.exp(x)), torch.randn(7, 11)
    graph_module, _, plan = planned(net, x)
    assert overlapping(plan.slots)
    assert not torch.equal(graph_module(x), net(x))


@pytest.mark.parametrize("seed", range(20))
def test_random_lives_never_overlap(seed):
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randint(1, 3000, (40, 3), generator=generator).tolist()
    slots = place(
        Slot(f"n{i}", size, first % 50, first % 50 + span % 12) for i, (size, first, span) in enumerate(numbers)
    )
    assert len(slots) == 40
    assert overlapping(slots) == []


def test_a_dynamic_batch_leaves_nothing_to_plan():
    size = torch.export.Dim("batch", min=2, max=64)
    net = network(lambda net, x: torch.sin(torch.cos(x)))
    program = torch.export.export(net, (torch.randn(4, 3),), dynamic_shapes=({0: size},))
    graph_module = program.module(check_guards=False)
    report = Passer(["out_variants", "memory_planning"]).run(graph_module)
    assert report.changed == []
    assert [(name, node) for name, node, _ in report.declined] == [("out_variants", "cos"), ("out_variants", "sin")]
    assert "is only known at run time" in report.declined[0][2]
    x = torch.randn(9, 3)
    assert torch.equal(graph_module(x), net(x))


def test_a_second_run_changes_nothing():
    graph_module, *_ = planned(CHAIN, torch.randn(8))
    assert Passer(["memory_planning"]).run(graph_module).changed == []
