"""A program that stalls on purpose: python stalls.py FRAMEWORK KIND [SECONDS]. Every task runs it.

At a step the tasks of BLAMED do something that holds the others up, and say so by a file stalled-RANK in the folder
$TFCLUSTER_TEST. `none` is no stall: the program trains for some seconds. `slow` is none either: one task is slower than
the others.
"""

import gc
import os
import pathlib
import signal
import sys
import threading
import time

import numpy as np
import tfcluster

FRAMEWORK, KIND = sys.argv[1:3]
HOME = pathlib.Path(os.environ["TFCLUSTER_TEST"])
STEP = 20  # at which the program stalls
BLAMED = {"export": 0}  # others: rank 1
ctx = tfcluster.context()
rank = ctx.worker_num
blamed = rank == BLAMED.get(KIND, 1)
seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 60.0


def say():
    (HOME / f"stalled-{rank}").touch()


def fifo():
    path = HOME / f"fifo-{rank}"
    if not path.exists():
        os.mkfifo(path)
    return path


def load_batch(n):
    """Read the next batch; of a file that does not arrive if the program stalls."""
    if KIND == "fifo" and blamed and n == STEP:
        path = fifo()
        say()
        path.read_bytes()
    return np.full((8, 4), n, "float32")


def save_checkpoint(data):
    """Save to a disk that does not take the data: a pipe that nobody reads."""
    path = fifo()
    say()
    path.write_bytes(data)


def export_model(data):
    """Export to such a disk."""
    save_checkpoint(data)


def collect():
    """Collect garbage for ever."""
    nodes = [[i] for i in range(1_000_000)]
    say()
    while nodes:
        gc.collect()


def update():
    """Wait for a lock that this thread has."""
    lock = threading.Lock()
    lock.acquire()
    say()
    with lock:
        pass


def stall(n):
    """Hold the others up at the step, in the loop of training."""
    if not blamed or n != STEP:
        return
    if KIND == "sigstop":
        say()
        os.kill(os.getpid(), signal.SIGSTOP)
    elif KIND == "lock":
        update()
    elif KIND == "sleep":
        say()
        time.sleep(1000)
    elif KIND == "gc":
        collect()
    elif KIND == "checkpoint":
        save_checkpoint(b"x" * (1 << 20))
    elif KIND == "deadlock":
        say()
        ctx.barrier("before the step")


def steps():
    """The number of steps of this task: of the one to blame fewer, or nobody has an end."""
    fewer = KIND == "fewer" and blamed and FRAMEWORK != "fit"
    return STEP if fewer or KIND == "export" else 1_000_000


def over(began):
    """Whether a program without a stall has run long enough, in all tasks at the same step."""
    return KIND == "none" and time.monotonic() - began > seconds


def end():
    """After training."""
    if KIND == "export" and blamed:
        export_model(b"x" * (1 << 20))
    if KIND == "fewer":
        say()
    ctx.barrier("the end")


def jitter(n):
    """A step's work on this task, which differs; one straggles if asked to."""
    if KIND == "slow" and blamed:
        time.sleep(0.15)
    time.sleep(0.02 + 0.03 * np.random.default_rng([rank, n]).random())


def collective_steps():
    """NumPy: the steps are the collective operations."""
    import tfcluster.collective as collective

    began = time.monotonic()
    weights = np.zeros((8, 4), "float32")
    for n in range(steps()):
        batch = load_batch(n)
        stall(n)
        jitter(n)
        weights += collective.all_reduce(batch, op="mean")
        if collective.all_reduce(np.int64(over(began)), op="max"):
            break


def loop_steps():
    """TensorFlow: a loop of one's own under MultiWorkerMirrored, which reports its steps."""
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    @tf.function
    def step(batch, ends):
        def reduced(batch, ends):
            replica = tf.distribute.get_replica_context()
            parts = [tf.identity(part) for part in (batch, ends)]  # on the replica's device
            return [replica.all_reduce("sum", part) for part in parts]

        return strategy.run(reduced, args=(batch, ends))

    began = time.monotonic()
    for n in range(steps()):
        batch = load_batch(n)
        stall(n)
        jitter(n)
        _, ends = step(tf.constant(batch), tf.constant(float(over(began))))
        ctx.report(step=n)
        if float(ends):
            break


def fit_steps():
    """Keras: fit under MultiWorkerMirrored, fed by a generator."""
    import keras
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")

    def batches():
        n = 0
        while True:
            x = load_batch(n)
            n += 1
            yield x, x[:, :1]

    kinds = (tf.TensorSpec((8, 4)), tf.TensorSpec((8, 1)))
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    data = tf.data.Dataset.from_generator(batches, output_signature=kinds).with_options(options)

    began = time.monotonic()
    enough = HOME / "enough"  # the epoch at which all end: written an epoch before, so all have it in time

    class Stall(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if rank == 0 and over(began) and not enough.exists():
                enough.write_text(str(epoch + 1))
            if enough.exists() and epoch >= int(enough.read_text()):
                self.model.stop_training = True

        def on_train_batch_begin(self, batch, logs=None):
            stall(batch)
            jitter(batch)

        def on_train_batch_end(self, batch, logs=None):
            if (
                KIND == "fewer" and blamed and batch == STEP - 1
            ):  # behind fit TensorFlow itself would see the difference
                end()

    callbacks = [Stall()]
    if KIND == "none":
        callbacks.append(
            keras.callbacks.ModelCheckpoint(ctx.checkpoint_dir + "/last.weights.h5", save_weights_only=True)
        )
    model.fit(
        data,
        steps_per_epoch=min(steps(), 100 if KIND == "none" else 10_000),
        validation_data=data if KIND == "none" else None,
        validation_steps=20,
        epochs=1_000_000 if KIND == "none" else 1,
        verbose=0,
        callbacks=callbacks,
    )


def jax_steps():
    """JAX: a sum over all processes, by gloo."""
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    where = os.environ["JAX_COORDINATOR_ADDRESS"]
    jax.distributed.initialize(where, int(os.environ["JAX_NUM_PROCESSES"]), int(os.environ["JAX_PROCESS_ID"]))
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()), ("tasks",))
    shared, whole = NamedSharding(mesh, PartitionSpec("tasks")), NamedSharding(mesh, PartitionSpec())
    total = jax.jit(lambda x: x.sum(axis=0), out_shardings=whole)
    began = time.monotonic()
    for n in range(steps()):
        batch = load_batch(n)
        batch[0, 0] = over(began)
        stall(n)
        jitter(n)
        found = total(jax.make_array_from_process_local_data(shared, batch))
        ends = float(np.asarray(found.addressable_data(0))[0]) > 0 if KIND == "none" else False
        found.block_until_ready()
        ctx.report(step=n)
        if ends:
            break


def torch_steps():
    """PyTorch: DistributedDataParallel and an all_reduce, by gloo."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    began = time.monotonic()
    for n in range(steps()):
        batch = torch.from_numpy(load_batch(n))
        stall(n)
        jitter(n)
        model(batch).sum().backward()
        ends = torch.tensor(float(over(began)))
        dist.all_reduce(ends)
        ctx.report(step=n)
        if float(ends):
            break


{
    "collective": collective_steps,
    "loop": loop_steps,
    "fit": fit_steps,
    "jax": jax_steps,
    "torch": torch_steps,
}[FRAMEWORK]()
end()
