"""What a cycle costs, counted and not timed: ops that ran, what they put out, traces, and bytes.

The ops are those that TensorFlow itself says it ran, in the metadata of a Session's run.
"""

from __future__ import absolute_import, division, print_function

import collections

import numpy as np
import pytest
import tensorflow as tf

import gradaccum_compat as ga
from support import small_sums

v1 = tf.compat.v1
SMALL = small_sums.SMALL

#: Ops that hand on a tensor which is there already.
PASS_ON = {"ReadVariableOp", "Identity", "IdentityN", "Switch", "Merge", "_SwitchN", "VariableV2"}
#: What is known to be zero becomes a constant before it runs.
ZERO_FILLS = {"Fill", "ZerosLike", "Const"}


class Run(object):
    """The ops of one run: how often each type ran, and the types and sizes of what they put out."""

    def __init__(self, session, fetch):
        metadata = v1.RunMetadata()
        session.run(
            fetch,
            options=v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE),
            run_metadata=metadata,
        )
        nodes = [node for device in metadata.step_stats.dev_stats for node in device.node_stats]
        typed = [(node.timeline_label.split(" = ")[-1].split("(")[0], node) for node in nodes]
        # Next to the ops, TF 1.14 lists their threads, as id=44.
        self.ops = collections.Counter(op for op, _ in typed if not op.startswith("id="))
        self.sizes = [(op, _elements(output)) for op, node in typed for output in node.output]


def _elements(output):
    return int(np.prod([dim.size for dim in output.tensor_description.shape.dim]))


def runs(variables, gradients_of, steps=3, cycles=2, weight=lambda: 1.0, **options):
    """Every micro-batch of some cycles of step(), each as a Run, in a TF 1 graph."""
    with tf.Graph().as_default():
        made = variables()
        accumulator = ga.Accumulator(
            v1.train.GradientDescentOptimizer(0.1), made, steps=steps, **options
        )
        step = accumulator.step(gradients_of(made), weight())
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            return [Run(session, step) for _ in range(cycles * steps)]


def dense(count, side=20):
    return lambda: [
        v1.get_variable("w%d" % number, [side, side], use_resource=True) for number in range(count)
    ]


def table(height, width=8):
    return lambda: [v1.get_variable("table", [height, width], use_resource=True)]


def double(variables):
    return [variable * 2.0 for variable in variables]


def of_three_rows(variables):
    return tf.gradients(
        tf.reduce_sum(tf.gather(variables[0], tf.constant([1, 5, 5, 7]))), variables
    )


# Writes. Elsewhere in the tests two elements are small, and all else is large.


@pytest.fixture
def small(monkeypatch):
    small_sums.patch(monkeypatch, SMALL)


def test_a_variable_more_is_one_write_more_in_each_micro_batch():
    few, more = runs(dense(2), double), runs(dense(5), double)
    for number, (less, run) in enumerate(zip(few, more)):
        added = [run.ops[op] - less.ops[op] for op in ("AssignVariableOp", "AssignAddVariableOp")]
        assert added == ([3, 0] if number % 3 == 0 else [0, 3]), "micro-batch %d" % number


def test_a_small_variable_more_is_no_addition_more_and_no_zero_more(small):
    few, more = runs(dense(2), double), runs(dense(5), double)
    for number, (less, run) in enumerate(zip(few, more)):
        added = [
            run.ops[op] - less.ops[op]
            for op in ("AssignAddVariableOp", "AssignVariableOp", "RealDiv", "ConcatV2", "Reshape")
        ]
        assert added == [0] * 5, "micro-batch %d" % number


def test_what_is_small_takes_no_more_than_16_KiB():
    assert SMALL * 4 == 16 * 1024


@pytest.mark.parametrize(
    "weight", [lambda: 3, lambda: v1.placeholder_with_default(3, [])], ids=["number", "tensor"]
)
def test_a_weight_is_multiplied_and_added_in_one_go(weight):
    def one_more(variables):
        return [variable + 1.0 for variable in variables]

    for number, run in enumerate(runs(dense(2), one_more, weight=weight)):
        products = [op for op, size in run.sizes if op in ("Mul", "MulNoNan") and size >= 400]
        assert len(products) == (2 if number % 3 == 0 else 0), "micro-batch %d" % number


def test_nothing_of_a_variable_s_size_is_filled_with_zeros():
    for number, run in enumerate(runs(dense(2), double)):
        assert not [op for op, size in run.sizes if op in ZERO_FILLS and size >= 400], (
            "micro-batch %d" % number
        )


def test_between_two_updates_nothing_of_a_variable_s_size_is_made_but_the_gradients():
    for number, run in enumerate(runs(dense(2), double)):
        if number % 3 != 2:
            made = [op for op, size in run.sizes if size >= 400 and op not in PASS_ON]
            assert made == ["Mul", "Mul"], "micro-batch %d" % number


def test_between_two_updates_a_step_runs_few_ops_and_decides_nothing(small):
    decides = {"LogicalAnd", "Greater", "FloorMod"}
    nothing = PASS_ON | ZERO_FILLS | {"NoOp", "VarHandleOp", "_Retval"}
    for number, run in enumerate(
        runs(dense(3), lambda made: [tf.ones_like(each) for each in made])
    ):
        assert bool(decides & set(run.ops)) == (number % 3 == 2), "micro-batch %d" % number
        if number % 3 != 2:
            # Among them are the checks: TF 1.14 divides, casts and looks for NaN.
            assert sum(run.ops[op] for op in set(run.ops) - nothing) <= 16, run.ops


def test_half_precision_costs_one_cast_more():
    def variables():
        return [v1.get_variable("w", [20, 20], dtype=tf.float16, use_resource=True)]

    for number, run in enumerate(runs(variables, double)):
        if number % 3 != 2:
            made = [op for op, size in run.sizes if size >= 400 and op not in PASS_ON]
            assert sorted(made) == ["Cast", "Mul"], "micro-batch %d" % number


# Rows


def test_a_cycle_of_rows_makes_nothing_of_the_table_s_height():
    for number, run in enumerate(runs(table(3000), of_three_rows)):
        assert not [each for each in run.sizes if each[1] >= 3000 and each[0] not in PASS_ON], (
            "micro-batch %d" % number
        )


def test_a_cycle_of_rows_runs_the_same_ops_whatever_the_table_s_height():
    low, high = runs(table(1000), of_three_rows), runs(table(50000), of_three_rows)
    assert [run.ops for run in low] == [run.ops for run in high]


def test_rows_are_flagged_found_and_unflagged_by_blocks_with_no_number_for_each_row_of_them():
    # 20 blocks of 32 rows, one of them touched; three rows of a gradient have 24 elements.
    for number, run in enumerate(runs(table(640), of_three_rows)):
        made = {op for op, size in run.sizes if size >= 32}
        assert made <= PASS_ON | ZERO_FILLS | {"ResourceGather"}, "micro-batch %d" % number


def test_blocks_that_a_cycle_before_has_touched_are_not_looked_into():
    with tf.Graph().as_default():
        made, rows = table(640)(), v1.get_variable(
            "rows", initializer=np.array([0, 32, 64, 96]), use_resource=True
        )
        loss = tf.reduce_sum(tf.gather(made[0], rows))
        step = ga.Accumulator(v1.train.GradientDescentOptimizer(0.1), made, steps=1).step(
            tf.gradients(loss, made)
        )
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            apart = Run(session, step)
            session.run(rows.assign([1, 2, 3, 4]))
            session.run(step)
            together = Run(session, step)

    def largest(run):
        return max(size for op, size in run.sizes if op == "ResourceGather")

    assert (largest(apart), largest(together)) == (4 * 32, 32)


# Graphs and traces


def graph_of_step(steps):
    with tf.Graph().as_default() as graph:
        variables = dense(2)()
        ga.Accumulator(v1.train.MomentumOptimizer(0.1, 0.9), variables, steps=steps).step(
            double(variables)
        )
        definition = graph.as_graph_def()
    return collections.Counter(
        node.op
        for nodes in [definition.node] + [each.node_def for each in definition.library.function]
        for node in nodes
    )


def test_the_graph_of_a_step_is_the_same_whatever_the_steps():
    assert graph_of_step(2) == graph_of_step(64)


def test_no_conditional_of_a_step_stands_in_another():
    """Each passes on all that the update reads."""
    with tf.Graph().as_default() as graph:
        variables = dense(2)()
        ga.Accumulator(v1.train.MomentumOptimizer(0.1, 0.9), variables, steps=2).step(
            double(variables)
        )
    branches = graph.as_graph_def().library.function
    assert not [
        node.name for each in branches for node in each.node_def if node.op in ("If", "StatelessIf")
    ]
    # TF 1's stand in the graph itself.
    contexts = [op._get_control_flow_context() for op in graph.get_operations()]
    assert not [each for each in contexts if each is not None and each.outer_context is not None]


def conditionals_in_one_op(places):
    """How many conditionals of a step are one op each, with a variable on each of these devices."""
    variables = []
    for place in places:
        with tf.device(place):
            variables.append(tf.Variable([1.0, 2.0]))
    accumulator = ga.Accumulator(
        v1.train.MomentumOptimizer(0.5, 0.9, use_nesterov=True), variables, steps=2
    )
    step = tf.function(lambda x: accumulator.step([each * x for each in variables]))
    assert [bool(step(tf.constant(float(number)))) for number in range(4)] == [False, True] * 2
    graph = step.get_concrete_function(tf.constant(0.0)).graph
    made = [op for op in graph.get_operations() if op.type in ("If", "StatelessIf")]
    assert len(made) == 3
    return len([op for op in made if not op.get_attr("_lower_using_switch_merge")])


def test_on_one_cpu_the_update_of_a_step_is_one_op():
    """So that no micro-batch before it passes over each of its ops."""
    assert conditionals_in_one_op(["/cpu:0", "/cpu:0"]) == 1


@pytest.mark.parametrize("places", [["/cpu:0", "/cpu:1"], ["/cpu:1", "/cpu:1"]])
def test_where_variables_and_sums_lie_apart_the_update_of_a_step_may_too(places):
    assert conditionals_in_one_op(places) == 0


def test_a_step_never_asks_python():
    assert not [op for op in graph_of_step(4) if "PyFunc" in op]


def test_one_trace_serves_all_weights_and_a_shorter_last_micro_batch():
    variable = tf.Variable([1.0, 2.0])
    accumulator = ga.Accumulator(v1.train.GradientDescentOptimizer(0.1), [variable], steps=3)
    traces = []

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32)])
    def step(x):
        traces.append(x)
        return accumulator.step([tf.reduce_mean(x, 0) * variable], weight=tf.shape(x)[0])

    moved = [bool(step(tf.ones([size, 2])).numpy()) for size in (4, 4, 1, 3, 2, 4)]
    assert moved == [False, False, True] * 2
    # TensorFlow itself may trace a second time for the first call, in which variables might be
    # made.
    assert len(traces) <= 2
    before = len(traces)
    step(tf.ones([7, 2]))
    assert len(traces) == before


# Memory


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_state_is_one_float32_for_each_parameter(dtype):
    variables = [tf.Variable(tf.zeros(shape, dtype)) for shape in ([300, 400], [200])]
    accumulator = ga.Accumulator(v1.train.GradientDescentOptimizer(0.1), variables)
    sizes = [int(np.prod(each.shape.as_list())) * each.dtype.size for each in accumulator.variables]
    parameters = 300 * 400 + 200
    # Counters, and flags for the rows of gradients that may be sparse.
    assert 4 * parameters < sum(sizes) < 4 * parameters * 1.01


# Slices of a big batch


def sliced(side, examples, steps):
    """A graph of microbatch_gradients, and what it returns."""
    with tf.Graph().as_default() as graph:
        variable = v1.get_variable("w", [side, side], use_resource=True)
        big = ga.microbatch_gradients(
            lambda x: tf.reduce_sum(tf.tanh(tf.matmul(x, variable))),
            [variable],
            tf.ones([examples, side]),
            steps,
        )
    return graph, big


def test_slices_alike_are_added_and_neither_weighed_nor_divided():
    graph, big = sliced(side=20, examples=8, steps=4)
    with graph.as_default(), v1.Session() as session:
        session.run(v1.global_variables_initializer())
        run = Run(session, big.gradients)
    made = collections.Counter(op for op, size in run.sizes if size == 400 and op not in PASS_ON)
    multiplied = sum(
        count for op, count in made.items() if op.endswith("MatMul")
    )  # oneDNN's has another name
    assert multiplied == 4 and sum(made.values()) == 4 + 3, made


def waits_for(graph, number):
    """How many gradients must have been made before the forward pass of a slice begins."""
    tanhs = [op for op in graph.get_operations() if op.type == "Tanh"]
    found, queue = set(), [tanhs[number]]
    while queue:
        op = queue.pop()
        if op not in found:
            found.add(op)
            queue.extend([each.op for each in op.inputs] + list(op.control_inputs))
    return len([op for op in found if op.type == "TanhGrad"])


def test_a_slice_begins_when_the_gradients_of_the_one_before_have_been_added():
    graph, _ = sliced(side=10, examples=400, steps=4)
    assert [waits_for(graph, number) for number in range(4)] == [0, 1, 2, 3]


def test_forward_passes_run_ahead_where_they_keep_next_to_nothing_beside_the_weights():
    # A slice keeps its two examples, what came of them twice, and the loss: 6 x 400 + 1 numbers of
    #     160,000 weights.
    graph, _ = sliced(side=400, examples=12, steps=6)
    assert [waits_for(graph, number) for number in range(6)] == [0, 0, 0, 0, 1, 2]
