package advisories

import (
	"fmt"
	"regexp"
	"testing"
)

func TestOlder(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		version, than string
		want          bool
	}{
		{"4.1.0", "4.1.1", true},
		{"4.1.1", "4.1.1", false},
		{"4.10.0", "4.9.9", false},
		{"4.9", "4.10", true},
		{"4.5", "4.5.0", false},
		{"4", "4.0.1", true},
		{"4.5.7rc1", "4.5.7", true},
		{"4.5.7.dev3", "4.5.7", true},
		{"4.5.7b0", "4.5.7rc0", false},
		{"4.5.7.post1", "4.5.7", false},
		{"4.5.7+local", "4.5.7", false},
		{"4.5.8a0", "4.5.7", false},
		{"V4.5.6", "4.5.7", true},
		{"", "4.5.7", false},
		{"installed", "4.5.7", false},
		{"99999999999999999999.1", "4.5.7", false},
	} {
		if got := Older(tt.version, tt.than); got != tt.want {
			t.Errorf("%s is older than %s: %v", tt.version, tt.than, got)
		}
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, version, fixed string
		flaws                int
	}{
		{"jupyter-server-proxy", "4.1.0", "4.2.0", 2},
		{"jupyter-server-proxy", "4.1.1", "4.2.0", 1},
		{"jupyter-server-proxy", "4.2.0", "", 0},
		{"jupyter-server", "2.19.9", "2.20.0", 1},
		{"jupyter-server", "2.20", "", 0},
		{"jupyterlab", "4.5.6", "4.5.7", 2},
		{"jupyterlab", "4.5.7", "", 0},
		{"notebook", "7.5.5", "7.5.6", 1},
		{"notebook", "7.6.5", "", 0},
		{"notebook", "", "", 0},
		{"notebook", "installed", "", 0},
		{"numpy", "1.0", "", 0},
	} {
		versions := map[string]string{tt.name: tt.version}
		found := Find(versions)
		switch {
		case tt.flaws == 0 && len(found) > 0, tt.flaws > 0 && len(found) != 1:
			t.Errorf("%s %s: %v", tt.name, tt.version, found)
		case tt.flaws > 0 && (found[0].Fixed != tt.fixed || len(found[0].Flaws) != tt.flaws || None(versions) != ""):
			t.Errorf("%s %s: %+v, and without a flaw are %q", tt.name, tt.version, found[0], None(versions))
		}
	}
	all := map[string]string{"jupyterlab": "4.5.6", "notebook": "7.6.5", "jupyter-server": "2.21.1"}
	want := "[4.5.6: CVE-2026-42557, a click on a button in a notebook's output runs any command of JupyterLab; " +
		"CVE-2026-40171, a click in a notebook gives its author the server's token]"
	if got := fmt.Sprint(Find(all)); got != want || None(all) != "jupyter-server 2.21.1, notebook 7.6.5" {
		t.Errorf("found %s; none for %s", got, None(all))
	}
}

// TestTable: each row is complete, and its version can be compared.
func TestTable(t *testing.T) {
	t.Parallel()
	for _, a := range table() {
		if !Older("0.0.1", a.Fixed) || !regexp.MustCompile(`^(CVE-\d{4}-\d{4,}|GHSA-[0-9a-z-]{14})$`).MatchString(a.ID) ||
			a.Package == "" || a.Consequence == "" {
			t.Errorf("incomplete: %+v", a)
		}
	}
}
