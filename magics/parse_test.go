package magics

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/magics/bridge"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
	"github.com/tfcluster/tfcluster/magics/verbs"
)

func parseLine(line string, cell *string, shell bool) (*command.Command, error) {
	table := verbs.NewSet(engines()).Table
	return table.Command(context.Background(), table.Line(line, cell), values{}, shell)
}

// TestExpandErrors: what Python does not know is a usage error of one line; without Python it is said
// that nobody can be asked.
func TestExpandErrors(t *testing.T) {
	t.Parallel()
	s := newTestSession(t, newFakeDrivers(t), "")
	for line, want := range map[string]string{
		"status $lr":   "$lr: the notebook has no name lr",
		"status {x+1}": "{x+1}: NameError",
	} {
		_, err := s.RunLine(t.Context(), line, nil, newRecord(), &fakePython{})
		var usage *command.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q gave %v, want a usage error with %q", line, err, want)
		}
	}
	if _, err := s.RunLine(t.Context(), "status $lr", nil, newRecord(), nil); !errors.Is(err, bridge.ErrNoPython) {
		t.Errorf("without Python $lr gave %v, want ErrNoPython", err)
	}
}

func TestParseErrors(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"statsu":                                    `no verb "statsu": did you mean status?`,
		"xyzzy":                                     `no verb "xyzzy": the verbs are reserve, start`,
		"run x.py":                                  `no verb "run"`,
		"reserve --worker 3":                        "no option --worker: did you mean --workers?",
		"reserve --quux":                            "no option --quux",
		"reserve --workers":                         "--workers needs a value: --workers N",
		"reserve --workers four":                    `want a whole number from 0 to 10000, not "four"`,
		"reserve --workers 99999999999999999999":    "want a whole number from 0 to 10000",
		"reserve --workers -1":                      "want a whole number",
		"reserve --workers 2 --workers 3":           "--workers is given twice",
		"reserve --chief=1":                         "--chief takes no value",
		"reserve --memory 4x":                       `want a size like 512m or 4g, not "4x"`,
		"reserve --memory 4":                        "did you forget the unit?",
		"reserve --memory 99999999t":                "more than the maximum of 1024t: want a size",
		"reserve --idle 0s":                         "out of range",
		"reserve --idle 100000h":                    "out of range",
		"reserve --timeout soon":                    "want a duration like 30s, 10m or 2h",
		"reserve --timeout 1m --reserve-timeout 2m": "mean the same: give only one",
		"reserve --backend yran":                    "did you mean yarn?",
		"reserve --conf k":                          "want K=V",
		"reserve --role x":                          "want ROLE=N",
		"reserve --name ../x":                       "cluster name",
		"reserve two":                               `"two" is one word too many`,
		"reserve --db-kind spare":                   "want one of tracked, untracked, sidecar",
		"reserve --kind sidecar":                    "--kind is for one role, whose name it needs, as in --worker-kind",
		"reserve --worker-depends-on PS":            `want roles, like ps,db, not "PS"`,
		"reserve --worker-end-within soon":          "want a duration",
		"reserve --framework torch":                 `not "torch": did you mean pytorch?`,
		"start --again main_fun":                    "--again uses the last program",
		"start --args a main_fun 1":                 "exclude each other",
		"start --resume 3 main_fun":                 "write --resume=3",
		"history --prune 1d":                        "write --prune=1d",
		"start --resume=x main_fun":                 "want last or the number of a run",
		"start --show everyone! main_fun":           "want all, a role like chief or a task like worker:1",
		"logs --grep (":                             "--grep:",
		"logs --since yesterdayish":                 "--since:",
		"logs --task Worker":                        "want a role and an index",
		"logs worker:1": `"worker:1" is one word too many: logs [options]; one task: ` +
			`--task worker:1`,
		"logs -x":                 "no option -x",
		"status --n 3":            "no option --n",
		"inference df dg":         "one word too many",
		"inference df --epochs 2": "no option --epochs",
		"train --epochs x df":     "--epochs",
		"attach a b":              "one word too many",
		"help a b":                "one word too many",
	} {
		_, err := parseLine(line, nil, false)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gave %v, want %q", line, err, want)
			continue
		}
		r := result.NewReport(err)
		if !r.Usage || len(r.Lines) != 1 || strings.Contains(r.Lines[0], "\n") || r.Code != 2 {
			t.Errorf("%q is reported as %+v, want one line of usage", line, r)
		}
	}
	body := "print(1)"
	if _, err := parseLine("status", &body, false); err == nil ||
		!strings.Contains(err.Error(), "takes a cell's body for start only") {
		t.Errorf("%%%%tfcluster status gave %v", err)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	parse := func(line string) *command.Command {
		t.Helper()
		c, err := parseLine(line, nil, false)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		return c
	}
	c := parse("start --max-restarts 2 --resume main_fun --max-restarts 3 -c x --resume=1")
	if c.Program != "main_fun" || c.Count("max-restarts", 0) != 2 || c.Text("resume") != "last" {
		t.Errorf("start is %+v", c)
	}
	if want := []string{"--max-restarts", "3", "-c", "x", "--resume=1"}; !slices.Equal(c.Words, want) {
		t.Errorf("the program's words are %q, want %q", c.Words, want)
	}
	if len(c.Warnings) != 2 || !strings.Contains(c.Warnings[0], "--max-restarts follows main_fun") {
		t.Errorf("warnings are %q", c.Warnings)
	}
	c = parse("logs -fn20 --task=worker:1 -c local-1")
	if !c.Has("follow") || c.Count("lines", 0) != 20 || c.Text("task") != "worker:1" || c.Text("cluster") != "local-1" {
		t.Errorf("logs is %+v", c.Values)
	}
	c = parse("reserve --ps-memory 512m --worker-node-label gpu --idle never --env A=b=c --env HOME --timeout 90")
	if c.Roles["ps"]["memory"].Number != 512<<20 || c.Roles["worker"]["node-label"].Text != "gpu" ||
		c.Millis("idle", time.Hour) != 0 || c.Millis("timeout", 0) != 90_000 {
		t.Errorf("reserve is %+v, %+v", c.Roles, c.Values)
	}
	if env := c.Values["env"]; len(env) != 2 || env[0].Text != "b=c" || !env[0].HasValue || env[1].Key != "HOME" ||
		env[1].HasValue {
		t.Errorf("--env is %+v", c.Values["env"])
	}
	for _, line := range []string{
		"reserve ?", "reserve --workers ?", "reserve?", "reserve --workers?", "start ?", "--help", "-h", "status --help",
		"status -h", "start --wait --help", "logs -f -h", "help --help",
	} {
		if c := parse(line); !c.Help && c.Verb.Name != "help" {
			t.Errorf("%q does not ask for help", line)
		}
	}
	if c := parse("start train.py --help"); c.Help || !slices.Equal(c.Words, []string{"--help"}) {
		t.Errorf("a --help of the program's is %+v", c)
	}
	if c := parse("start main_fun ?"); c.Help || !slices.Equal(c.Words, []string{"?"}) {
		t.Errorf("a ? of the program's is %+v", c)
	}
	if c := parse("start -- --odd 1"); c.Program != "--odd" {
		t.Errorf("after -- the program is %q", c.Program)
	}
	body := "print(1)\n"
	c, err := parseLine("start --wait a --b", &body, false)
	if err != nil || c.Cell != body || !slices.Equal(c.Words, []string{"a", "--b"}) || !c.Has("wait") {
		t.Errorf("a cell's start is %+v, %v", c, err)
	}
}

func TestCells(t *testing.T) {
	t.Parallel()
	s := NewSession(t.Context(), session.Options{Engines: engines(), Connector: newFakeDrivers(t)})
	t.Cleanup(s.Close)
	for _, tc := range []struct {
		code string
		want string
	}{
		{"%tfcluster status", "queue"},
		{"%tfcluster status --now", "now"},
		{"\n# a comment\n%tfcluster status --now\n\n%tfcluster logs --now -n 3\n", "now"},
		{"%tfcluster status --now\n%tfcluster wait", "queue"},
		{"%tfcluster wait --now", "now"},
		{"%tfcluster start main_fun --now", "queue"},
		{"%tfcluster logs --grep '--now'", "queue"},
		{"%%tfcluster start\nx = 1\n%tfcluster status", "queue"},
		{"%tfcluster", "queue"},
		{"%tfcluster?", "queue"},
		{"?%tfcluster", "queue"},
		{"%tfcluster reserve?", "queue"},
		{"%tfcluster reserve \\\n  --workers 2", "queue"},
		{"x = 1\n%tfcluster status", "pass"},
		{"r = %tfcluster wait", "pass"},
		{"if 1:\n    %tfcluster status", "pass"},
		{"%%time\n%tfcluster status", "pass"},
		{"%tfclusters", "pass"},
		{"# %tfcluster", "pass"},
		{"'''\n%tfcluster status\n'''", "pass"},
		{"", "pass"},
	} {
		got := "pass"
		if p := s.Read(tc.code); p != nil {
			got = map[bool]string{false: "queue", true: "now"}[p.Now]
		}
		if got != tc.want {
			t.Errorf("%q: %s, want %s", tc.code, got, tc.want)
		}
	}
}

// TestHint: a cell whose every line could say --now is one to say so of.
func TestHint(t *testing.T) {
	t.Parallel()
	s := newTestSession(t, newFakeDrivers(t), "")
	for code, want := range map[string]bool{
		"%tfcluster status": true, "%tfcluster status\n%tfcluster logs -n 3": true, "%tfcluster status --now": true,
		"%tfcluster wait": true, "%tfcluster start f": false, "%tfcluster status\n%tfcluster start f": false,
		"%tfcluster 'status": false, "%tfcluster": false,
	} {
		if got := s.Read(code).Hint; got != want {
			t.Errorf("%q: %v, want %v", code, got, want)
		}
	}
}
