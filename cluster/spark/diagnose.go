package spark

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/python"
)

// diagnose checks pyspark in the notebook's Python, Java, and the folders of Spark's variables.
// On a machine without any of them it reports no problem.
func diagnose(ctx context.Context, r *clusterpb.ReserveRequest) []cluster.Check {
	interpreter := r.GetPython()
	folders, wrong := configured("SPARK_HOME", "SPARK_CONF_DIR")
	got, err := python.Versions(ctx, interpreter, "pyspark", "grpcio-status", "pandas", "pyarrow")
	f, installer := cluster.Check{What: "Spark"}, python.InstallCommand(interpreter)
	switch {
	case err != nil:
		return nil // the check of Python reports it
	case got["pyspark"] == "" && folders == "":
		f.Found = "not set up (for --backend spark: " + installer + " 'pyspark[connect]', and Java)"
		return []cluster.Check{f}
	case got["pyspark"] == "":
		f.Found, f.Remedy = folders+", no pyspark", installer+" pyspark of the cluster's version"
		return []cluster.Check{f, findJava(ctx, "")}
	}
	f.Found, f.Remedy = "pyspark "+got["pyspark"], wrong
	if folders != "" {
		f.Found += ", " + folders
	}
	var without []string
	for _, name := range []string{"grpcio-status", "pandas", "pyarrow"} {
		if got[name] == "" {
			without = append(without, name)
		}
	}
	if len(without) > 0 {
		f.Found += "; not for Spark Connect, which needs " + strings.Join(without, ", ") + ": " + installer +
			" 'pyspark[connect]'"
	}
	return []cluster.Check{f, findJava(ctx, got["pyspark"])}
}

// javaTimeout bounds java -version.
const javaTimeout = 30 * time.Second

// javaVersion matches the version in the output of java -version: "17.0.9", or "1.8.0_392" for
// 8.
var javaVersion = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`version "((?:1\.)?(\d+)[^"]*)"`)
})

// findJava checks the Java with which Spark's scripts would start a driver of this pyspark.
func findJava(ctx context.Context, pyspark string) cluster.Check {
	need := 8
	if major, _, _ := strings.Cut(pyspark, "."); pyspark == "" || len(major) > 1 || major > "3" {
		need = 17
	}
	f := cluster.Check{What: "Java", Remedy: fmt.Sprintf("install a JRE of version %d or later, or set JAVA_HOME", need)}
	java := "java"
	if home := os.Getenv("JAVA_HOME"); home != "" {
		java = filepath.Join(home, "bin", "java")
	}
	ctx, cancel := context.WithTimeout(ctx, javaTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, java, "-version").CombinedOutput()
	if err != nil {
		f.Found = fmt.Sprintf("%s does not run: %v (Spark's driver is in Java)", java, err)
		return f
	}
	m := javaVersion().FindSubmatch(out)
	if m == nil {
		first, _, _ := strings.Cut(string(out), "\n")
		f.Found, f.Remedy = fmt.Sprintf("%s, %.60s", java, strings.TrimSpace(first)), ""
		return f
	}
	f.Found = java + ", " + string(m[1])
	if major, err := strconv.Atoi(string(m[2])); err != nil || major >= need {
		f.Remedy = ""
	} else {
		f.Remedy = fmt.Sprintf("pyspark %s needs Java %d or later: install a JRE, or set JAVA_HOME", pyspark, need)
	}
	return f
}

// configured returns the variables that are set, and a remedy if one names a missing folder.
func configured(names ...string) (found, wrong string) {
	var parts []string
	for _, name := range names {
		dir := os.Getenv(name)
		if dir == "" {
			continue
		}
		parts = append(parts, name+"="+dir)
		if _, err := os.Stat(dir); err != nil {
			wrong = "there is no " + dir + ": correct " + name
		}
	}
	return strings.Join(parts, " "), wrong
}
