package hosts

// placed is the beginning of every program: it says on which host the task runs.
const placed = `
import os, socket, sys, time
import tfcluster
ctx = tfcluster.context()
print(f"{ctx.job_name}:{ctx.task_index} is on {socket.gethostname()}", flush=True)
`

// sleeps is a program that notices nothing of its peers.
const sleeps = placed + `
if ctx.resumed or os.path.exists(ctx.checkpoint_dir + "/began"): sys.exit()
print("at work", flush=True)
if ctx.is_chief: open(ctx.checkpoint_dir + "/began", "w").write("x")
time.sleep(600)
`

// fits is a Keras program whose all-reduces are TensorFlow's, over gRPC.
const fits = placed + `
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
import keras, numpy
with strategy.scope():
    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(8), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
class Say(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch == 2: print("at work", flush=True)
data = tf.data.Dataset.from_tensor_slices((numpy.ones((64, 8)), numpy.ones((64, 1)))).batch(16)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
model.fit(data.with_options(options), epochs=100_000, verbose=0, callbacks=[Say()])
`

// collects is a program of JAX, whose all-reduces are gloo's.
const collects = placed + `
import jax
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(ctx.cluster_spec["worker"][0], len(ctx.cluster_spec["worker"]), ctx.task_index)
import jax.numpy as jnp
from jax.experimental import multihost_utils
for n in range(10_000_000):
    multihost_utils.process_allgather(jnp.ones(4))
    if n == 5: print("at work", flush=True)
`
