package verbs

import (
	"context"

	"github.com/tfcluster/tfcluster/docs"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/result"
)

var helpVerb = row{
	Verb: command.Verb{
		Name: "help", Summary: "this list, one verb, or one kind of error", Magic: true, Shell: true, Now: true,
		Words: "[VERB|ERROR]", MaxWords: 1, Options: []command.Option{clusterOption, nowOption}, Example: "help start",
		Operand: command.OperandVerb,
	},
	run: (*invocation).help,
}

// help lists the verbs, or shows one, or a section of docs/errors.md.
func (inv *invocation) help(_ context.Context) (result.Value, error) {
	if len(inv.Words) == 0 {
		inv.out.Stdout(inv.table.Usage(inv.session.Options.Shell))
		return nil, nil
	}
	if text, ok := docs.Topic(inv.Words[0]); ok {
		inv.out.Stdout(text)
		return nil, nil
	}
	text, err := inv.table.VerbUsage(inv.Words[0], inv.session.Options.Shell)
	if err != nil {
		return nil, err
	}
	inv.out.Stdout(text)
	return nil, nil
}
