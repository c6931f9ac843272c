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

// mayImport lists, for each part, which other parts it may import; main may import all. A part is a folder
// with everything below it; the longest match counts.
var mayImport = map[string][]string{
	"kernel":                       {"internal/handshake", "internal/unixsock"},
	"magics":                       {"magics/bridge", "magics/command", "magics/panel", "magics/render", "magics/result", "magics/session", "magics/verbs", "cluster", "cluster/client", "cluster/clusterpb"},
	"magics/panel":                 {"magics/bridge", "magics/command", "magics/render", "magics/result", "magics/session", "cluster", "cluster/clusterpb", "internal/errtext"},
	"docs":                         {},
	"magics/advisories":            {},
	"magics/verbs":                 {"docs", "magics/advisories", "magics/bridge", "magics/command", "magics/feeding", "magics/render", "magics/result", "magics/session", "cluster", "cluster/client", "cluster/clusterpb", "internal/errtext", "cluster/results/logstore", "cluster/python", "cluster/results", "cluster/results/rundir", "cluster/ship", "cluster/state", "rdma/fabric", "cluster/manifest/git", "cluster/manifest", "cluster/driver/verdict"},
	"magics/feeding":               {"magics/bridge", "magics/render", "magics/result", "magics/session", "cluster/clusterpb", "internal/errtext"},
	"magics/session":               {"magics/command", "magics/render", "magics/result", "cluster", "cluster/client", "cluster/clusterpb", "internal/errtext", "cluster/results", "cluster/state"},
	"magics/bridge":                {"magics/command", "magics/render", "magics/result", "cluster", "internal/errtext", "cluster/state", "internal/unixsock"},
	"magics/result":                {"magics/command", "magics/render", "cluster/clusterpb", "internal/errtext"},
	"magics/render":                {"magics/command", "cluster", "cluster/clusterpb", "internal/errtext", "cluster/results/logstore", "rdma/fabric", "cluster/manifest", "internal/termtext"},
	"magics/command":               {"cluster"},
	"cluster":                      {"cluster/clusterpb", "internal/errtext"},
	"cluster/results/rundir":               {},
	"internal/errtext":             {},
	"internal/atomicfile":          {},
	"internal/lockfile":            {},
	"internal/unixsock":            {},
	"internal/termtext":            {},
	"cluster/driver/lifecycle":     {"cluster", "cluster/clusterpb", "internal/errtext"},
	"cluster/driver/panel":               {"cluster/clusterpb"},
	"cluster/driver/panel":              {"cluster/clusterpb"},
	"cluster/driver/verdict":            {"cluster/clusterpb"},
	"cluster/driver/verdict":       {"cluster", "cluster/clusterpb"},
	"cluster/results/logstore":             {"cluster", "cluster/clusterpb", "cluster/results/rundir", "internal/termtext"},
	"cluster/auth":                 {"cluster", "internal/errtext"},
	"cluster/state":                {"cluster", "internal/atomicfile", "cluster/clusterpb", "internal/errtext", "internal/lockfile"},
	"cluster/client":               {"cluster", "cluster/clusterpb", "internal/errtext", "cluster/state"},
	"cluster/results":              {"cluster", "internal/atomicfile", "cluster/clusterpb", "cluster/results/logstore", "cluster/results/rundir", "cluster/state"},
	"rdma/fabric":                  {},
	"rdma/memory":                  {},
	"rdma/reduce":                  {},
	"rdma/verbs":                   {},
	"rdma/transport":               {"rdma/memory", "rdma/verbs"},
	"rdma/collective":              {"rdma/memory", "rdma/reduce", "rdma/transport"},
	"internal/handshake":           {},
	"cluster/driver/groups":        {"cluster/clusterpb", "internal/errtext"},
	"cluster/fabric":              {"cluster/clusterpb", "rdma/fabric"},
	"cluster/agent/group":          {"cluster/clusterpb", "internal/errtext", "internal/handshake", "internal/unixsock", "rdma/collective", "rdma/memory", "rdma/reduce", "rdma/transport"},
	"cluster/driver/feed":          {},
	"cluster/agent/feed":           {"cluster/clusterpb", "internal/unixsock", "rdma/memory"},
	"cluster/driver/feed/dispatch": {"cluster/clusterpb", "internal/errtext", "cluster/driver/feed"},
	"cluster/driver/coordinator":   {"cluster/fabric", "cluster/manifest/git", "cluster/manifest", "cluster/driver/feed/dispatch", "cluster/driver/groups", "cluster", "cluster/auth", "cluster/clusterpb", "internal/errtext", "cluster/driver/lifecycle", "cluster/results/logstore", "cluster/driver/panel", "cluster/results", "cluster/results/rundir", "cluster/runfiles", "cluster/driver/panel", "cluster/ship", "cluster/driver/verdict", "cluster/state", "cluster/driver/verdict"},
	"cluster/clusterpb":            {"internal/errtext"},
	"cluster/python":               {},
	"cluster/hdfs":                 {},
	"cluster/driver/hdfsdir":       {"cluster/driver", "cluster/hdfs"},
	"cluster/manifest/git":                  {"cluster/clusterpb"},
	"cluster/manifest":             {"cluster", "cluster/clusterpb"},
	"cluster/runfiles":             {"cluster/clusterpb", "internal/errtext", "internal/lockfile", "cluster/results/rundir"},
	"cluster/ship":                 {"internal/atomicfile", "cluster/clusterpb", "internal/errtext", "internal/lockfile"},
	"cluster/local":                {"cluster", "internal/proc", "cluster/clusterpb", "internal/errtext", "cluster/results/rundir", "cluster/state"},
	"cluster/spark":                {"cluster", "cluster/clusterpb", "internal/errtext", "cluster/python", "cluster/state", "internal/unixsock"},
	"cluster/yarn":                 {"cluster", "cluster/clusterpb", "internal/errtext", "cluster/hdfs", "cluster/yarn/yarnpb", "cluster/yarn/credentials", "cluster/yarn/protocol", "cluster/yarn/containerlogs", "cluster/yarn/gang", "cluster/yarn/site"},
	"cluster/yarn/containerlogs":   {"cluster", "cluster/clusterpb", "cluster/hdfs", "cluster/yarn/yarnpb", "cluster/yarn/protocol", "cluster/yarn/aggregated", "cluster/yarn/site"},
	"cluster/yarn/gang":            {"cluster/yarn/protocol", "cluster/yarn/yarnpb"},
	"cluster/yarn/site":            {"cluster", "cluster/clusterpb", "cluster/hdfs"},
	"cluster/clustertest":          {"cluster", "cluster/client", "cluster/clusterpb", "cluster/state"},
	"cluster/driver":               {"cluster", "cluster/auth", "cluster/clusterpb", "cluster/driver/coordinator", "internal/errtext", "internal/handshake", "cluster/results", "cluster/results/rundir", "cluster/runfiles", "cluster/ship", "cluster/state", "internal/unixsock", "tensorboard", "cluster/driver/lines", "cluster/driver/proxy", "cluster/driver/serving", "cluster/driver/webui"},
	"cluster/driver/lines":         {"cluster/clusterpb"},
	"cluster/driver/proxy":         {"cluster", "cluster/auth", "cluster/clusterpb", "cluster/driver/coordinator", "cluster/driver/serving", "internal/errtext", "cluster/results/rundir", "cluster/runfiles", "cluster/ship", "cluster/state"},
	"cluster/driver/serving":       {},
	"cluster/driver/webui":         {"cluster", "cluster/clusterpb"},
	"internal/proc":                {},
	"internal/excerpt":             {},
	"cluster/agent/gpu":            {"internal/excerpt", "internal/proc", "cluster/clusterpb"},
	"cluster/agent/tasklog":        {"internal/excerpt", "cluster/clusterpb", "internal/termtext"},
	"cluster/agent/interpreter":    {"internal/excerpt", "cluster/agent/forking", "internal/proc", "cluster/clusterpb", "internal/lockfile", "cluster/python"},
	"cluster/agent/forking":        {"internal/proc", "internal/errtext"},
	"cluster/agent":                {"cluster/fabric", "rdma/fabric", "rdma/transport", "cluster/agent/snapshot", "cluster/manifest", "internal/termtext", "internal/errtext", "cluster/agent/feed", "cluster/agent/group", "cluster/agent/gpu", "cluster/agent/interpreter", "cluster/agent/tasklog", "internal/excerpt", "cluster/agent/forking", "internal/proc", "cluster/clusterpb", "cluster/runfiles", "cluster/ship", "cluster/python", "cluster/hdfs", "tensorboard/events", "internal/errtext", "internal/lockfile", "cluster/results/rundir"},
	"tensorboard":                  {"internal/unixsock"},
	"jupyter-ext":                  {},
	"wheel":                        {},
	"e2e":                          {"cluster", "cluster/clusterpb", "cluster/clustertest", "cluster/spark/sparktest", "cluster/yarn/hadooptest"},
	"e2e/sim":                      {"cluster", "cluster/client", "cluster/clusterpb", "cluster/driver/coordinator", "cluster/driver", "cluster/state"},
	"cluster/yarn/protocol":        {"cluster/hdfs", "cluster/yarn/ipc", "cluster/yarn/credentials", "cluster/yarn/yarnpb"},
	"cluster/yarn/ipc":             {"cluster/yarn/credentials", "cluster/yarn/yarnpb"},
	"cluster/yarn/credentials":     {"cluster/yarn/yarnpb"},
	"cluster/yarn/yarnpb":          {},
	"cluster/yarn/aggregated":      {},
	"cluster/yarn/hadooptest":      {"internal/atomicfile"},

	"cluster/spark/slot":      {"cluster/clusterpb", "internal/lockfile"},
	"cluster/spark/sparktest": {"cluster", "internal/atomicfile", "cluster/clustertest", "cluster/state"},
}

type goPackage struct {
	ImportPath, Dir, Name      string
	GoFiles, CgoFiles, Imports []string
	TestGoFiles, XTestGoFiles  []string
}

func list(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Name,GoFiles,CgoFiles,Imports,TestGoFiles,XTestGoFiles", "./...")
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
			allowed := to == from
			for _, a := range mayImport[from] {
				allowed = allowed || a == to
			}
			if !allowed {
				t.Errorf("%s imports %s: %s may import %v", p.ImportPath, imp, from, mayImport[from])
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
		return slices.ContainsFunc(engines, func(e cluster.Engine) bool { return strings.HasPrefix(part+"/", "cluster/"+e.Name+"/") })
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
					t.Errorf("%s: %s is the name of an engine: describe the difference in its cluster.Engine", files.Position(literal.Pos()), literal.Value)
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
			tree, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, f), nil, parser.PackageClauseOnly|parser.ParseComments)
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
var banned = map[string]bool{"util": true, "utils": true, "common": true, "helper": true, "helpers": true, "types": true, "misc": true}

// TestPackageNames: a package's name describes its contents.
func TestPackageNames(t *testing.T) {
	t.Parallel()
	for _, p := range list(t) {
		if banned[p.Name] {
			t.Errorf("%s: the package name %s does not describe its contents", p.ImportPath, p.Name)
		}
	}
}
