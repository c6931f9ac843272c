package magics

import (
	"maps"
	"testing"
)

// TestHadoopOfTheNotebook: what a cell says of Hadoop counts before the environment of
// this process, and goes to the driver with the request.
func TestHadoopOfTheNotebook(t *testing.T) {
	t.Setenv("HADOOP_CONF_DIR", "/of/the/process")
	t.Setenv("YARN_CONF_DIR", "/last")
	t.Setenv("HADOOP_USER_NAME", "ana")
	for _, tt := range []struct {
		name     string
		notebook map[string]string
		want     map[string]string
	}{
		{"of the process", nil, map[string]string{"queue": "ml", "conf-dir": "/of/the/process", "user": "ana"}},
		{"of the notebook", map[string]string{"env HADOOP_CONF_DIR": "/of/a/cell"}, map[string]string{
			"queue": "ml", "conf-dir": "/of/a/cell", "user": "ana",
		}},
	} {
		d := newFakeDrivers(t)
		s := newTestSession(t, d, "")
		if _, err := runCode(t.Context(), s, "%tfcluster reserve --backend yarn --queue ml --name y", newRecord(),
			&fakePython{names: tt.notebook}); err != nil {
			t.Fatal(err)
		}
		if r := d.get("y").request; !maps.Equal(r.GetEngine(), tt.want) {
			t.Errorf("%s: the request has %v, want %v", tt.name, r.GetEngine(), tt.want)
		}
	}
}
