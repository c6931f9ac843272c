// Package advisories knows versions of Jupyter's packages that have a published security flaw, through which a page, a
// notebook or another user could reach a kernel or read its token.
package advisories

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Advisory is a flaw of a package.
type Advisory struct {
	Package     string // as pip names it
	Fixed       string // the first version without it
	ID          string
	Consequence string
}

// table has the newest fix of a package last.
func table() []Advisory {
	return []Advisory{
		{"jupyter-server-proxy", "4.1.1", "CVE-2024-28179", "WebSockets are proxied without authentication"},
		{
			"jupyter-server-proxy", "4.2.0", "CVE-2024-35225",
			"a link with a host name of its choice runs scripts in Jupyter's origin",
		},
		{"jupyter-server", "2.20.0", "CVE-2026-44727", "a notebook that is shown converted runs scripts in Jupyter's origin"},
		{
			"jupyterlab", "4.5.7", "CVE-2026-42557", "a click on a button in a notebook's output runs any command of JupyterLab",
		},
		{"jupyterlab", "4.5.7", "CVE-2026-40171", "a click in a notebook gives its author the server's token"},
		{"notebook", "7.5.6", "CVE-2026-42557", "a click on a button in a notebook's output runs any command of JupyterLab"},
	}
}

// Packages returns the packages of the table, each once.
func Packages() []string {
	var names []string
	for _, a := range table() {
		if !slices.Contains(names, a.Package) {
			names = append(names, a.Package)
		}
	}
	return names
}

// Finding is a package with known flaws.
type Finding struct {
	Package, Version string
	Fixed            string // the first version without all of Flaws
	Flaws            []Advisory
}

// String names the flaws: "4.5.6: CVE-…, what it leads to; …".
func (f Finding) String() string {
	var flaws []string
	for _, a := range f.Flaws {
		flaws = append(flaws, a.ID+", "+a.Consequence)
	}
	return f.Version + ": " + strings.Join(flaws, "; ")
}

// Find returns the packages with known flaws among installed ones, by package. A version that is not known, "" or
// without a number, has none.
func Find(versions map[string]string) []Finding {
	var found []Finding
	for _, name := range Packages() {
		f := Finding{Package: name, Version: versions[name]}
		for _, a := range table() {
			if a.Package != name || !Older(f.Version, a.Fixed) {
				continue
			}
			f.Flaws = append(f.Flaws, a)
			if f.Fixed == "" || Older(f.Fixed, a.Fixed) {
				f.Fixed = a.Fixed
			}
		}
		if len(f.Flaws) > 0 {
			found = append(found, f)
		}
	}
	return found
}

// None says which of the installed packages have no known flaw; "" if none is installed.
func None(versions map[string]string) string {
	flawed := map[string]bool{}
	for _, f := range Find(versions) {
		flawed[f.Package] = true
	}
	var names []string
	for _, name := range Packages() {
		if versions[name] != "" && !flawed[name] {
			names = append(names, fmt.Sprintf("%s %s", name, versions[name]))
		}
	}
	return strings.Join(names, ", ")
}

// Older returns whether a version of a Python package comes before another: 4.10 is newer than 4.9, 4.5.7rc1 older than
// 4.5.7, 4.5.7.post1 is not. A version without a number is not older.
func Older(version, than string) bool {
	a, aPre := parse(version)
	b, bPre := parse(than)
	if a == nil || b == nil {
		return false
	}
	for i := range max(len(a), len(b)) {
		if c := cmp.Compare(at(a, i), at(b, i)); c != 0 {
			return c < 0
		}
	}
	return aPre && !bPre
}

// parse returns the numbers of a version, nil for none, and whether it is one before its release.
func parse(version string) (release []int, early bool) {
	m := regexp.MustCompile(`^v?(\d+(?:\.\d+)*)[.\-_]?(a|b|c|rc|alpha|beta|pre|preview|dev)?`).FindStringSubmatch(
		strings.ToLower(strings.TrimSpace(version)))
	if m == nil {
		return nil, false
	}
	for part := range strings.SplitSeq(m[1], ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil, false // more digits than a number has
		}
		release = append(release, n)
	}
	return release, m[2] != ""
}

func at(release []int, i int) int {
	if i < len(release) {
		return release[i]
	}
	return 0
}
