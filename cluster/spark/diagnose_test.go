package spark

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/clustertest/executable"
)

// shellScript writes a shell script and returns its path.
func shellScript(t *testing.T, path, body string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	executable.Write(t, path, "#!/bin/sh\n"+body+"\n")
	return path
}

// TestDiagnose: what stands for Spark on machines of several kinds, and what to do.
func TestDiagnose(t *testing.T) {
	const connect = `"grpcio-status":"1.76.0","pandas":"2.3.3","pyarrow":"22.0.0"`
	for _, c := range []struct {
		name, packages, java string
		env                  map[string]string
		want                 []string // in the lines, in their order
		lacks                int
	}{
		{"no Spark", `{"pyspark":""}`, `echo 'openjdk version "17.0.9" 2023-10-17' >&2`, nil, []string{
			"not set up", "pip install 'pyspark[connect]'",
		}, 0},
		{
			"all is there", `{"pyspark":"4.0.5",` + connect +
				`}`, `echo 'openjdk version "17.0.9" 2023-10-17' >&2`, nil, []string{"pyspark 4.0.5", "Java", "17.0.9"}, 0,
		},
		{
			"an old Java", `{"pyspark":"4.0.5",` + connect +
				`}`, `echo 'java version "1.8.0_392"' >&2`, nil, []string{"1.8.0_392", "pyspark 4.0.5 needs Java 17 or later"}, 1,
		},
		{
			"an old Java for an old Spark", `{"pyspark":"3.5.7",` + connect +
				`}`, `echo 'java version "1.8.0_392"' >&2`, nil, []string{"pyspark 3.5.7", "1.8.0_392"}, 0,
		},
		{
			"no Java", `{"pyspark":"4.0.5",` + connect +
				`}`, "exit 127", nil, []string{"does not run", "install a JRE of version 17 or later, or set JAVA_HOME"}, 1,
		},
		{
			"no Spark Connect", `{"pyspark":"4.0.5","grpcio-status":"","pandas":"2.3.3","pyarrow":""}`, `echo 'openjdk ` +
				`version "21" 2023-09-19' >&2`, nil, []string{"needs grpcio-status, pyarrow"}, 0,
		},
		{
			"a home without pyspark", `{"pyspark":""}`, `echo 'openjdk version "17.0.9"' >&2`,
			map[string]string{"SPARK_HOME": "/"},
			[]string{"SPARK_HOME=/, no pyspark", "pip install pyspark"},
			1,
		},
		{
			"a home that is not there", `{"pyspark":"4.0.5",` + connect + `}`, `echo 'openjdk version "17.0.9"' >&2`,
			map[string]string{"SPARK_CONF_DIR": "/no/such"},
			[]string{"SPARK_CONF_DIR=/no/such", "there is no /no/such: correct SPARK_CONF_DIR"},
			1,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			python := shellScript(t, filepath.Join(dir, "python"), "echo '"+c.packages+"'")
			shellScript(t, filepath.Join(dir, "jre", "bin", "java"), c.java)
			t.Setenv("JAVA_HOME", filepath.Join(dir, "jre"))
			for _, name := range []string{"SPARK_HOME", "SPARK_CONF_DIR"} {
				t.Setenv(name, c.env[name])
			}
			text, lacks := "", 0
			for _, f := range diagnose(t.Context(), &clusterpb.ReserveRequest{Python: python}) {
				text += strings.Join([]string{f.What, f.Found, f.Remedy}, "  ") + "\n"
				if f.Remedy != "" {
					lacks++
				}
			}
			rest := text
			for _, want := range c.want {
				_, after, ok := strings.Cut(rest, want)
				if !ok {
					t.Errorf("%q is not there, or not in its place:\n%s", want, text)
				}
				rest = after
			}
			if lacks != c.lacks {
				t.Errorf("%d things are missing, want %d:\n%s", lacks, c.lacks, text)
			}
		})
	}
}
