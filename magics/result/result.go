package result

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/render"
)

// Value is what a verb returns to the cell: a *ClusterValue, a *RunValue, an *Answer, or nil.
// Its JSON has a "type" by which the shim makes a tfcluster.Cluster, tfcluster.Run or plain data.
type Value interface {
	json.Marshaler
	// String is what Out[n] shows.
	String() string
}

// ClusterValue is a reserved cluster.
type ClusterValue struct {
	Name      string         `json:"name"`
	Backend   string         `json:"backend"`
	Dir       string         `json:"dir"`
	Executors int            `json:"executors"`
	Roles     map[string]int `json:"roles"`
}

// MarshalJSON implements Value.
func (v *ClusterValue) MarshalJSON() ([]byte, error) {
	type plain ClusterValue
	return json.Marshal(struct {
		Type string `json:"type"`
		*plain
	}{"Cluster", (*plain)(v)})
}

// String implements Value.
func (v *ClusterValue) String() string {
	return fmt.Sprintf("Cluster(name='%s', backend='%s', executors=%d)", v.Name, v.Backend, v.Executors)
}

// OfCluster is the value of a cluster.
func OfCluster(st *clusterpb.ClusterStatus) *ClusterValue {
	v := &ClusterValue{
		Name: st.GetName(), Backend: st.GetBackend(), Dir: st.GetDir(), Executors: len(st.GetExecutors()),
		Roles: map[string]int{},
	}
	for _, r := range st.GetRoles() {
		if r.GetCount() > 0 {
			v.Roles[r.GetName()] = int(r.GetCount())
		}
	}
	return v
}

// RunFolders are the folders of a run.
type RunFolders struct {
	LogDir        string `json:"log_dir"`
	CheckpointDir string `json:"checkpoint_dir"`
	ExportDir     string `json:"export_dir"`
}

// RunValue is a run as it stood when the verb returned.
type RunValue struct {
	RunFolders
	Cluster string               `json:"cluster"`
	ID      int                  `json:"id"`
	State   string               `json:"state"`
	Program string               `json:"program"`
	Metrics map[string]float64   `json:"metrics"`
	History map[string][]float64 `json:"history"`
	Steps   map[string][]int64   `json:"steps"` // of the values in History
	// Result is what main_fun returned on the chief, or worker 0, or, where a cluster has
	// neither, on the first task of the first role that the run waits for: as JSON where it can
	// be said so, else pickled (base64), else its repr.
	Result       json.RawMessage `json:"result"`
	ResultPickle []byte          `json:"result_pickle,omitempty"`
	ResultRepr   string          `json:"result_repr,omitempty"`
	// Results are what main_fun returned on each task that ended well, once the run is over.
	Results map[string]TaskValue `json:"results"`
	// ExitCodes by task; a task ended by signal n has -n.
	ExitCodes map[string]int `json:"exit_codes"`
	Seconds   float64        `json:"seconds"`
}

// Float is a finite number whose JSON Python reads as a float, also where it is whole: 2.0, not 2.
type Float float64

// MarshalJSON implements json.Marshaler.
func (f Float) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(float64(f))
	if err == nil && !bytes.ContainsAny(text, ".e") {
		text = append(text, ".0"...)
	}
	return text, err
}

// Floats returns the metrics for a value's JSON.
func Floats(metrics map[string]float64) map[string]Float {
	floats := make(map[string]Float, len(metrics))
	for name, value := range metrics {
		floats[name] = Float(value)
	}
	return floats
}

// Answer is data that a verb has shown and returns as well: dicts, lists, and Values in lists.
type Answer struct{ Data any }

// MarshalJSON implements Value.
func (a *Answer) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Type string `json:"type"`
		Data any    `json:"data"`
	}{"Answer", a.Data})
}

// String implements Value.
func (a *Answer) String() string { return "" }

// Object is a value that Python has: the shim puts the object in its place.
type Object struct {
	ID   string // Python's name for it
	Text string // its repr
}

// MarshalJSON implements json.Marshaler.
func (o *Object) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]string{"type": "Object", "id": o.ID})
}

// String implements Value.
func (o *Object) String() string { return o.Text }

// TaskValue is what one task returned, in the forms of RunValue's Result.
type TaskValue struct {
	Result json.RawMessage `json:"result"`
	Pickle []byte          `json:"result_pickle,omitempty"`
	Repr   string          `json:"result_repr,omitempty"`

	evaluation *clusterpb.Evaluation // nil: the run is not one of evaluate
}

// MarshalJSON implements Value.
func (v *RunValue) MarshalJSON() ([]byte, error) {
	type plain RunValue
	history := make(map[string][]Float, len(v.History))
	for name, values := range v.History {
		history[name] = make([]Float, len(values))
		for i, value := range values {
			history[name][i] = Float(value)
		}
	}
	return json.Marshal(struct {
		Type string `json:"type"`
		*plain
		Metrics map[string]Float   `json:"metrics"`
		History map[string][]Float `json:"history"`
	}{"Run", (*plain)(v), Floats(v.Metrics), history})
}

// String implements Value.
func (v *RunValue) String() string {
	s := fmt.Sprintf("Run(id=%d, state='%s'", v.ID, v.State)
	for _, name := range render.MetricNames(v.Metrics) {
		s += fmt.Sprintf(", %s=%s", name, strconv.FormatFloat(v.Metrics[name], 'g', 4, 64))
	}
	return s + ")"
}

// OfRun is the value of a run of that cluster.
func OfRun(cluster string, st *clusterpb.RunStatus) *RunValue {
	v := &RunValue{
		Cluster: cluster, ID: int(st.GetId()), State: st.GetState(), Program: st.GetProgram(),
		Metrics: st.GetProgress().FiniteMetrics(), History: map[string][]float64{}, Steps: map[string][]int64{},
		RunFolders: RunFolders{st.GetLogDir(), st.GetCheckpointDir(), st.GetExportDir()}, ExitCodes: map[string]int{},
		Seconds: st.GetSeconds(), Results: map[string]TaskValue{},
	}
	for _, s := range st.GetSeries() {
		if _, taken := v.History[s.GetName()]; !taken {
			v.Steps[s.GetName()], v.History[s.GetName()] = render.Points(s)
		}
	}
	for _, t := range st.GetTasks() {
		switch {
		case t.GetSignal() > 0:
			v.ExitCodes[t.GetTask()] = -int(t.GetSignal())
		case render.Over(t.GetState()):
			v.ExitCodes[t.GetTask()] = int(t.GetExitCode())
		}
	}
	result := taskValue(st.GetResult())
	v.Result, v.ResultPickle, v.ResultRepr = result.Result, result.Pickle, result.Repr
	for task, r := range st.GetResults() {
		v.Results[task] = taskValue(r)
	}
	return v
}

// Means returns the mean of each metric over the tasks that evaluated it, weighted by the records of each task.
func (v *RunValue) Means() map[string]float64 {
	sums, weights := map[string]float64{}, map[string]float64{}
	for _, r := range v.Results {
		records := float64(r.evaluation.GetRecords())
		for name, value := range r.evaluation.GetMetrics() {
			sums[name] += value * records
			weights[name] += records
		}
	}
	means := map[string]float64{}
	for name, sum := range sums {
		if weights[name] > 0 {
			means[name] = sum / weights[name]
		}
	}
	return means
}

func taskValue(r *clusterpb.TaskResult) TaskValue {
	v := TaskValue{Pickle: r.GetPickled(), Repr: r.GetRepr(), evaluation: r.GetEvaluation()}
	if json.Valid([]byte(r.GetJson())) {
		v.Result = json.RawMessage(r.GetJson())
	}
	return v
}

// Bundle is the value as an execute_result's data; nil for a nil value and for one that the
// verb has shown itself.
func Bundle(v Value) map[string]any {
	if v == nil || v.String() == "" {
		return nil
	}
	return map[string]any{"text/plain": v.String()}
}

// JSON is the value for the shim; "null" for a nil value.
func JSON(v Value) ([]byte, error) {
	if v == nil {
		return []byte("null"), nil
	}
	return v.MarshalJSON()
}
