package verdict

import "slices"

// markers are in the order in which they are tried.
func markers() []marker {
	return slices.Concat(tensorFlowMarkers(), jaxMarkers(), torchMarkers(), pythonMarkers())
}

// tensorFlowMarkers are those of tfcluster itself, TensorFlow and Keras.
func tensorFlowMarkers() []marker {
	return []marker{
		// tfcluster
		{meansCollective, `tfcluster/collective\.py`, `all_reduce`, allReduce},
		{meansCollective, `tfcluster/collective\.py`, `broadcast`, "broadcast"},
		{meansCollective, `tfcluster/collective\.py`, `all_gather`, "all-gather"},
		{meansCollective, `tfcluster/collective\.py`, `barrier`, barrier},
		{meansCollective, `tfcluster/collective\.py`, `_joined|rank|size`, "first collective operation"},
		{meansCollective, `tfcluster/context\.py`, `barrier`, barrier},
		{meansInput, `tfcluster/feed(_reader|_dataset|_thread)?\.py`, ``, feedInput},
		{meansExporting, `tfcluster/context\.py`, `export_saved_model`, ""},
		{meansExit, `tfcluster/runner\.py`, `leave`, ""},
		// TensorFlow
		{meansCollective, `tensorflow/python/ops/(gen_)?collective_ops\.py`, `.*reduce.*`, allReduce},
		{meansCollective, `tensorflow/python/ops/(gen_)?collective_ops\.py`, `.*gather.*`, "all-gather"},
		{meansCollective, `tensorflow/python/ops/(gen_)?collective_ops\.py`, `.*(bcast|broadcast).*`, "broadcast"},
		{meansCollective, `tensorflow/python/distribute/cross_device_(ops|utils)\.py`, `.*reduce.*`, allReduce},
		{meansCollective, `tensorflow/python/distribute/cross_device_(ops|utils)\.py`, `.*gather.*`, "all-gather"},
		{
			meansCollective, `tensorflow/python/eager/context\.py`,
			`ensure_initialized|_initialize_.*|configure_coordination_service|enable_collective_ops`, "start of the cluster",
		},
		{meansCollective, `tensorflow/python/eager/context\.py`, `.*barrier.*`, barrier},
		{
			meansCollective, `tensorflow/python/distribute/coordinator/(cluster_coordinator|remote_value|watchdog|utils)\.py`,
			`.*(join|wait|fetch|done|get|schedule).*`, "results of the workers",
		},
		{meansInput, `tensorflow/python/ops/gen_dataset_ops\.py`, `.*get_next.*`, ""},
		{meansInput, `tensorflow/python/data/ops/(iterator_ops|multi_device_iterator_ops)\.py`, `.*next.*`, ""},
		{meansInput, `tensorflow/python/distribute/input_lib\.py`, `.*next.*`, ""},
		{meansInput, `tensorflow/python/data/ops/from_generator_op\.py`, ``, ""},
		{meansExporting, `tensorflow/python/saved_model/save\.py`, ``, ""},
		{
			meansSaving,
			`tensorflow/python/(checkpoint/\w+|training/saver|training/checkpoint_management|training/saving/\w+)\.py`,
			`.*(save|write|restore|read).*`, "",
		},
		{
			meansComputing, `tensorflow/python/eager/polymorphic_function/tracing_compilation\.py`,
			`.*create_concrete_function.*`, "",
		},
		{meansNative, `tensorflow/python/(eager|ops)/\w+\.py`, ``, ""},
		// Keras
		{meansExporting, `keras/src/export/\w+\.py`, ``, ""},
		{meansSaving, `keras/src/saving/(\w+/)*\w+\.py`, ``, ""},
		{meansSaving, `keras/src/callbacks/(model_checkpoint|backup_and_restore)\.py`, `.*save.*`, ""},
		{meansSaving, `keras/src/(models/model|engine/training)\.py`, `save\w*|load\w*`, ""},
		{meansExporting, `keras/src/(models/model|engine/training)\.py`, `export`, ""},
		{meansInput, `keras/src/trainers/data_adapters/\w+\.py`, ``, ""},
		{meansInput, `keras/src/utils/data_utils\.py`, ``, ""},
		{meansValidation, `keras/src/(backend/\w+/trainer|engine/training)\.py`, `evaluate`, ""},
	}
}

// jaxMarkers are those of JAX. Flax and Orbax save its checkpoints.
func jaxMarkers() []marker {
	return []marker{
		{meansCollective, `jax/experimental/multihost_utils\.py`, `sync_global_devices`, barrier},
		{meansCollective, `jax/experimental/multihost_utils\.py`, `broadcast.*`, "broadcast"},
		{meansCollective, `jax/experimental/multihost_utils\.py`, `process_allgather`, "all-gather"},
		{meansCollective, `jax/_src/distributed\.py`, `initialize`, "start of the cluster"},
		{meansExit, `jax/_src/distributed\.py`, `shutdown`, ""},
		{
			meansComputing, `jax/_src/(compiler|interpreters/mlir|interpreters/partial_eval)\.py`,
			`.*(compile|lower|trace).*`, "",
		},
		{
			meansSaving, `(orbax/\S+|flax/training/\w+|flax/serialization)\.py`,
			`.*(save|restore|load|wait_until_finished).*`, "",
		},
		{meansNative, `(jax/_src/(\w+/)*\w+|keras/src/backend/jax/\w+)\.py`, ``, ""},
	}
}

// torchMarkers are those of PyTorch. Lightning, Accelerate and Transformers call it.
func torchMarkers() []marker {
	return []marker{
		{meansCollective, `torch/distributed/distributed_c10d\.py`, `.*all_?reduce.*|reduce|reduce_scatter\w*`, allReduce},
		{meansCollective, `torch/distributed/distributed_c10d\.py`, `.*gather.*`, "all-gather"},
		{meansCollective, `torch/distributed/distributed_c10d\.py`, `.*broadcast.*`, "broadcast"},
		{meansCollective, `torch/distributed/distributed_c10d\.py`, `.*barrier.*`, barrier},
		{
			meansCollective, `torch/distributed/distributed_c10d\.py`,
			`.*scatter.*|all_to_all\w*|send|recv|isend|irecv|wait`, "",
		},
		{
			meansCollective, `torch/distributed/(distributed_c10d|rendezvous|elastic/\S+)\.py`,
			`init_process_group|new_group|.*rendezvous.*|_new_process_group_helper|_store_based_barrier`, "start of the group",
		},
		{meansCollective, `torch/distributed/_functional_collectives\.py`, ``, ""},
		{meansInput, `torch/utils/data/(\w+/)*\w+\.py`, ``, ""},
		{meansSaving, `torch/(serialization|distributed/checkpoint/\w+)\.py`, ``, ""},
		{meansSaving, `(lightning|pytorch_lightning)/\S*(checkpoint|model_checkpoint)\w*\.py`, `.*(save|load).*`, ""},
		{meansSaving, `transformers/trainer\.py`, `_?save\w*|_load\w*`, ""},
		{meansValidation, `(lightning|pytorch_lightning)/\S*evaluation_loop\.py`, ``, ""},
		{meansValidation, `transformers/trainer\.py`, `evaluat\w*|prediction_\w*`, ""},
		{
			meansNative, `torch/(autograd/(graph|__init__|function)|nn/parallel/distributed|_tensor|cuda/\w+|_ops|nn/modules/` +
				`module|nn/functional)\.py`, ``, "",
		},
	}
}

// pythonMarkers are those of Python. Data sets of Hugging Face and others read by it.
func pythonMarkers() []marker {
	return []marker{
		{meansInput, `(datasets|tensorflow_datasets|grain|webdataset|petastorm)/\S+\.py`, `.*(next|iter|get|read).*`, ""},
		{meansSaving, `(h5py/_hl/\w+|safetensors/\w+)\.py`, `.*(save|File|write|create).*`, ""},
		{
			meansExit, `(threading|concurrent/futures/thread|concurrent/futures/process|multiprocessing/util)\.py`,
			`_shutdown|_python_exit|_exit_function`, "",
		},
		{
			meansLock, `(threading|queue|_weakrefset)\.py`, `wait\w*|acquire|join|get|put|_wait_for_tstate_lock`,
			"waiting for a lock",
		},
		{meansLock, `concurrent/futures/\w+\.py`, `result|wait|exception|map|result_iterator`, "waiting for a thread"},
		{
			meansLock, `(multiprocessing/\w+|subprocess)\.py`, `.*(wait|get|put|join|recv|poll|communicate|acquire|map).*`,
			"waiting for a child process",
		},
		{
			meansNetwork, `(socket|ssl|http/client|urllib/\w+|urllib3/\w+|requests/\w+|asyncio/\w+|grpc/_channel|botocore/\w+|` +
				`fsspec/\w+|aiohttp/\w+)\.py`, ``, "waiting for the network",
		},
	}
}
