package magics

import "context"

// help lists the verbs, or shows one.
func (inv *invocation) help(_ context.Context) (Value, error) {
	if len(inv.Words) == 0 {
		inv.out.Stdout(inv.table.Usage(inv.session.opt.Shell))
		return nil, nil
	}
	text, err := inv.table.VerbUsage(inv.Words[0], inv.session.opt.Shell)
	if err != nil {
		return nil, err
	}
	inv.out.Stdout(text)
	return nil, nil
}
