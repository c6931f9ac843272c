package magics

import (
	"slices"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/magics/result"
)

// TestSparkSession: a reservation is on the notebook's session where there is one,
// which is then lent, unless --master makes another.
func TestSparkSession(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		line string
		has  []string // names of the notebook
		want string   // the session it is on
		lent bool
	}{
		{"--backend spark", []string{"spark"}, "spark", true},
		{"--backend spark", nil, "", false},
		{"--backend spark --session mine", []string{"spark", "mine"}, "mine", true},
		{"--backend spark --master local[2]", []string{"spark"}, "", false},
		{"--backend local", []string{"spark"}, "", false},
	} {
		d, py := newFakeDrivers(t), &fakePython{names: map[string]string{}}
		for _, name := range c.has {
			py.names[name] = "a SparkSession"
		}
		s := newTestSession(t, d, "")
		if _, err := runCode(t.Context(), s, "%tfcluster reserve --name a "+c.line, newRecord(), py); err != nil {
			t.Errorf("%s: %v", c.line, err)
			continue
		}
		if got := d.get("a").request.GetEngine()["session"]; got != c.want {
			t.Errorf("%s with %v is on the session %q", c.line, c.has, got)
		}
		if lent := slices.Contains(py.calls, "spark_lend"); lent != c.lent {
			t.Errorf("%s with %v: lent is %t", c.line, c.has, lent)
		}
	}
}

// TestSparkSessionStopped: on a session that was stopped nothing is reserved; --master makes another.
func TestSparkSessionStopped(t *testing.T) {
	t.Parallel()
	d, py := newFakeDrivers(t),
		&fakePython{names: map[string]string{"spark": "a SparkSession: the SparkSession was stopped"}}
	s := newTestSession(t, d, "")
	_, err := runCode(t.Context(), s, "%tfcluster reserve --backend spark --name a", newRecord(), py)
	if want := "the notebook's SparkSession spark cannot be used: the SparkSession was stopped; make it again, " +
		"then %tfcluster reserve"; err == nil || err.Error() != want {
		t.Errorf("it says %v", err)
	}
	if d.get("a") != nil {
		t.Error("a driver was started")
	}
	if _, err := runCode(t.Context(), s, "%tfcluster reserve --backend spark --name a --master local[2]", newRecord(),
		py); err != nil {
		t.Error(err)
	}
}

// TestSparkSessionRefuses: what a session that exists cannot take is said before
// anything is started, with Spark's own setting.
func TestSparkSessionRefuses(t *testing.T) {
	t.Parallel()
	d, py := newFakeDrivers(t), &fakePython{names: map[string]string{"spark": "a SparkSession"}}
	s := newTestSession(t, d, "")
	for given, want := range map[string]string{
		"--memory 4g":                     "--memory cannot change a SparkSession that exists: set spark.executor.memory and",
		"--worker-memory 4g":              "spark.executor.memoryOverhead",
		"--cpus 2":                        "spark.executor.cores",
		"--packages a:b:1":                "spark.jars.packages",
		"--queue q":                       "spark.yarn.queue",
		"--conf spark.a=b":                "--conf cannot change",
		"--session spark --master yarn":   "give only one of them",
		"--master local[2] --session any": "give only one of them",
	} {
		_, err := runCode(t.Context(), s, "%tfcluster reserve --backend spark "+given, newRecord(), py)
		if r := result.NewReport(err); err == nil || r.Name != "UsageError" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", given, err)
		}
	}
	if d.get("spark-1") != nil {
		t.Error("a driver was started")
	}
}

// TestSparkSessionObject: a cluster is the same one on the same object, by whatever name it is given, and on a name
// as long as the variable has it; another object is refused. The name of a given object is not shown.
func TestSparkSessionObject(t *testing.T) {
	t.Parallel()
	d := newFakeDrivers(t)
	py := &fakePython{names: map[string]string{}}
	for name, identity := range map[string]string{
		"spark": "session_1", "mine": "session_1", "session_1": "session_1", "session_2": "session_2",
	} {
		py.names[name], py.names["identity of "+name] = "a SparkSession", identity
	}
	s := newTestSession(t, d, "")
	reserve := func(session string) error {
		_, err := runCode(t.Context(), s, "%tfcluster reserve --backend spark --name a --session "+session, newRecord(), py)
		return err
	}
	for _, session := range []string{"spark", "mine", "session_1"} {
		if err := reserve(session); err != nil {
			t.Errorf("%s: %v", session, err)
		}
	}
	if err := reserve("session_2"); err == nil || !strings.Contains(err.Error(), "with other options (session)") {
		t.Errorf("another object: %v", err)
	}
	py.names["identity of spark"] = "session_3"
	if err := reserve("spark"); err != nil {
		t.Errorf("the same name: %v", err)
	}
	py.names["session_2"] += ": the SparkSession was stopped"
	if err := reserve("session_2"); err == nil ||
		!strings.HasPrefix(err.Error(), "the SparkSession given to reserve cannot be used: the SparkSession was stopped") {
		t.Errorf("a stopped one: %v", err)
	}
}
