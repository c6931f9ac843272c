package verbs

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

	"github.com/tfcluster/tfcluster/magics/command"
)

// findSpark is what --backend spark needs here: pyspark in the notebook's Python, Java,
// and folders that exist where Spark is told of them. A machine that nobody set up for
// Spark lacks nothing.
func findSpark(ctx context.Context, python string) []finding {
	folders, wrong := configured("SPARK_HOME", "SPARK_CONF_DIR")
	got, err := packages(ctx, python, "pyspark", "grpcio-status", "pandas", "pyarrow")
	f := finding{what: "Spark"}
	switch {
	case err != nil:
		return nil // the line of Python says it
	case got["pyspark"] == "" && folders == "":
		f.found = "not set up (for --backend spark: " + python + " -m pip install 'pyspark[connect]', and Java)"
		return []finding{f}
	case got["pyspark"] == "":
		f.found, f.remedy = folders+", no pyspark", python+" -m pip install pyspark of the cluster's version"
		return []finding{f, findJava(ctx, "")}
	}
	f.found, f.remedy = "pyspark "+got["pyspark"], wrong
	if folders != "" {
		f.found += ", " + folders
	}
	var without []string
	for _, name := range []string{"grpcio-status", "pandas", "pyarrow"} {
		if got[name] == "" {
			without = append(without, name)
		}
	}
	if len(without) > 0 {
		f.found += "; not for Spark Connect, which needs " + strings.Join(without, ", ") + ": " + python + " -m pip install 'pyspark[connect]'"
	}
	return []finding{f, findJava(ctx, got["pyspark"])}
}

// javaVersion is in the first line of java -version: "17.0.9", or "1.8.0_392" for 8.
var javaVersion = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`version "((?:1\.)?(\d+)[^"]*)"`)
})

// findJava looks for the Java that starts a driver of this pyspark, as Spark's own scripts do.
func findJava(ctx context.Context, pyspark string) finding {
	need := 8
	if major, _, _ := strings.Cut(pyspark, "."); pyspark == "" || len(major) > 1 || major > "3" {
		need = 17
	}
	f := finding{what: "Java", remedy: fmt.Sprintf("install a JRE of version %d or later, or set JAVA_HOME", need)}
	java := "java"
	if home := os.Getenv("JAVA_HOME"); home != "" {
		java = filepath.Join(home, "bin", "java")
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, java, "-version").CombinedOutput()
	if err != nil {
		f.found = fmt.Sprintf("%s does not run: %v (Spark's driver is in Java)", java, err)
		return f
	}
	m := javaVersion().FindSubmatch(out)
	if m == nil {
		first, _, _ := strings.Cut(string(out), "\n")
		f.found, f.remedy = java+", "+command.Shorten(strings.TrimSpace(first), 60), ""
		return f
	}
	f.found = java + ", " + string(m[1])
	if major, err := strconv.Atoi(string(m[2])); err != nil || major >= need {
		f.remedy = ""
	} else {
		f.remedy = fmt.Sprintf("pyspark %s needs Java %d or later: install a JRE, or set JAVA_HOME", pyspark, need)
	}
	return f
}

// configured are the variables that are set, and what to do where one names no folder.
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
