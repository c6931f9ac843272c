package cluster

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

func TestCoordinates(t *testing.T) {
	t.Parallel()
	spec := Spec{Chief: {"h0:7000"}, Worker: {"h1:7001", "[::1]:7002"}, PS: {"h3:7003"}, "db": {"h4:7004"}}
	chief, worker, db := TaskID{Role: Chief}, TaskID{Role: Worker, Index: 1}, TaskID{Role: "db"}
	torch := func(more map[string]string) map[string]string {
		env := map[string]string{
			"MASTER_ADDR": "h0", "MASTER_PORT": "7000", "WORLD_SIZE": "3", "INIT_METHOD": "tcp://h0:7000", "WORLD": "3",
		}
		maps.Copy(env, more)
		return env
	}
	ranked := func(r string) map[string]string {
		return torch(
			map[string]string{"RANK": r, "NODE_RANK": r, "GROUP_RANK": r, "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"})
	}
	for _, c := range []struct {
		framework string
		task      TaskID
		want      map[string]string
	}{
		{PyTorch, chief, ranked("0")},
		{PyTorch, worker, ranked("2")},
		{PyTorch, db, torch(nil)},
		{JAX, worker, map[string]string{
			"JAX_COORDINATOR_ADDRESS": "h0:7000", "JAX_NUM_PROCESSES": "3", "JAX_PROCESS_ID": "2",
		}},
		{JAX, db, map[string]string{"JAX_COORDINATOR_ADDRESS": "h0:7000", "JAX_NUM_PROCESSES": "3"}},
		{Plain, worker, map[string]string{}},
	} {
		if got := spec.FrameworkEnv(c.framework, c.task); !maps.Equal(got, c.want) {
			t.Errorf("%s for %s: %v, want %v", c.framework, c.task, got, c.want)
		}
	}
	if got := (Spec{"db": {"h4:7004"}}).FrameworkEnv(PyTorch, db); len(got) > 0 {
		t.Errorf("without trainers: %v", got)
	}
	place := spec.PlaceEnv(worker)
	if place["JOB_NAME"] != "worker" || place["TASK_INDEX"] != "1" || place["TASK_NUM"] != "2" {
		t.Errorf("place %v", place)
	}
	if place["TASK_ADDRESS"] != spec[Worker][1] || place["TASK_PORT"] != "7002" || place["TB_PORT"] != "" {
		t.Errorf("place %v", place)
	}
	board := Spec{boardRole: {"[::1]:7005"}}.PlaceEnv(TaskID{Role: boardRole})
	if board["TASK_ADDRESS"] != "[::1]:7005" || board["TASK_PORT"] != "7005" || board["TB_PORT"] != "7005" {
		t.Errorf("place of tensorboard %v", board)
	}
}

// TestSpecVariables: the variables that a task is given are made of one specification.
func TestSpecVariables(t *testing.T) {
	t.Parallel()
	spec := Spec{Chief: {"h0:7000"}, Worker: {"h1:7001", "[::1]:7002"}, PS: {"h3:7003"}}
	const tensorflow = `"chief":["h0:7000"],"ps":["h3:7003"],"worker":["h1:7001","[::1]:7002"]`
	more := Spec{"db": {"h4:7004"}}
	maps.Copy(more, spec)
	for _, c := range []struct {
		name, framework string
		spec            Spec
		task            TaskID
		own             map[string]string
		want            map[string]string
	}{
		{
			"of TensorFlow's roles", "", spec,
			TaskID{Role: Worker, Index: 1},
			nil,
			map[string]string{
				"CLUSTER_SPEC": "{" + tensorflow + "}",
				"TF_CONFIG":    `{"cluster":{` + tensorflow + `},"task":{"type":"worker","index":1}}`,
			},
		},
		{
			"beside others", TensorFlow, more, TaskID{Role: "db"}, nil, // which TensorFlow's strategies refuse
			map[string]string{
				"CLUSTER_SPEC": `{"chief":["h0:7000"],"db":["h4:7004"],` +
					strings.TrimPrefix(tensorflow, `"chief":["h0:7000"],`) + "}",
				"TF_CONFIG": `{"cluster":{` + tensorflow + `},"task":{"type":"db","index":0}}`,
			},
		},
		{
			"a person's own", TensorFlow, spec,
			TaskID{Role: Evaluator},
			map[string]string{"CLUSTER_SPEC": "mine", "TF_CONFIG": "mine"},
			map[string]string{
				"CLUSTER_SPEC": "mine", "TF_CONFIG": `{"cluster":{` + tensorflow + `},"task":{"type":"evaluator","index":0}}`,
			},
		},
		{"of another framework", PyTorch, spec, TaskID{Role: Worker}, nil, map[string]string{
			"CLUSTER_SPEC": "{" + tensorflow + "}",
		}},
	} {
		launch := &clusterpb.Launch{
			Env: c.own, ClusterSpec: c.spec.JSON(),
			SpecVariables: SpecVariables(c.framework, c.task, func(name string) bool { return c.own[name] != "" }),
		}
		got, err := launch.Environment()
		if err != nil || !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v: %v", c.name, got, c.want, err)
		}
	}
}

func TestValidateKinds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		roles []*clusterpb.Role
		want  string
	}{
		{[]*clusterpb.Role{{Name: "worker", Count: 2}, {Name: "db", Count: 1, Kind: Sidecar}}, ""},
		{
			[]*clusterpb.Role{{Name: "worker", Count: 2, DependsOn: []string{"db"}}},
			"role worker depends on db, of which there are no executors: request some, or leave --worker-depends-on out",
		},
		{
			[]*clusterpb.Role{{Name: "worker", Count: 2, DependsOn: []string{"worker"}}},
			"roles that depend on one another never start (worker → worker): remove one --ROLE-depends-on",
		},
		{
			[]*clusterpb.Role{
				{Name: "worker", Count: 2, DependsOn: []string{"a"}}, {Name: "a", Count: 1, DependsOn: []string{"b"}}, {
					Name: "b", Count: 1, DependsOn: []string{"a"},
				},
			},
			"roles that depend on one another never start (a → b → a): remove one --ROLE-depends-on",
		},
		{
			[]*clusterpb.Role{{Name: "worker", Count: 1, Kind: "sdiecar"}},
			`--worker-kind "sdiecar": want one of tracked, untracked, sidecar`,
		},
		{
			[]*clusterpb.Role{{Name: "chief", Count: 1, Kind: Sidecar}},
			"--chief-kind: the run ends when the chief ends, so the chief is always tracked; leave the option out",
		},
		{
			[]*clusterpb.Role{{Name: "ps", Count: 1}},
			"no role ends the run: one of them must be tracked and have no --ROLE-end-within",
		},
		{
			[]*clusterpb.Role{{Name: "worker", Count: 1, EndWithinMillis: 1000}},
			"no role ends the run: one of them must be tracked and have no --ROLE-end-within",
		},
	} {
		err := Validate(c.roles)
		if got := words(err); got != c.want {
			t.Errorf("%v: %q, want %q", c.roles, got, c.want)
		}
	}
}

func words(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestManyWays: roles are walked from once, however many ways lead to them.
func TestManyWays(t *testing.T) {
	t.Parallel()
	const layers = 40
	var roles []*clusterpb.Role
	for i := range layers {
		for _, side := range []string{"a", "b"} {
			r := &clusterpb.Role{Name: fmt.Sprintf("%s%d", side, i), Count: 1}
			if i > 0 {
				r.DependsOn = []string{fmt.Sprintf("a%d", i-1), fmt.Sprintf("b%d", i-1)}
			}
			roles = append(roles, r)
		}
	}
	if err := validateKinds(roles); err != nil {
		t.Error(err)
	}
	roles[0].DependsOn = []string{fmt.Sprintf("b%d", layers-1)}
	if err := validateKinds(roles); err == nil || !strings.Contains(err.Error(), "never start (") {
		t.Errorf("a long circle: %v", err)
	}
}
