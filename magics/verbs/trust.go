package verbs

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
)

var trustVerb = row{
	Verb: command.Verb{
		Name: "trust", Summary: "show the notebook folder's tfcluster.toml, and let it set every option until it changes",
		Magic: true, Shell: true,
		Options: []command.Option{
			{Name: "revoke", Kind: command.KindFlag, Help: "let it set counts, sizes, times, name and queue alone again"},
		}, Example: "trust",
		Long: "A folder may be somebody else's. Without this its file sets counts, sizes, times, name and queue, " +
			"and nothing that chooses what runs, where, or what leaves this machine.",
	},
	run: (*invocation).trust,
}

// trust shows the file of the notebook's folder and records that the user trusts it.
func (inv *invocation) trust(ctx context.Context) (result.Value, error) {
	files := configFiles(inv.workingDir(ctx))
	file := files[len(files)-1]
	if inv.Has("revoke") {
		if err := state.Trust(file, nil); err != nil {
			return nil, err
		}
		render.Display(inv.out, render.Line(file+" is not trusted"))
		return nil, nil
	}
	text, err := readConfig(file)
	if err != nil {
		return nil, command.Usagef(inv.Verb, "%s: %v", file, err)
	}
	if text == nil {
		return nil, command.Usagef(inv.Verb, "there is no %s in %s that this user may read", filepath.Base(file),
			filepath.Dir(file))
	}
	if err := state.Trust(file, text); err != nil {
		return nil, err
	}
	b := render.Line(fmt.Sprintf("%s is trusted until it changes:", file))
	for line := range strings.Lines(string(text)) {
		b = b.Line("  " + render.OneLine(strings.TrimRight(line, "\r\n")))
	}
	render.Display(inv.out, b)
	return nil, nil
}
