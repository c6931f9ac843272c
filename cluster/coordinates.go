package cluster

import (
	"net"
	"strconv"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// clusterSpec is the environment variable of every task that contains the whole specification,
// unless the user sets a variable of this name.
const clusterSpec = "CLUSTER_SPEC"

// boardRole is the role whose tasks also get their port as TB_PORT, as TonY does.
const boardRole = "tensorboard"

// PlaceEnv returns the environment variables that every task has besides clusterSpec, with any
// program: role, index, number of tasks of the role, and the task's address and port. Variables
// of these names that the user sets take precedence.
func (s Spec) PlaceEnv(task TaskID) map[string]string {
	env := map[string]string{
		"JOB_NAME": task.Role, "TASK_INDEX": strconv.Itoa(task.Index), "TASK_NUM": strconv.Itoa(max(1, len(s[task.Role]))),
	}
	if task.Index >= len(s[task.Role]) {
		return env
	}
	address := s[task.Role][task.Index]
	_, port, err := net.SplitHostPort(address)
	if err != nil { // HostPort made it
		panic(err)
	}
	env["TASK_ADDRESS"], env["TASK_PORT"] = address, port
	if task.Role == boardRole {
		env["TB_PORT"] = port
	}
	return env
}

// trainers returns the tasks that train together, in the order of their ranks: the chief, then
// the workers. rank is the rank of a task, or -1 if it is not one of them; first is the address
// of rank 0, or "" if there is none.
func (s Spec) trainers(task TaskID) (rank, size int, first string) {
	rank = -1
	for _, role := range []string{Chief, Worker} {
		if task.Role == role && task.Index < len(s[role]) {
			rank = size + task.Index
		}
		if size == 0 && len(s[role]) > 0 {
			first = s[role][0]
		}
		size += len(s[role])
	}
	return rank, size, first
}

// FrameworkEnv returns the environment variables by which the processes of a framework connect to
// each other, without those of SpecVariables. Tasks that do not train get the address of rank 0 and
// the number of ranks, but no rank.
func (s Spec) FrameworkEnv(framework string, task TaskID) map[string]string {
	rank, trainers, first := s.trainers(task)
	size := strconv.Itoa(trainers)
	env := map[string]string{}
	switch framework {
	case PyTorch:
		if first == "" {
			break
		}
		host, port, err := net.SplitHostPort(first)
		if err != nil { // HostPort made it
			panic(err)
		}
		env["MASTER_ADDR"], env["MASTER_PORT"], env["WORLD_SIZE"] = host, port, size
		env["INIT_METHOD"], env["WORLD"] = "tcp://"+first, size // TonY's names
		if rank >= 0 {                                          // one process a task: each is the only one on its node
			r := strconv.Itoa(rank)
			env["RANK"], env["NODE_RANK"], env["GROUP_RANK"] = r, r, r
			env["LOCAL_RANK"], env["LOCAL_WORLD_SIZE"] = "0", "1"
		}
	case JAX:
		if first == "" {
			break
		}
		env["JAX_COORDINATOR_ADDRESS"], env["JAX_NUM_PROCESSES"] = first, size
		if rank >= 0 {
			env["JAX_PROCESS_ID"] = strconv.Itoa(rank)
		}
	}
	return env
}

// SpecVariables returns the environment variables of a task that contain the specification. own
// reports whether the user sets a variable of a name; such a variable is left out.
func SpecVariables(framework string, task TaskID, own func(name string) bool) []*clusterpb.SpecVariable {
	var variables []*clusterpb.SpecVariable
	if !own(clusterSpec) {
		variables = append(variables, &clusterpb.SpecVariable{Name: clusterSpec})
	}
	if framework == "" || framework == TensorFlow {
		variables = append(variables, tfConfig(task))
	}
	return variables
}
