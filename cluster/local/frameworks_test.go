package local_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clustertest"
)

// rendezvous simulates how a framework's processes meet at their configured address: the first process
// listens there, on a port that the agent holds for it.
const rendezvous = `
import os, socket, time
host, port, rank, size = %s
rank, size = int(rank), int(size)
assert "TF_CONFIG" not in os.environ
if rank == 0:
    server = socket.create_server(("", int(port)))  # sets SO_REUSEADDR, as PyTorch's store
    peers = [server.accept()[0] for _ in range(size - 1)]
    ranks = sorted(int(p.makefile().readline()) for p in peers)
    assert ranks == list(range(1, size)), ranks
    for p in peers:
        p.sendall(b"go\n")
else:
    for _ in range(600):
        try:
            peer = socket.create_connection((host, int(port)))
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    peer.sendall(f"{rank}\n".encode())
    assert peer.makefile().readline() == "go\n"
print(f"rank {rank} of {size} met")
`

// TestFrameworks: processes of PyTorch and JAX find each other with their environment variables. The
// frameworks are replaced by a plain program.
func TestFrameworks(t *testing.T) {
	t.Parallel()
	env := func(names ...string) string { return `(os.environ["` + strings.Join(names, `"], os.environ["`) + `"])` }
	for framework, found := range map[string]string{
		"pytorch": env("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"),
		"jax": `(*os.environ["JAX_COORDINATOR_ADDRESS"].rsplit(":", 1), os.environ["JAX_PROCESS_ID"], ` +
			`os.environ["JAX_NUM_PROCESSES"])`,
	} {
		t.Run(framework, func(t *testing.T) {
			t.Parallel()
			startBatch(t, "--framework", framework, "--chief", "--workers", "2",
				script(t, fmt.Sprintf(rendezvous, found))).end(0).
				prints("[chief:0] rank 0 of 3 met", "[worker:0] rank 1 of 3 met", "[worker:1] rank 2 of 3 met")
		})
	}
	t.Run("local rank", func(t *testing.T) {
		t.Parallel()
		startBatch(t, "--framework", "pytorch", "--workers", "2", "--role", "board=1", "--board-kind", "sidecar",
			"--board-command", `echo "board: ${RANK-no rank}, $MASTER_ADDR" > board; sleep 60`, "--worker-depends-on", "board",
			"--worker-command", awaitFile("board")+`; cat board; echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE `+
				`$INIT_METHOD`).end(0).prints("board: no rank, 127.0.0.1", "0/2 0/1 tcp://127.0.0.1:", "1/2 0/1 tcp://")
	})
}

// frameworkPrograms are programs of the frameworks, as in docs/tony.md: each process contributes its rank
// plus one, and all get the sum.
var frameworkPrograms = map[string]string{
	"torch": `
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
x = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(x)
print(f"rank {dist.get_rank()} of {dist.get_world_size()} has {x.item():.0f}")
dist.destroy_process_group()
`,
	"jax": `
import os

import jax

processes, own = int(os.environ["JAX_NUM_PROCESSES"]), int(os.environ["JAX_PROCESS_ID"])
jax.distributed.initialize(os.environ["JAX_COORDINATOR_ADDRESS"], processes, own)
from jax.experimental import multihost_utils

x = multihost_utils.process_allgather(jax.numpy.array([jax.process_index() + 1.0]))
print(f"rank {jax.process_index()} of {jax.process_count()} has {x.sum():.0f}")
`,
}

// TestFrameworksThemselves: processes of PyTorch and JAX meet, if the tests' Python has them.
func TestFrameworksThemselves(t *testing.T) {
	t.Parallel()
	for module, framework := range map[string]string{"torch": "pytorch", "jax": "jax"} {
		t.Run(framework, func(t *testing.T) {
			t.Parallel()
			python := clustertest.FindPython(t)
			if out, err := exec.Command(python, "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec('"+module+
				"') is None)").CombinedOutput(); err != nil {
				t.Skipf("%s has no module %s: %v %s", python, module, err, out)
			}
			startBatch(t, "--framework", framework, "--workers", "3", script(t, frameworkPrograms[module])).end(0).
				prints("[worker:0] rank 0 of 3 has 6", "[worker:1] rank 1 of 3 has 6", "[worker:2] rank 2 of 3 has 6")
		})
	}
}
