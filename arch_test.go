package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster"
)

const module = "github.com/tfcluster/tfcluster"

// mayImport lists, for each part, which other parts it may import. The root may import all, and every part may import
// internal. A part is a folder with everything below it; the longest match counts.
var mayImport = map[string][]string{
	// what a user's process runs
	"docs":        {},
	"jupyter-ext": {},
	"kernel":      {},
	"magics": {
		"cluster/client", "cluster/clusterpb", "magics/bridge", "magics/command", "magics/panel", "magics/render",
		"magics/result", "magics/session", "magics/verbs",
	},
	"magics/advisories": {},
	"magics/bridge":     {"cluster/state", "magics/command", "magics/render", "magics/result"},
	"magics/command":    {"cluster"},
	"magics/feeding":    {"cluster/clusterpb", "magics/bridge", "magics/result"},
	"magics/panel": {
		"cluster", "cluster/clusterpb", "magics/bridge", "magics/command", "magics/render", "magics/result",
		"magics/session",
	},
	"magics/render": {
		"cluster", "cluster/clusterpb", "cluster/manifest", "cluster/results/logstore", "magics/command",
		"rdma/fabric",
	},
	"magics/result": {"cluster/clusterpb", "magics/command", "magics/render"},
	"magics/session": {
		"cluster", "cluster/client", "cluster/clusterpb", "cluster/results", "cluster/state", "magics/command",
		"magics/render", "magics/result",
	},
	"magics/verbs": {
		"cluster", "cluster/clusterpb", "cluster/manifest", "cluster/manifest/git", "cluster/python",
		"cluster/results", "cluster/results/logstore", "cluster/results/rundir", "cluster/ship", "cluster/state",
		"docs", "magics/advisories", "magics/bridge", "magics/command", "magics/feeding", "magics/render",
		"magics/result", "magics/session", "rdma/fabric",
	},
	"tensorboard": {},
	"wheel":       {},

	// what serves several processes
	"cluster":              {"cluster/clusterpb"},
	"cluster/auth":         {},
	"cluster/client":       {"cluster/clusterpb", "cluster/state"},
	"cluster/clusterpb":    {},
	"cluster/fabric":       {"cluster/clusterpb", "rdma/fabric"},
	"cluster/hdfs":         {},
	"cluster/manifest":     {"cluster", "cluster/clusterpb"},
	"cluster/manifest/git": {"cluster/clusterpb"},
	"cluster/python":       {},
	"cluster/results": {
		"cluster", "cluster/clusterpb", "cluster/results/logstore", "cluster/results/rundir", "cluster/state",
	},
	"cluster/results/logstore": {"cluster", "cluster/clusterpb", "cluster/results/rundir"},
	"cluster/results/rundir":   {},
	"cluster/runfiles":         {"cluster/clusterpb", "cluster/results/rundir"},
	"cluster/ship":             {"cluster/clusterpb"},
	"cluster/state":            {"cluster", "cluster/clusterpb"},
	"internal":                 {},

	// the driver
	"cluster/driver": {
		"cluster", "cluster/auth", "cluster/clusterpb", "cluster/driver/coordinator", "cluster/driver/lines",
		"cluster/driver/proxy", "cluster/driver/serving", "cluster/driver/webui", "cluster/results",
		"cluster/results/rundir", "cluster/runfiles", "cluster/state",
	},
	"cluster/driver/coordinator": {
		"cluster", "cluster/auth", "cluster/clusterpb", "cluster/driver/feed/dispatch", "cluster/driver/groups",
		"cluster/driver/lifecycle", "cluster/driver/panel", "cluster/driver/verdict", "cluster/fabric",
		"cluster/manifest", "cluster/manifest/git", "cluster/results", "cluster/results/logstore",
		"cluster/results/rundir", "cluster/runfiles", "cluster/ship",
	},
	"cluster/driver/feed":          {"cluster/clusterpb"},
	"cluster/driver/feed/dispatch": {"cluster/auth", "cluster/clusterpb", "cluster/driver/feed"},
	"cluster/driver/groups":        {"cluster/auth", "cluster/clusterpb"},
	"cluster/driver/hdfsdir":       {"cluster/driver", "cluster/hdfs"},
	"cluster/driver/lifecycle":     {"cluster", "cluster/clusterpb"},
	"cluster/driver/lines":         {"cluster/clusterpb"},
	"cluster/driver/panel":         {"cluster/clusterpb"},
	"cluster/driver/proxy": {
		"cluster", "cluster/auth", "cluster/clusterpb", "cluster/driver/coordinator", "cluster/driver/serving",
		"cluster/results/rundir", "cluster/runfiles", "cluster/ship", "cluster/state",
	},
	"cluster/driver/serving": {},
	"cluster/driver/verdict": {"cluster", "cluster/clusterpb"},
	"cluster/driver/webui":   {"cluster", "cluster/clusterpb"},

	// the agent
	"cluster/agent": {
		"cluster/agent/feed", "cluster/agent/gpu", "cluster/agent/group", "cluster/agent/interpreter",
		"cluster/agent/tasklog", "cluster/clusterpb", "cluster/fabric", "cluster/hdfs", "cluster/manifest",
		"cluster/results/rundir", "cluster/runfiles", "cluster/ship", "rdma/fabric", "rdma/transport",
	},
	"cluster/agent/feed":    {"cluster/clusterpb", "rdma/memory"},
	"cluster/agent/forking": {},
	"cluster/agent/gpu":     {"cluster/clusterpb"},
	"cluster/agent/group": {
		"cluster/clusterpb", "rdma/collective", "rdma/memory", "rdma/reduce", "rdma/transport",
	},
	"cluster/agent/interpreter": {"cluster/agent/forking", "cluster/clusterpb", "cluster/python"},
	"cluster/agent/tasklog":     {"cluster/clusterpb"},

	// backends
	"cluster/local":      {"cluster", "cluster/clusterpb", "cluster/results/rundir", "cluster/state"},
	"cluster/spark":      {"cluster", "cluster/clusterpb", "cluster/python", "cluster/state"},
	"cluster/spark/slot": {"cluster/clusterpb"},
	"cluster/yarn": {
		"cluster", "cluster/clusterpb", "cluster/hdfs", "cluster/yarn/containerlogs", "cluster/yarn/credentials",
		"cluster/yarn/gang", "cluster/yarn/protocol", "cluster/yarn/site", "cluster/yarn/yarnpb",
	},
	"cluster/yarn/aggregated": {},
	"cluster/yarn/containerlogs": {
		"cluster", "cluster/clusterpb", "cluster/hdfs", "cluster/yarn/aggregated", "cluster/yarn/protocol",
		"cluster/yarn/site", "cluster/yarn/yarnpb",
	},
	"cluster/yarn/credentials": {"cluster/yarn/yarnpb"},
	"cluster/yarn/gang":        {"cluster/yarn/protocol", "cluster/yarn/yarnpb"},
	"cluster/yarn/ipc":         {"cluster/yarn/credentials", "cluster/yarn/yarnpb"},
	"cluster/yarn/protocol": {
		"cluster/hdfs", "cluster/yarn/credentials", "cluster/yarn/ipc", "cluster/yarn/yarnpb",
	},
	"cluster/yarn/site":   {"cluster", "cluster/clusterpb", "cluster/hdfs"},
	"cluster/yarn/yarnpb": {},

	// collective calls
	"rdma/collective": {"rdma/memory", "rdma/reduce", "rdma/transport"},
	"rdma/fabric":     {},
	"rdma/memory":     {},
	"rdma/reduce":     {},
	"rdma/transport":  {"rdma/memory", "rdma/verbs"},
	"rdma/verbs":      {},

	// tests
	"cluster/clustertest":     {"cluster/client", "cluster/clusterpb", "cluster/state"},
	"cluster/spark/sparktest": {"cluster/clustertest", "cluster/state"},
	"cluster/yarn/hadooptest": {},
	"e2e":                     {"cluster/clustertest", "cluster/spark/sparktest", "cluster/yarn/hadooptest"},
	"e2e/sim":                 {"cluster", "cluster/client", "cluster/clusterpb", "cluster/driver", "cluster/state"},
}

type goPackage struct {
	ImportPath, Dir, Name      string
	GoFiles, CgoFiles, Imports []string
	TestGoFiles, XTestGoFiles  []string
}

func list(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Name,GoFiles,CgoFiles,Imports,TestGoFiles,XTestGoFiles",
		"./...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var ps []goPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := dec.Decode(&p); err == io.EOF {
			return ps
		} else if err != nil {
			t.Fatal(err)
		}
		ps = append(ps, p)
	}
}

// part returns the longest known folder that contains a package.
func part(importPath string) string {
	rel := strings.TrimPrefix(strings.TrimPrefix(importPath, module), "/")
	best := ""
	for p := range mayImport {
		if (rel == p || strings.HasPrefix(rel, p+"/")) && len(p) > len(best) {
			best = p
		}
	}
	return best
}

// TestImports: imports have one direction.
func TestImports(t *testing.T) {
	t.Parallel()
	for _, p := range list(t) {
		from := part(p.ImportPath)
		if p.ImportPath == module {
			continue
		}
		if from == "" {
			t.Errorf("%s is in no known part: add it to mayImport in arch_test.go", p.ImportPath)
			continue
		}
		for _, imp := range p.Imports {
			if imp != module && !strings.HasPrefix(imp, module+"/") {
				continue
			}
			to := part(imp)
			allowed := to == from || to == "internal"
			for _, a := range mayImport[from] {
				allowed = allowed || a == to
			}
			if !allowed {
				t.Errorf("%s imports %s: %s may import %v", p.ImportPath, imp, from, mayImport[from])
			}
		}
	}
}

// importers lists the parts outside of a process's folder that may import something below it; the root may import all.
var importers = map[string][]string{
	"cluster/agent":  nil,
	"cluster/driver": {"e2e/sim"},
}

// TestProcesses: what is below cluster/agent runs in the agent alone, and what is below cluster/driver in the driver:
// nothing else imports it.
func TestProcesses(t *testing.T) {
	t.Parallel()
	for _, p := range list(t) {
		for _, imp := range p.Imports {
			for folder, allowed := range importers {
				below := func(importPath string) bool { return strings.HasPrefix(importPath+"/", module+"/"+folder+"/") }
				if below(imp) && !below(p.ImportPath) && p.ImportPath != module && !slices.Contains(allowed, part(p.ImportPath)) {
					t.Errorf("%s imports %s, which runs in another process", p.ImportPath, imp)
				}
			}
		}
	}
}

// otherMeanings are files in which such a literal is not an engine's name.
var otherMeanings = map[string]bool{
	"magics/verbs/spark.go": true, // the notebook's variable
}

// TestEngineNames: everything specific to an engine is in its cluster.Engine. No code outside of the
// backends contains an engine's name.
func TestEngineNames(t *testing.T) {
	t.Parallel()
	engines := engines(nil)
	backend := func(part string) bool {
		return slices.ContainsFunc(engines,
			func(e cluster.Engine) bool { return strings.HasPrefix(part+"/", "cluster/"+e.Name+"/") })
	}
	for _, p := range list(t) {
		from := part(p.ImportPath)
		if p.ImportPath == module || from == "e2e" || backend(from) {
			continue
		}
		for _, f := range append(p.GoFiles, p.CgoFiles...) {
			files := token.NewFileSet()
			tree, err := parser.ParseFile(files, filepath.Join(p.Dir, f), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(tree, func(n ast.Node) bool {
				literal, ok := n.(*ast.BasicLit)
				if ok && slices.Contains(engines.Names(), strings.Trim(literal.Value, "\"")) && !otherMeanings[from+"/"+f] {
					t.Errorf("%s: %s is the name of an engine: describe the difference in its cluster.Engine",
						files.Position(literal.Pos()), literal.Value)
				}
				return true
			})
		}
	}
}

// TestPackageComments: each package has exactly one package comment.
func TestPackageComments(t *testing.T) {
	t.Parallel()
	for _, p := range list(t) {
		var with []string
		for _, f := range append(p.GoFiles, p.CgoFiles...) {
			tree, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, f), nil,
				parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if tree.Doc != nil && !strings.Contains(tree.Doc.Text(), "Code generated") && len(tree.Doc.Text()) > 0 {
				with = append(with, f)
			}
		}
		if len(with) != 1 && len(p.GoFiles)+len(p.CgoFiles) > 0 && part(p.ImportPath) != "cluster/clusterpb" {
			t.Errorf("%s has its package comment in %v: want one", p.ImportPath, with)
		}
	}
}

func lines(path string) (int, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	n := 0
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		n++
	}
	return n, s.Err()
}

// banned are package names that do not describe a package's contents.
var banned = map[string]bool{
	"util": true, "utils": true, "common": true, "helper": true, "helpers": true, "types": true, "misc": true,
}

// TestPackageNames: a package's name describes its contents.
func TestPackageNames(t *testing.T) {
	t.Parallel()
	for _, p := range list(t) {
		if banned[p.Name] {
			t.Errorf("%s: the package name %s does not describe its contents", p.ImportPath, p.Name)
		}
	}
}
