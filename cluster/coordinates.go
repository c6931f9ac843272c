package cluster

import (
	"net"
	"strconv"
)

// PlaceEnv is what every task's environment says of where it stands, whatever it runs;
// a person's own variables of these names win.
func (s Spec) PlaceEnv(task TaskID) map[string]string {
	return map[string]string{
		"JOB_NAME": task.Role, "TASK_INDEX": strconv.Itoa(task.Index), "TASK_NUM": strconv.Itoa(max(1, len(s[task.Role]))), "CLUSTER_SPEC": s.JSON(),
	}
}

// trainers are the tasks that train together, in the order of their ranks: the chief,
// then the workers.
func (s Spec) trainers() (tasks []TaskID, addresses []string) {
	for _, role := range []string{Chief, Worker} {
		for i, a := range s[role] {
			tasks, addresses = append(tasks, TaskID{Role: role, Index: i}), append(addresses, a)
		}
	}
	return tasks, addresses
}

// FrameworkEnv are by what a framework's processes find one another. Those that do not
// train are told where the first that does is, and how many there are; they have no rank.
func (s Spec) FrameworkEnv(framework string, task TaskID) map[string]string {
	tasks, addresses := s.trainers()
	rank, size := -1, strconv.Itoa(len(tasks))
	for i, t := range tasks {
		if t == task {
			rank = i
		}
	}
	env := map[string]string{}
	first := ""
	if len(addresses) > 0 {
		first = addresses[0]
	}
	switch framework {
	case "", TensorFlow:
		env["TF_CONFIG"] = s.TFConfig(task)
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
